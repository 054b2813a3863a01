//! The header of a record batch, and the varints inside its records: `mm2py/records/batch.py`.

pub const HEADER_BYTES: usize = 61;
pub const LOG_OVERHEAD_BYTES: i64 = 12;
/// The checksum covers everything from here on.
pub const CHECKED_FROM: usize = 21;
pub const MAGIC: i8 = 2;
const CODEC_MASK: i16 = 0x07;
pub const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
/// The most by which the encoding of a record may grow.
pub const GROWTH_BYTES: usize = 14;
/// Length, attributes, three numbers of one byte, two empty fields: no record takes less.
const RECORD_MIN_BYTES: usize = 7;

/// What the first 61 bytes say.
#[derive(Clone, Copy)]
pub struct Header {
    pub base_offset: i64,
    pub length: i32,
    pub leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub record_count: i32,
}

impl Header {
    /// Read the header at the start of `bytes`; None: it is cut.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.first_chunk::<HEADER_BYTES>()?.as_slice();
        Some(Self {
            base_offset: i64::from_be_bytes(take(&mut rest)?),
            length: i32::from_be_bytes(take(&mut rest)?),
            leader_epoch: i32::from_be_bytes(take(&mut rest)?),
            magic: i8::from_be_bytes(take(&mut rest)?),
            crc: u32::from_be_bytes(take(&mut rest)?),
            attributes: i16::from_be_bytes(take(&mut rest)?),
            last_offset_delta: i32::from_be_bytes(take(&mut rest)?),
            base_timestamp: i64::from_be_bytes(take(&mut rest)?),
            max_timestamp: i64::from_be_bytes(take(&mut rest)?),
            record_count: {
                take::<14>(&mut rest)?; // the producer's id, epoch and sequence
                i32::from_be_bytes(take(&mut rest)?)
            },
        })
    }

    /// The size of the whole batch, if it can be one.
    pub fn size(&self) -> Option<usize> {
        let size = usize::try_from(i64::from(self.length) + LOG_OVERHEAD_BYTES).ok()?;
        (size >= HEADER_BYTES).then_some(size)
    }

    pub fn next_offset(&self) -> Option<i64> {
        self.base_offset.checked_add(i64::from(self.last_offset_delta))?.checked_add(1)
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    pub fn codec(&self) -> usize {
        usize::from((self.attributes & CODEC_MASK).unsigned_abs())
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}

pub fn crc_is_right(batch: &[u8], header: &Header) -> bool {
    batch.get(CHECKED_FROM..).is_some_and(|checked| crc32c::crc32c(checked) == header.crc)
}

/// The header of a whole batch of magic 2 and its uncompressed records, if their count can be true.
pub fn plain_batch(bytes: &[u8]) -> Option<(Header, &[u8])> {
    let header = Header::read(bytes)?;
    let body = bytes.get(HEADER_BYTES..header.size()?)?;
    let possible = body.len() / RECORD_MIN_BYTES;
    (header.magic == MAGIC
        && header.codec() == 0
        && usize::try_from(header.record_count).is_ok_and(|count| count <= possible))
    .then_some((header, body))
}

/// Reads records, and only such as are written as every writer does: each number in as few bytes as it takes.
pub struct Reader<'a> {
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn byte(&mut self) -> Option<u8> {
        let (first, behind) = self.rest.split_first()?;
        self.rest = behind;
        Some(*first)
    }

    pub fn varint(&mut self) -> Option<i64> {
        let mut byte = self.byte()?;
        let mut raw = u64::from(byte & 0x7f);
        let mut shift = 0;
        while byte > 0x7f {
            byte = self.byte()?;
            shift += 7;
            if byte == 0 || (shift == 63 && byte > 1) {
                return None; // a byte too many, or more than 64 bits
            }
            raw |= u64::from(byte & 0x7f) << shift;
        }
        Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    pub fn take(&mut self, count: i64) -> Option<&'a [u8]> {
        let (first, behind) = self.rest.split_at_checked(usize::try_from(count).ok()?)?;
        self.rest = behind;
        Some(first)
    }

    /// Bytes behind their length, or nothing behind -1.
    pub fn nullable(&mut self) -> Option<Option<&'a [u8]>> {
        match self.varint()? {
            -1 => Some(None),
            length => Some(Some(self.take(length)?)),
        }
    }
}

/// The checksum of bytes whose first ones have changed, by what it was before, however many follow that did not.
///
/// A checksum is a remainder, and the remainder of a difference is the difference of the remainders. So what changed
/// is looked at alone, and moved before what follows.
pub fn changed_checksum(checksum: u32, before: &[u8], after: &[u8], unchanged: usize) -> u32 {
    checksum ^ moved(crc32c::crc32c(before) ^ crc32c::crc32c(after), unchanged)
}

/// A remainder times x^8 for each of so many bytes that follow.
fn moved(remainder: u32, bytes: usize) -> u32 {
    let (mut product, mut power, mut left) = (remainder, X_TO_8, bytes);
    while left != 0 {
        if left & 1 == 1 {
            product = times(product, power);
        }
        power = times(power, power);
        left >>= 1;
    }
    product
}

/// The polynomial of CRC-32C. As in every remainder, the highest bit is the one of x^0.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const X_TO_8: u32 = 0x0080_0000;

/// The product of two remainders.
fn times(one: u32, other: u32) -> u32 {
    let (mut product, mut shifted, mut bit) = (0, other, 1 << 31);
    while bit != 0 {
        if one & bit != 0 {
            product ^= shifted;
        }
        shifted = (shifted >> 1) ^ if shifted & 1 == 0 { 0 } else { POLYNOMIAL };
        bit >>= 1;
    }
    product
}

/// Writes into memory of a fixed size.
pub struct Writer<'a> {
    out: &'a mut [u8],
    pub at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    pub fn behind_header(out: &'a mut [u8]) -> Self {
        Self { out, at: HEADER_BYTES }
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at.checked_add(bytes.len())?;
        self.out.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    pub fn varint(&mut self, value: i64) -> Option<()> {
        let mut raw = zigzag(value);
        while raw > 0x7f {
            self.bytes(&[raw.to_le_bytes()[0] | 0x80])?;
            raw >>= 7;
        }
        self.bytes(&[raw.to_le_bytes()[0]])
    }

    /// Put the header of a new plain batch before what was written, with its checksum, and return the size.
    pub fn close(self, record_count: i32, base_timestamp: i64, max_timestamp: i64) -> Option<usize> {
        let batch = self.out.get_mut(..self.at)?;
        let length = i32::try_from(self.at).ok()?.checked_sub(12)?;
        let mut header = Vec::with_capacity(HEADER_BYTES - CHECKED_FROM);
        header.extend(0_i16.to_be_bytes()); // attributes
        header.extend(record_count.checked_sub(1)?.to_be_bytes());
        header.extend(base_timestamp.to_be_bytes());
        header.extend(max_timestamp.to_be_bytes());
        header.extend([0xff; 14]); // no producer yet
        header.extend(record_count.to_be_bytes());
        batch.get_mut(CHECKED_FROM..HEADER_BYTES)?.copy_from_slice(&header);
        let crc = crc32c::crc32c(batch.get(CHECKED_FROM..)?);
        header.clear();
        header.extend(0_i64.to_be_bytes()); // base offset
        header.extend(length.to_be_bytes());
        header.extend((-1_i32).to_be_bytes()); // leader epoch
        header.extend(MAGIC.to_be_bytes());
        header.extend(crc.to_be_bytes());
        batch.get_mut(..CHECKED_FROM)?.copy_from_slice(&header);
        Some(self.at)
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

pub fn varint_bytes(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros();
    (bits as usize).div_ceil(7)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_follows_from_the_bytes_that_changed() {
        for size in [40, 41, 1_000, 70_000, 9_999_999] {
            let mut bytes: Vec<u8> = (0..size).map(|at: u32| at.to_le_bytes()[0]).collect();
            let (before, old) = (bytes[..40].to_vec(), crc32c::crc32c(&bytes));
            bytes[1] ^= 0x10;
            bytes[22..36].fill(7);
            let changed = changed_checksum(old, &before, &bytes[..40], bytes.len() - 40);
            assert_eq!(changed, crc32c::crc32c(&bytes));
        }
    }

    #[test]
    fn a_varint_is_read_as_it_was_written() {
        for value in [0, -1, 1, 63, 64, -64, -65, 1 << 20, i64::from(i32::MIN), i64::MAX, i64::MIN] {
            let mut out = [0; HEADER_BYTES + 10];
            let mut writer = Writer::behind_header(&mut out);
            assert!(writer.varint(value).is_some());
            let size = writer.at - HEADER_BYTES;
            assert_eq!(size, varint_bytes(value));
            let mut reader = Reader { rest: &out[HEADER_BYTES..HEADER_BYTES + size] };
            assert_eq!((reader.varint(), reader.rest.len()), (Some(value), 0));
        }
    }

    #[test]
    fn a_varint_that_is_cut_or_padded_or_too_long_is_none() {
        for bytes in [&[][..], &[0x80], &[0x80, 0x00], &[0xff; 9], &[0xff; 12]] {
            assert_eq!(Reader { rest: bytes }.varint(), None);
        }
        let mut longest = [0xff; 10];
        longest[9] = 2;
        assert_eq!(Reader { rest: &longest }.varint(), None);
        longest[9] = 1;
        assert_eq!(Reader { rest: &longest }.varint(), Some(i64::MIN));
    }

    #[test]
    fn a_record_count_beyond_what_the_bytes_can_hold_is_no_batch() {
        let mut batch = [0; HEADER_BYTES + 14];
        batch[11] = 49 + 14;
        batch[16] = 2;
        batch[60] = 2;
        assert!(plain_batch(&batch).is_some());
        batch[60] = 3;
        assert!(plain_batch(&batch).is_none());
        batch[57] = 0xff;
        assert!(plain_batch(&batch).is_none());
    }
}
