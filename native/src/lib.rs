//! The compiled core of mm2py: what its pure modules do with record batches, only faster.
//!
//! Those modules are the specification. A function here answers only what is laid out as every writer does it, and
//! says None to anything else: then Python looks, and only Python knows faults. So both plan the same.

pub mod batch;
pub mod fingerprints;
pub mod merge;
pub mod rebuild;
pub mod walk;

#[cfg(feature = "python")]
mod buffers;

#[cfg(feature = "python")]
#[pyo3::pymodule]
mod mm2py_native {
    use pyo3::prelude::*;
    use pyo3::types::{PyByteArray, PyBytes};

    use crate::batch;
    use crate::buffers::{Input, filled, without_lock};
    use crate::fingerprints::Fingerprints;
    use crate::merge;
    use crate::rebuild::{self, Renumbered};
    use crate::walk::{Rules, Walk};

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    type Group<'py> = (usize, u32, i64, i64, i32, Bound<'py, PyBytes>);
    type Walked<'py> = (usize, i64, bool, bool, Bound<'py, PyBytes>, Option<Group<'py>>);

    /// See `mm2py/compiled_core.py`.
    #[pyfunction]
    fn walk<'py>(
        py: Python<'py>,
        records: Input,
        position: usize,
        log_offset: i64,
        rules: (i64, i64, u8, i64, [i64; 8], i64, i64),
    ) -> Walked<'py> {
        let rules = Rules {
            passed_from: rules.0,
            max_message_bytes: rules.1,
            takes: rules.2,
            wanted_codec: rules.3,
            mergeable: rules.4,
            records_max: rules.5,
            merged_max_bytes: rules.6,
        };
        let bytes = records.bytes();
        let walked = without_lock(py, bytes.len(), || {
            let mut walk = Walk::from(position, log_offset);
            walk.go(bytes, &rules);
            walk
        });
        let group = walked.group.map(|group| {
            (
                group.begin,
                group.batch_count,
                group.first_offset,
                group.next_offset,
                group.leader_epoch,
                PyBytes::new(py, &group.jumps),
            )
        });
        let rows = PyBytes::new(py, &walked.rows);
        (walked.position, walked.log_offset, walked.transactional, walked.is_closed, rows, group)
    }

    /// See `mm2py/compiled_core.py`.
    #[pyfunction]
    fn merge_batches<'py>(py: Python<'py>, pieces: Vec<Input>) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let bytes: Vec<&[u8]> = pieces.iter().map(Input::bytes).collect();
        let Some(most) = merge::bound(&bytes) else { return Ok(None) };
        let merged = filled(py, most, |out| Some((merge::merge(&bytes, out)?, ())))?;
        Ok(merged.map(|(array, ())| array))
    }

    /// See `mm2py/compiled_core.py`.
    #[pyfunction]
    fn fingerprints<'py>(py: Python<'py>, pieces: Vec<Input>) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let bytes: Vec<&[u8]> = pieces.iter().map(Input::bytes).collect();
        let size = bytes.iter().map(|one| one.len()).sum();
        let found = without_lock(py, size, || {
            let mut found = Fingerprints::default();
            bytes.iter().try_for_each(|one| found.add(one))?;
            Some(found)
        })?;
        Some((PyBytes::new(py, &found.timestamps), PyBytes::new(py, &found.contents)))
    }

    /// See `mm2py/compiled_core.py`.
    #[pyfunction]
    fn survey(
        py: Python<'_>,
        data: Input,
        record_count: i64,
        last_delta: i64,
        wanted_delta: i64,
        refuse_null_keys: bool,
    ) -> Option<(usize, i64, Option<i64>)> {
        let bytes = data.bytes();
        let kept = without_lock(py, bytes.len(), || {
            rebuild::survey(bytes, record_count, last_delta, wanted_delta, refuse_null_keys)
        })?;
        Some((kept.position, kept.record_count, kept.null_key_delta))
    }

    /// See `mm2py/compiled_core.py`.
    #[pyfunction]
    fn changed_checksum(checksum: u32, before: Input, after: Input, unchanged: usize) -> u32 {
        batch::changed_checksum(checksum, before.bytes(), after.bytes(), unchanged)
    }

    type Copied<'py> = (Bound<'py, PyByteArray>, usize, i64, i64, i64, Bound<'py, PyBytes>);

    /// See `mm2py/compiled_core.py`.
    #[pyfunction]
    fn renumber<'py>(
        py: Python<'py>,
        data: Input,
        position: usize,
        record_count: i64,
        base_offset: i64,
        one_timestamp: bool,
    ) -> PyResult<Option<Copied<'py>>> {
        let bytes = data.bytes();
        let Some(end_position) = rebuild::end_of(bytes, position, record_count) else { return Ok(None) };
        let Some(records) = bytes.get(position..end_position) else { return Ok(None) };
        let copied = filled(py, records.len(), |out| {
            let mut found = Renumbered::default();
            let size = rebuild::renumber(records, record_count, one_timestamp, out, &mut found)?;
            Some((size, found))
        })?;
        let Some((array, found)) = copied else { return Ok(None) };
        let mut jumps = Vec::with_capacity(16 * found.jumps.len());
        for (index, delta) in found.jumps {
            jumps.extend(index.to_ne_bytes());
            jumps.extend(base_offset.wrapping_add(delta).to_ne_bytes());
        }
        let first_offset = base_offset.wrapping_add(found.first_delta);
        let last_offset = base_offset.wrapping_add(found.last_delta);
        let jumps = PyBytes::new(py, &jumps);
        Ok(Some((array, end_position, first_offset, last_offset, found.max_timestamp_delta, jumps)))
    }
}

/// `cargo test` checks all sums for overflow, so this says more than that nothing is read beyond its end.
#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use crate::batch::{HEADER_BYTES, Writer};
    use crate::fingerprints::Fingerprints;
    use crate::walk::{Rules, Walk};
    use crate::{merge, rebuild};

    fn batch(records: u8) -> Vec<u8> {
        let mut out = vec![0; 500];
        let mut writer = Writer::behind_header(&mut out);
        for index in 0..records {
            // length, attributes, timestamp, offset, key, value, a header
            assert!(writer.bytes(&[28, 0, 0, 2 * index, 2, b'k', 4, b'v', b'w', 2, 4, b'h', b'h', 2, b'x']).is_some());
        }
        let size = writer.close(i32::from(records), 1 << 40, 1 << 40);
        out.truncate(size.unwrap_or(0));
        out
    }

    fn rules() -> Rules {
        let mergeable = [1 << 20, 0, 0, 0, 0, 0, 0, 0];
        let (passed_from, wanted_codec, most) = (0, -1, 1 << 20);
        Rules {
            passed_from,
            max_message_bytes: most,
            takes: 0x1f,
            wanted_codec,
            mergeable,
            records_max: i64::MAX,
            merged_max_bytes: most,
        }
    }

    #[test]
    fn batches_are_walked_and_merged() {
        let mut second = batch(3);
        second[7] = 2;
        let read = [batch(2), second].concat();
        let mut walk = Walk::from(0, 0);
        walk.go(&read, &rules());
        assert_eq!((walk.position, walk.log_offset), (read.len(), 5));
        let most = merge::bound(&[&read]).unwrap_or(0);
        let mut out = vec![0; most];
        let size = merge::merge(&[&read], &mut out).unwrap_or(0);
        assert_eq!(out[..size], batch(5));
    }

    #[test]
    fn each_record_has_a_fingerprint_of_its_content() {
        let mut found = Fingerprints::default();
        assert!(found.add(&batch(2)).is_some());
        let content =
            [&[0, 0, 0, 1, b'k', 0, 0, 0, 2, b'v', b'w'][..], &[0, 0, 0, 2, b'h', b'h', 0, 0, 0, 1, b'x']].concat();
        let one = (22_u64 << 32 | u64::from(crc32c::crc32c(&content))).to_ne_bytes();
        assert_eq!(found.contents, [one, one].concat());
        assert_eq!(found.timestamps, [1_i64 << 40; 2].map(i64::to_ne_bytes).concat());
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap_or(0)
        };
        for _ in 0..30_000 {
            let mut bytes = [batch(2), batch(1)].concat();
            for _ in 0..=next(4) {
                let at = next(bytes.len());
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, next(256).to_le_bytes()[0]][next(6)];
            }
            bytes.truncate(bytes.len() - if next(4) == 0 { next(bytes.len()) } else { 0 });
            Walk::from(next(9), 0).go(&bytes, &rules());
            if let Some(most) = merge::bound(&[&bytes]) {
                assert!(most < 1_000);
                merge::merge(&[&bytes], &mut vec![0; most]);
            }
            Fingerprints::default().add(&bytes);
            let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
            rebuild::survey(body, 3, i64::from(i32::MAX), 1, next(2) == 0);
            if let Some(end) = rebuild::end_of(body, 0, 2) {
                let mut found = rebuild::Renumbered::default();
                rebuild::renumber(&body[..end], 2, next(2) == 0, &mut vec![0; end], &mut found);
            }
        }
    }
}
