//! Batches taken apart into records: `read_records` in `mm2py/records/batch.py`.

use crate::batch::{Header, LOG_APPEND_TIME, Reader, plain_batch};

/// One record, as parts of its batch.
pub struct Parts<'a> {
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// Of each header its key and its value. Empty for most records.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

/// The records of a plain batch, in order.
pub struct Records<'a> {
    header: Header,
    reader: Reader<'a>,
    left: i32,
}

impl<'a> Records<'a> {
    /// None: it is not exactly one plain batch. Its checksum was looked at before.
    pub fn of(batch: &'a [u8]) -> Option<Self> {
        let (header, body) = plain_batch(batch)?;
        if header.size() != Some(batch.len()) {
            return None;
        }
        Some(Self { header, reader: Reader { rest: body }, left: header.record_count })
    }

    /// Behind the last record stands nothing.
    pub fn end_well(&self) -> bool {
        self.left == 0 && self.reader.rest.is_empty()
    }

    pub fn has_more(&self) -> bool {
        self.left > 0
    }

    /// The next record; None: Python must look at it.
    pub fn take(&mut self) -> Option<Parts<'a>> {
        self.left -= 1;
        let length = self.reader.varint()?;
        let mut record = Reader { rest: self.reader.take(length)? };
        record.byte()?; // attributes
        let delta = record.varint()?;
        i32::try_from(record.varint()?).ok()?; // offset
        let is_appended = self.header.attributes & LOG_APPEND_TIME != 0;
        let timestamp =
            if is_appended { self.header.max_timestamp } else { self.header.base_timestamp.checked_add(delta)? };
        let (key, value) = (record.nullable()?, record.nullable()?);
        let mut headers = Vec::new();
        for _ in 0..u32::try_from(record.varint()?).ok()? {
            let length = record.varint()?;
            headers.push((std::str::from_utf8(record.take(length)?).ok()?, record.nullable()?));
        }
        record.rest.is_empty().then_some(Parts { timestamp, key, value, headers })
    }
}
