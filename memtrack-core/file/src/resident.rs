//! The payload of a reading of resident memory (`RSDT`): its moment, the kernel's sums, and for each anonymous mapping the
//! lengths of its runs of pages. Most mappings have few runs.

use super::varint::{Bytes, Malformed, put};
use memtrack_model::snapshot::{Charged, MappingKind, ResidentRange, ResidentReading};

/// The maximum number of run lengths in a reading. A program with more has its remaining mappings written without pages.
pub const MAX_LENGTHS: usize = 8 << 20;
/// The maximum number of mappings in a reading. By default, Linux allows a process 65,530.
pub const MAX_RANGES: usize = 1 << 18;
/// A length takes 5 bytes at most, and a mapping 40 besides.
const _: () = assert!(MAX_LENGTHS * 5 + (MAX_RANGES + 64) * 40 <= super::chunk::MAX_RAW_BYTES);

/// No system has larger pages, and no program higher addresses, so that sums of these do not overflow.
const MAX_PAGE_BYTES: u64 = 1 << 30;
const MAX_ADDRESS: u64 = 1 << 62;

/// Appends a reading.
pub(super) fn put_reading(out: &mut Vec<u8>, reading: &ResidentReading) {
    put(out, reading.ticks);
    put(out, reading.ended_ticks.saturating_sub(reading.ticks));
    put(out, reading.page_bytes);
    reading.by_kind.iter().for_each(|bytes| put(out, *bytes));
    put(out, reading.swapped_bytes);
    put(out, u64::from(reading.charged.is_some()));
    if let Some(charged) = &reading.charged {
        put(out, charged.bytes);
        put_option(out, charged.limit_bytes);
        put(out, charged.anonymous_bytes);
        put(out, charged.file_bytes);
        put(out, charged.shared_bytes);
        put_option(out, charged.kernel_bytes);
    }
    let ranges = &reading.ranges[..reading.ranges.len().min(MAX_RANGES)];
    put(out, ranges.len() as u64);
    let (mut previous, mut room) = (0_u64, MAX_LENGTHS);
    for range in ranges {
        put(out, range.start.wrapping_sub(previous));
        put(out, range.end.saturating_sub(range.start));
        previous = range.end;
        put(out, range.resident_bytes);
        let fits = |pages: &&Vec<u32>| pages.len() <= room;
        let pages = range.pages.as_ref().filter(fits);
        put(out, u64::from(range.is_break) | u64::from(pages.is_some()) << 1);
        if let Some(pages) = pages {
            room -= pages.len();
            put(out, pages.len() as u64);
            pages.iter().for_each(|length| put(out, u64::from(*length)));
        }
    }
}

/// Reads a reading.
pub(super) fn read_reading(payload: &[u8]) -> Result<ResidentReading, Malformed> {
    let mut bytes = Bytes(payload);
    let ticks = bytes.read_number()?;
    let ended_ticks = ticks.saturating_add(bytes.read_number()?);
    let page_bytes = bytes.read_number()?;
    if !page_bytes.is_power_of_two() || page_bytes > MAX_PAGE_BYTES {
        return Err(Malformed);
    }
    let mut by_kind = [0; MappingKind::COUNT];
    for sum in &mut by_kind {
        *sum = bytes.read_number()?;
    }
    let swapped_bytes = bytes.read_number()?;
    let charged = match bytes.read_number()? {
        0 => None,
        _ => Some(Charged {
            bytes: bytes.read_number()?,
            limit_bytes: read_option(&mut bytes)?,
            anonymous_bytes: bytes.read_number()?,
            file_bytes: bytes.read_number()?,
            shared_bytes: bytes.read_number()?,
            kernel_bytes: read_option(&mut bytes)?,
        }),
    };
    // A range takes four bytes at least.
    let count = bytes.read_count(4)?;
    if count > MAX_RANGES {
        return Err(Malformed);
    }
    let mut ranges = Vec::with_capacity(count);
    let mut previous = 0_u64;
    for _ in 0..count {
        let start = previous.checked_add(bytes.read_number()?).ok_or(Malformed)?;
        let end =
            start.checked_add(bytes.read_number()?).filter(|&end| end <= MAX_ADDRESS).ok_or(Malformed)?;
        previous = end;
        let resident_bytes = bytes.read_number()?;
        let flags = bytes.read_number()?;
        let pages =
            if flags & 2 != 0 { Some(read_pages(&mut bytes, (end - start) / page_bytes)?) } else { None };
        ranges.push(ResidentRange { start, end, resident_bytes, is_break: flags & 1 != 0, pages });
    }
    bytes.expect_end()?;
    Ok(ResidentReading { ticks, ended_ticks, page_bytes, by_kind, swapped_bytes, ranges, charged })
}

/// Reads the runs of a mapping, which lie within its pages.
fn read_pages(bytes: &mut Bytes<'_>, pages: u64) -> Result<Vec<u32>, Malformed> {
    let count = bytes.read_count(1)?;
    let (mut lengths, mut sum) = (Vec::with_capacity(count), 0_u64);
    for _ in 0..count {
        let length = u32::try_from(bytes.read_number()?).map_err(|_| Malformed)?;
        sum += u64::from(length);
        lengths.push(length);
    }
    if count % 2 != 0 || sum > pages { Err(Malformed) } else { Ok(lengths) }
}

/// Appends a number that may be unknown.
fn put_option(out: &mut Vec<u8>, number: Option<u64>) {
    put(out, u64::from(number.is_some()));
    number.iter().for_each(|number| put(out, *number));
}

fn read_option(bytes: &mut Bytes<'_>) -> Result<Option<u64>, Malformed> {
    Ok(if bytes.read_number()? == 0 { None } else { Some(bytes.read_number()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> ResidentReading {
        let range = |start, end, pages: Option<Vec<u32>>| ResidentRange {
            start,
            end,
            resident_bytes: 4096,
            is_break: start == 0x1000,
            pages,
        };
        ResidentReading {
            ticks: 1 << 40,
            ended_ticks: (1 << 40) + 9,
            page_bytes: 4096,
            by_kind: [1, 2, 3, 4, 5, 6],
            swapped_bytes: 7,
            ranges: vec![
                range(0x1000, 0x9000, Some(vec![1, 1, 2, 3])),
                range(0x9000, 0xa000, None),
                range(0x7fff_0000_0000, 0x7fff_0000_1000, Some(vec![])),
            ],
            charged: Some(Charged {
                bytes: 8,
                limit_bytes: Some(9),
                kernel_bytes: None,
                ..Charged::default()
            }),
        }
    }

    #[test]
    fn a_reading_is_read_as_it_was_written() {
        for reading in [reading(), ResidentReading { charged: None, ranges: vec![], ..reading() }] {
            let mut raw = Vec::new();
            put_reading(&mut raw, &reading);
            assert_eq!(read_reading(&raw).unwrap(), reading);
            for cut in 0..raw.len() {
                assert!(read_reading(&raw[..cut]).is_err(), "cut after {cut} bytes");
            }
        }
    }

    #[test]
    fn runs_outside_their_mapping_are_refused() {
        let mut bad = reading();
        bad.ranges[0].pages = Some(vec![1, 8]);
        let mut raw = Vec::new();
        put_reading(&mut raw, &bad);
        assert!(read_reading(&raw).is_err());
    }

    #[test]
    fn pages_and_addresses_that_no_system_has_are_refused() {
        let too_high = ResidentRange { start: 1 << 61, end: (1 << 62) + 1, ..ResidentRange::default() };
        for bad in [
            ResidentReading { page_bytes: 1 << 31, ..reading() },
            ResidentReading { ranges: vec![too_high], ..reading() },
        ] {
            let mut raw = Vec::new();
            put_reading(&mut raw, &bad);
            assert!(read_reading(&raw).is_err());
        }
    }
}
