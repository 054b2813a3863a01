//! Records of a batch that cannot pass: `survey` and `renumber` in `mm2py/records/record_formats.py`.

use crate::batch::{Reader, Writer, varint_bytes};

/// Which records are to be copied.
pub struct Kept {
    /// Where the first of them starts.
    pub position: usize,
    pub record_count: i64,
    /// Offset delta of the first record that the target refuses.
    pub null_key_delta: Option<i64>,
}

/// Check that the records are laid out as records are, and find those from `wanted_delta` on.
///
/// None: Python must look; they may be wrong.
pub fn survey(
    data: &[u8],
    record_count: i64,
    last_delta: i64,
    wanted_delta: i64,
    refuse_null_keys: bool,
) -> Option<Kept> {
    let mut records = Reader { rest: data };
    let mut kept = Kept { position: 0, record_count: 0, null_key_delta: None };
    let mut previous = -1;
    for _ in 0..record_count {
        let position = data.len() - records.rest.len();
        let length = records.varint()?;
        let mut record = Reader { rest: records.take(length)? };
        record.byte()?; // attributes
        record.varint()?; // timestamp
        let delta = record.varint()?;
        if delta <= previous || delta > last_delta {
            return None;
        }
        previous = delta;
        let is_wanted = delta >= wanted_delta;
        if record.nullable()?.is_none() && refuse_null_keys && is_wanted {
            kept.null_key_delta = Some(delta);
            return Some(kept);
        }
        record.nullable()?; // value
        for _ in 0..u32::try_from(record.varint()?).ok()? {
            let length = record.varint()?;
            record.take(length)?;
            record.nullable()?;
        }
        if !record.rest.is_empty() {
            return None;
        }
        if is_wanted {
            if kept.record_count == 0 {
                kept.position = position;
            }
            kept.record_count += 1;
        }
    }
    records.rest.is_empty().then_some(kept)
}

/// What is known of renumbered records.
#[derive(Default)]
pub struct Renumbered {
    pub first_delta: i64,
    pub last_delta: i64,
    pub max_timestamp_delta: i64,
    /// (index, offset delta) for each record behind a hole.
    pub jumps: Vec<(i64, i64)>,
}

/// Where `record_count` records from `position` on end.
pub fn end_of(data: &[u8], position: usize, record_count: i64) -> Option<usize> {
    let mut records = Reader { rest: data.get(position..)? };
    for _ in 0..record_count {
        let length = records.varint()?;
        records.take(length)?;
    }
    Some(data.len() - records.rest.len())
}

/// Copy surveyed records to `out`: they get the offset deltas 0, 1, ... and, with `one_timestamp`, 0 as timestamp delta.
/// Return how long they are. None: Python must do it.
pub fn renumber(
    records: &[u8],
    record_count: i64,
    one_timestamp: bool,
    out: &mut [u8],
    found: &mut Renumbered,
) -> Option<usize> {
    let mut records = Reader { rest: records };
    let mut writer = Writer::new(out);
    let mut max_timestamp_delta = None;
    for index in 0..record_count {
        let length = records.varint()?;
        let mut record = Reader { rest: records.take(length)? };
        let attributes = record.byte()?;
        let timestamp_delta = record.varint()?;
        let delta = record.varint()?;
        max_timestamp_delta = max_timestamp_delta.max(Some(timestamp_delta));
        if index == 0 {
            found.first_delta = delta;
        } else if delta != found.last_delta.checked_add(1)? {
            found.jumps.push((index, delta));
        }
        found.last_delta = delta;
        let timestamp_delta = if one_timestamp { 0 } else { timestamp_delta };
        let size = 1 + varint_bytes(timestamp_delta) + varint_bytes(index) + record.rest.len();
        writer.varint(i64::try_from(size).ok()?)?;
        writer.bytes(&[attributes])?;
        writer.varint(timestamp_delta)?;
        writer.varint(index)?;
        writer.bytes(record.rest)?;
    }
    found.max_timestamp_delta = if one_timestamp { 0 } else { max_timestamp_delta? };
    Some(writer.at)
}
