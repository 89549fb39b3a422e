//! The chunks of a recording. A chunk is a 20-byte head (kind, flags, raw length, stored length, CRC-32 of everything
//! else) and a payload. The writer frames chunks with [`append`], and the reader reads them with [`read`]. Both keep the
//! same [`Budget`], so that no file written by memtrack is refused, and no other file can make the reader unpack data
//! without limit.
//!
//! **Which compression?** LZ4, chunk by chunk, by `lz4_flex` in safe Rust.

use std::io::{self, Read};

/// The maximum size of a payload, unpacked.
pub(super) const MAX_RAW_BYTES: usize = 64 << 20;
/// The size of a chunk's head.
pub(super) const HEAD_BYTES: usize = 20;
/// The flag of a payload that is an LZ4 block.
const FLAG_LZ4: u32 = 1;
/// Smaller payloads are stored uncompressed.
const MIN_COMPRESSED_BYTES: usize = 64;

/// The kind of a chunk. Readers skip unknown kinds.
pub(super) type Kind = [u8; 4];

pub(super) const META: Kind = *b"META";
pub(super) const MODULES: Kind = *b"MODS";
pub(super) const CLOCK: Kind = *b"CLOK";
pub(super) const STACKS: Kind = *b"STAK";
pub(super) const SCOPES: Kind = *b"SCOP";
pub(super) const THREADS: Kind = *b"THRD";
pub(super) const EVENTS: Kind = *b"EVNT";
pub(super) const LIVE: Kind = *b"LIVE";
pub(super) const SEGMENTS: Kind = *b"SEGM";
pub(super) const STATISTICS: Kind = *b"STAT";
/// The number and bytes of each scope's allocations.
pub(super) const SCOPE_SUMS: Kind = *b"SUMS";
pub(super) const DRIVER: Kind = *b"DRVR";
pub(super) const SAMPLING: Kind = *b"SMPL";
/// The counted peak of the host heap.
pub(super) const COUNTED_PEAK: Kind = *b"HIGH";
/// What the address space held beside the recorded blocks, as JSON.
pub(super) const ADDRESS_SPACE: Kind = *b"ADDR";
/// A reading of the process's resident memory.
pub(super) const RESIDENT: Kind = *b"RSDT";
/// The counts of data that did not fit into the recorder's tables, as JSON.
pub(super) const FOLDED: Kind = *b"FOLD";
/// The program's reports about its operators.
pub(super) const OPERATORS: Kind = *b"OPER";
/// The points in time that the program marked, with their names.
pub(super) const MARKS: Kind = *b"MARK";
/// The tasks of the program, and the places at which it makes them.
pub(super) const TASKS: Kind = *b"TASK";
/// The names of return addresses.
pub(super) const NAMES: Kind = *b"NAME";
/// The segments that are parts of expandable segments.
pub(super) const EXPANDABLE: Kind = *b"EXPD";
/// A piece of the pickle of a snapshot from PyTorch; all pieces in order are the whole pickle.
pub(super) const PYTORCH: Kind = *b"PYTR";
/// The head of a part of a recording in several files.
pub(super) const PART: Kind = *b"PART";
/// The blocks and segments that were live when the part began, encoded like [`LIVE`], [`SEGMENTS`] and
/// [`EXPANDABLE`].
pub(super) const OPENING_LIVE: Kind = *b"OLIV";
pub(super) const OPENING_SEGMENTS: Kind = *b"OSEG";
pub(super) const OPENING_EXPANDABLE: Kind = *b"OEXP";
/// The end of a part that is followed by another part.
pub(super) const NEXT: Kind = *b"NEXT";
pub(super) const DONE: Kind = *b"DONE";
/// A process of a run: its number, which may be followed by its row as JSON. The row replaces an earlier one. The chunks
/// that follow belong to this process.
pub(super) const PROCESS: Kind = *b"PROC";
/// The counts of the processes of a run that are not recorded, as JSON.
pub(super) const UNRECORDED: Kind = *b"MISS";

/// The bytes of a file so far, and their limit: a file may unpack to 16 MiB plus 32 times its stored bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    raw_bytes: u64,
    stored_bytes: u64,
}

/// A recording in a compressed file may unpack to 16 MiB plus this many times the compressed bytes.
const MAX_PACKED_RATIO: u64 = 64;

impl Budget {
    /// Returns whether the bytes so far are within the limit for a recording in a compressed file of which
    /// `packed_bytes` were read.
    pub(super) fn fits_packed(&self, packed_bytes: u64) -> bool {
        self.raw_bytes <= packed_bytes.saturating_mul(MAX_PACKED_RATIO).saturating_add(16 << 20)
    }

    /// Counts a payload; returns `false`, and counts nothing, if it would exceed the budget.
    fn try_add(&mut self, raw_bytes: usize, stored_bytes: usize) -> bool {
        let raw = self.raw_bytes + raw_bytes as u64;
        let stored = self.stored_bytes + stored_bytes as u64;
        let fits = raw <= (16 << 20) + stored * 32;
        if fits {
            *self = Self { raw_bytes: raw, stored_bytes: stored };
        }
        fits
    }
}

/// Appends a chunk to `out`, compressed if that is smaller. `raw` must not exceed [`MAX_RAW_BYTES`].
pub(super) fn append(out: &mut Vec<u8>, budget: &mut Budget, kind: Kind, raw: &[u8]) {
    debug_assert!(raw.len() <= MAX_RAW_BYTES);
    let start = out.len();
    out.resize(start + HEAD_BYTES, 0);
    let mut flags = 0;
    if raw.len() >= MIN_COMPRESSED_BYTES {
        let room = lz4_flex::block::get_maximum_output_size(raw.len());
        out.resize(start + HEAD_BYTES + room, 0);
        let packed = lz4_flex::block::compress_into(raw, &mut out[start + HEAD_BYTES..]);
        let stored = packed.unwrap_or(usize::MAX);
        if stored < raw.len() && budget.try_add(raw.len(), stored) {
            flags = FLAG_LZ4;
            out.truncate(start + HEAD_BYTES + stored);
        } else {
            out.truncate(start + HEAD_BYTES);
        }
    }
    if flags == 0 {
        out.extend_from_slice(raw);
        // An uncompressed payload always fits the budget, because it raises the limit by 32 times its size.
        budget.try_add(raw.len(), raw.len());
    }
    let stored = out.len() - start - HEAD_BYTES;
    let head = &mut out[start..start + HEAD_BYTES];
    head[0..4].copy_from_slice(&kind);
    head[4..8].copy_from_slice(&u32::to_le_bytes(flags));
    head[8..12].copy_from_slice(&u32::to_le_bytes(raw.len() as u32));
    head[12..16].copy_from_slice(&u32::to_le_bytes(stored as u32));
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head[..16]);
    crc.update(&out[start + HEAD_BYTES..]);
    out[start + 16..start + 20].copy_from_slice(&crc.finalize().to_le_bytes());
}

/// The outcome of [`read`].
pub(super) enum ReadOutcome {
    /// A complete chunk; its payload is in the caller's buffer.
    Chunk(Kind),
    /// The file ended where a chunk could have begun.
    End,
    /// The file ended inside the chunk.
    Cut,
    /// The chunk is damaged.
    Damaged,
}

/// Reads the next chunk and unpacks its payload into `raw`. `position` advances by the bytes read from `input`, even
/// if the chunk is damaged.
pub(super) fn read(
    input: &mut impl Read,
    position: &mut u64,
    budget: &mut Budget,
    raw: &mut Vec<u8>,
) -> io::Result<ReadOutcome> {
    read_if(input, position, budget, raw, |_| true)
}

/// Reads the next chunk like [`read`] if its kind is `wanted`. Any other chunk is only checked, and its payload is empty.
pub(super) fn read_if(
    input: &mut impl Read,
    position: &mut u64,
    budget: &mut Budget,
    raw: &mut Vec<u8>,
    wanted: impl FnOnce(Kind) -> bool,
) -> io::Result<ReadOutcome> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    input.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    *position += head.len() as u64;
    if head.is_empty() {
        return Ok(ReadOutcome::End);
    }
    let Ok(head) = <[u8; HEAD_BYTES]>::try_from(head) else { return Ok(ReadOutcome::Cut) };
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (flags, raw_bytes, stored_bytes) = (word(4), word(8) as usize, word(12) as usize);
    // Compression is used only if it helps, so no stored payload is longer than the raw payload.
    let plausible = raw_bytes <= MAX_RAW_BYTES
        && if flags == FLAG_LZ4 { stored_bytes < raw_bytes } else { flags == 0 && stored_bytes == raw_bytes };
    if !plausible {
        return Ok(ReadOutcome::Damaged);
    }
    let kind = [head[0], head[1], head[2], head[3]];
    // The buffer grows with the bytes that exist, not with the declared length.
    let mut stored = Vec::new();
    input.by_ref().take(stored_bytes as u64).read_to_end(&mut stored)?;
    *position += stored.len() as u64;
    if stored.len() < stored_bytes {
        return Ok(ReadOutcome::Cut);
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head[..16]);
    crc.update(&stored);
    if crc.finalize() != word(16) || !budget.try_add(raw_bytes, stored_bytes) {
        return Ok(ReadOutcome::Damaged);
    }
    if !wanted(kind) {
        raw.clear();
    } else if flags == FLAG_LZ4 {
        raw.clear();
        raw.resize(raw_bytes, 0);
        if lz4_flex::block::decompress_into(&stored, raw).ok() != Some(raw_bytes) {
            return Ok(ReadOutcome::Damaged);
        }
    } else {
        *raw = stored;
    }
    Ok(ReadOutcome::Chunk(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(bytes: &[u8]) -> (ReadOutcome, Vec<u8>) {
        let mut raw = Vec::new();
        let found = read(&mut &*bytes, &mut 0, &mut Budget::default(), &mut raw).unwrap();
        (found, raw)
    }

    #[test]
    fn compressible_and_incompressible_payloads_are_read_back() {
        let noise: Vec<u8> = (0..500u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for payload in [vec![], vec![7; 10], vec![7; 100_000], noise] {
            let mut out = Vec::new();
            append(&mut out, &mut Budget::default(), META, &payload);
            let (found, raw) = read_back(&out);
            assert!(matches!(found, ReadOutcome::Chunk(META)));
            assert_eq!(raw, payload);
        }
    }

    #[test]
    fn zeros_beyond_budget_are_stored_uncompressed_and_refused_when_packed() {
        let mut budget = Budget::default();
        let zeros = vec![0; 12 << 20];
        let mut out = Vec::new();
        append(&mut out, &mut budget, META, &zeros);
        let packed = out.len();
        append(&mut out, &mut budget, META, &zeros);
        assert!(packed < 100_000 && out.len() > zeros.len());

        // Two packed chunks, each within the budget, together unpack to more than such a small file may.
        let mut bomb = Vec::new();
        append(&mut bomb, &mut Budget::default(), META, &zeros);
        append(&mut bomb, &mut Budget::default(), META, &zeros);
        let (mut input, mut budget, mut raw) = (&bomb[..], Budget::default(), Vec::new());
        assert!(matches!(read(&mut input, &mut 0, &mut budget, &mut raw).unwrap(), ReadOutcome::Chunk(META)));
        assert!(matches!(read(&mut input, &mut 0, &mut budget, &mut raw).unwrap(), ReadOutcome::Damaged));
    }
}
