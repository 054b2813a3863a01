//! One plain batch out of several: `merge` in `mm2py/copying/planning/merge.py`.

use crate::batch::{GROWTH_BYTES, HEADER_BYTES, Reader, Writer, plain_batch, varint_bytes};

/// The most bytes that the batches in `pieces` take as one; None: they are not whole plain batches.
pub fn bound(pieces: &[&[u8]]) -> Option<usize> {
    let mut size = HEADER_BYTES;
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let (header, body) = plain_batch(rest)?;
            let growth = GROWTH_BYTES.checked_mul(usize::try_from(header.record_count).ok()?)?;
            size = size.checked_add(body.len())?.checked_add(growth)?;
            rest = rest.get(header.size()?..)?;
        }
    }
    Some(size)
}

/// Make one batch of all records in `pieces`, in order, and return its size.
///
/// The batches are of create time and checked. None: one of them is such that Python must look at it. Keys, values,
/// headers and timestamps stay as they are, offsets follow from the order.
pub fn merge(pieces: &[&[u8]], out: &mut [u8]) -> Option<usize> {
    let mut writer = Writer::behind_header(out);
    let mut count = 0_i32;
    let (mut base_timestamp, mut max_timestamp) = (0, 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let (header, body) = plain_batch(rest)?;
            rest = rest.get(header.size()?..)?;
            let mut records = Reader { rest: body };
            for _ in 0..header.record_count {
                let length = records.varint()?;
                let mut record = Reader { rest: records.take(length)? };
                if record.byte()? != 0 {
                    return None; // no attributes of records are defined
                }
                let timestamp = header.base_timestamp.checked_add(record.varint()?)?;
                record.varint()?; // the offset
                let content = record.rest;
                skip_content(&mut record)?;
                if count == 0 {
                    if timestamp < 0 {
                        return None;
                    }
                    (base_timestamp, max_timestamp) = (timestamp, timestamp);
                }
                max_timestamp = max_timestamp.max(timestamp);
                let delta = timestamp.checked_sub(base_timestamp)?;
                let index = i64::from(count);
                let size = 1 + varint_bytes(delta) + varint_bytes(index) + content.len();
                writer.varint(i64::try_from(size).ok()?)?;
                writer.bytes(&[0])?;
                writer.varint(delta)?;
                writer.varint(index)?;
                writer.bytes(content)?;
                count = count.checked_add(1)?;
            }
            if !records.rest.is_empty() {
                return None;
            }
        }
    }
    writer.close(count, base_timestamp, max_timestamp)
}

/// Pass key, value and headers, behind which nothing may come.
fn skip_content(record: &mut Reader) -> Option<()> {
    record.nullable()?; // key
    record.nullable()?; // value
    for _ in 0..u32::try_from(record.varint()?).ok()? {
        let length = record.varint()?;
        std::str::from_utf8(record.take(length)?).ok()?; // aiokafka's reader takes no other key
        record.nullable()?;
    }
    record.rest.is_empty().then_some(())
}
