//! Which batches of a read pass, and which stand together to be merged: the loop of `_Planner._walk` in
//! `mm2py/copying/planning/planner.py`.
//!
//! It goes on up to the first batch that is neither, which Python looks at: one that must be rebuilt, or is of an old
//! format, or damaged, or cut.

use crate::batch::{GROWTH_BYTES, Header, LOG_APPEND_TIME, MAGIC, crc_is_right};

/// What is asked of a batch. The names are those of `_Planner._walk`.
pub struct Rules {
    pub passed_from: i64,
    pub max_message_bytes: i64,
    /// One bit for each codec that may pass.
    pub takes: u8,
    /// The codec that every batch must have; -1: any.
    pub wanted_codec: i64,
    /// The largest size of batches that are merged, by codec.
    pub mergeable: [i64; 8],
    pub records_max: i64,
    pub merged_max_bytes: i64,
}

impl Rules {
    /// Batches of this codec need not be compressed anew.
    fn stays(&self, codec: usize) -> bool {
        self.wanted_codec < 0 || usize::try_from(self.wanted_codec) == Ok(codec)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Pass,
    Merge,
    Control,
}

/// Batches that follow each other and may become one.
pub struct Group {
    pub begin: usize,
    pub batch_count: u32,
    pub first_offset: i64,
    pub next_offset: i64,
    pub max_timestamp: i64,
    pub record_count: i64,
    pub leader_epoch: i32,
    codec: usize,
    room: i64,
    /// As of `Outgoing.jumps`, in the machine's order of bytes.
    pub jumps: Vec<u8>,
}

#[derive(Default)]
pub struct Walk {
    /// Where the walk ended.
    pub position: usize,
    pub log_offset: i64,
    pub transactional: bool,
    /// One row for each batch that passes, and for each control batch: see `ROW`.
    pub rows: Vec<u8>,
    /// It stands behind the rows.
    pub group: Option<Group>,
    /// The batch at `position` passes or may be merged, but not with the group.
    pub is_closed: bool,
}

impl Walk {
    pub fn from(position: usize, log_offset: i64) -> Self {
        Self { position, log_offset, ..Self::default() }
    }

    /// Go through `records`.
    pub fn go(&mut self, records: &[u8], rules: &Rules) {
        while let Some((header, size, next_offset)) = self.next(records) {
            let Some(fate) = self.fate(&header, size, rules) else { return };
            let batch = records.get(self.position..self.position + size);
            if !batch.is_some_and(|batch| crc_is_right(batch, &header)) {
                return;
            }
            self.transactional |= header.is_transactional() && fate != Fate::Control;
            let fits = match fate {
                Fate::Merge => self.joins(&header, size, next_offset, rules),
                Fate::Pass | Fate::Control => self.group.is_none() || self.pass_one_alone(rules),
            };
            if !fits {
                self.is_closed = true;
                return;
            }
            match fate {
                Fate::Merge => {}
                Fate::Pass => self.row(&header, size, next_offset),
                Fate::Control => self.row(&header, 0, next_offset),
            }
            self.position += size;
            self.log_offset = next_offset;
        }
    }

    /// The header of the next batch, its size and where it ends, if it is whole and its offsets can be right.
    fn next(&self, records: &[u8]) -> Option<(Header, usize, i64)> {
        let rest = records.get(self.position..)?;
        let header = Header::read(rest)?;
        let size = header.size()?;
        let next_offset = header.next_offset()?;
        (header.magic == MAGIC
            && size <= rest.len()
            && header.base_offset >= self.log_offset
            && header.last_offset_delta >= 0
            && header.record_count >= 0)
            .then_some((header, size, next_offset))
    }

    /// What becomes of a batch, by its header; None: Python looks at it.
    fn fate(&self, header: &Header, size: usize, rules: &Rules) -> Option<Fate> {
        if header.is_control() {
            return Some(Fate::Control);
        }
        let size = i64::try_from(size).ok()?;
        let codec = header.codec();
        let record_count = i64::from(header.record_count);
        if header.base_offset < rules.passed_from
            || i64::from(header.last_offset_delta) + 1 != record_count
            || size > rules.max_message_bytes
            || (rules.takes >> codec) & 1 == 0
            || header.attributes & LOG_APPEND_TIME != 0
        {
            return None;
        }
        if size <= *rules.mergeable.get(codec)? && record_count <= rules.records_max && header.base_timestamp >= 0 {
            return Some(Fate::Merge);
        }
        rules.stays(codec).then_some(Fate::Pass)
    }

    /// Add a batch to the group, or to a new one. False: the group ends before it.
    fn joins(&mut self, header: &Header, size: usize, next_offset: i64, rules: &Rules) -> bool {
        let grown = size as i64 + GROWTH_BYTES as i64 * i64::from(header.record_count);
        let fits = self.group.as_ref().is_none_or(|group| {
            group.codec == header.codec() && group.leader_epoch == header.leader_epoch && grown <= group.room
        });
        if !fits && !self.pass_one_alone(rules) {
            return false;
        }
        let group = self.group.get_or_insert_with(|| Group {
            begin: self.position,
            batch_count: 0,
            first_offset: header.base_offset,
            next_offset: header.base_offset,
            max_timestamp: header.max_timestamp,
            record_count: 0,
            leader_epoch: header.leader_epoch,
            codec: header.codec(),
            room: rules.merged_max_bytes,
            jumps: Vec::new(),
        });
        if header.base_offset != group.next_offset {
            group.jumps.extend(group.record_count.to_ne_bytes());
            group.jumps.extend(header.base_offset.to_ne_bytes());
        }
        group.batch_count += 1;
        group.record_count += i64::from(header.record_count);
        group.next_offset = next_offset;
        group.room -= grown;
        true
    }

    /// Let the batch of a group pass if it is the only one. False: there are others.
    fn pass_one_alone(&mut self, rules: &Rules) -> bool {
        match &self.group {
            Some(group) if group.batch_count == 1 && rules.stays(group.codec) => {
                let row = Row {
                    begin: group.begin,
                    end: self.position,
                    first_offset: group.first_offset,
                    next_offset: group.next_offset,
                    max_timestamp: group.max_timestamp,
                    record_count: group.record_count,
                    leader_epoch: group.leader_epoch,
                };
                row.write(&mut self.rows);
                self.group = None;
                true
            }
            _ => false,
        }
    }

    fn row(&mut self, header: &Header, size: usize, next_offset: i64) {
        let row = Row {
            begin: self.position,
            end: self.position + size,
            first_offset: header.base_offset,
            next_offset,
            max_timestamp: header.max_timestamp,
            record_count: i64::from(header.record_count),
            leader_epoch: header.leader_epoch,
        };
        row.write(&mut self.rows);
    }
}

/// One batch that passes; a control batch ends where it begins.
struct Row {
    begin: usize,
    end: usize,
    first_offset: i64,
    next_offset: i64,
    max_timestamp: i64,
    record_count: i64,
    leader_epoch: i32,
}

impl Row {
    /// Append it as Python's `struct` unpacks it: `=7q`.
    fn write(&self, rows: &mut Vec<u8>) {
        for number in [
            self.begin as i64,
            self.end as i64,
            self.first_offset,
            self.next_offset,
            self.max_timestamp,
            self.record_count,
            i64::from(self.leader_epoch),
        ] {
            rows.extend(number.to_ne_bytes());
        }
    }
}
