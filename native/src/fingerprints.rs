//! Batches compared without their content: `mm2py/backfill/verifying/fingerprints.py`.

use crate::batch::{LOG_APPEND_TIME, Reader, plain_batch};

/// Two numbers for each record, each as eight bytes of this machine's order.
#[derive(Default)]
pub struct Fingerprints {
    pub timestamps: Vec<u8>,
    pub contents: Vec<u8>,
}

impl Fingerprints {
    /// Add the records of exactly one plain batch, whose checksum was looked at before; None: Python must look at it.
    pub fn add(&mut self, batch: &[u8]) -> Option<()> {
        let (header, body) = plain_batch(batch)?;
        if header.size() != Some(batch.len()) {
            return None;
        }
        let is_appended = header.attributes & LOG_APPEND_TIME != 0;
        let mut reader = Reader { rest: body };
        for _ in 0..header.record_count {
            let length = reader.varint()?;
            let mut record = Reader { rest: reader.take(length)? };
            record.byte()?; // attributes
            let delta = record.varint()?;
            i32::try_from(record.varint()?).ok()?; // offset
            let timestamp =
                if is_appended { header.max_timestamp } else { header.base_timestamp.checked_add(delta)? };
            self.timestamps.extend(timestamp.to_ne_bytes());
            self.contents.extend(content(&mut record)?.to_ne_bytes());
        }
        reader.rest.is_empty().then_some(())
    }
}

/// The fingerprint of the rest of a record: key, value, headers.
fn content(record: &mut Reader) -> Option<u64> {
    let mut sum = Sum::default();
    sum.add(record.nullable()?)?;
    sum.add(record.nullable()?)?;
    for _ in 0..u32::try_from(record.varint()?).ok()? {
        let length = record.varint()?;
        let name = record.take(length)?;
        sum.add(Some(name))?;
        sum.add(record.nullable()?)?;
    }
    record.rest.is_empty().then_some(u64::from(sum.bytes) << 32 | u64::from(sum.crc))
}

#[derive(Default)]
struct Sum {
    bytes: u32,
    crc: u32,
}

impl Sum {
    fn add(&mut self, part: Option<&[u8]>) -> Option<()> {
        let length = part.map_or(Some(-1), |bytes| i32::try_from(bytes.len()).ok())?;
        self.bytes = self.bytes.wrapping_add(4).wrapping_add(length.max(0).unsigned_abs());
        self.crc = crc32c::crc32c_append(self.crc, &length.to_be_bytes());
        self.crc = crc32c::crc32c_append(self.crc, part.unwrap_or_default());
        Some(())
    }
}
