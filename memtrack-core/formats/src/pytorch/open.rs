//! Telling files apart, and reading each with its reader.

use super::input::{Compression, Counted, LoadOptions, Stored, peek, unpack};
use super::{LoadError, read};
use crate::load_from;
use crate::{Format, Loaded};
use memtrack_model::snapshot::Snapshot;
use std::cell::Cell;
use std::io::{BufRead, Read};

/// Reads a pickle that is in memory.
pub(crate) fn load_pickle(pickle: &[u8]) -> Result<Snapshot, LoadError> {
    read::pickle(pickle, u64::MAX, &Cell::new(pickle.len() as u64), &mut |_| {}, true)
}

/// Reads a snapshot of any kind: a recording, a pickle or JSON, packed by gzip or Zstandard or not at all.
///
/// # Errors
/// When `reader` fails, gives more than `options` allow, or gives no snapshot.
pub fn load(reader: impl Read, options: LoadOptions<'_>) -> Result<Loaded, LoadError> {
    let LoadOptions { max_input, progress, events } = options;
    let stored = Stored::default();
    let mut quiet = |_| {};
    let progress: &mut dyn FnMut(u64) = match progress {
        Some(progress) => progress,
        None => &mut quiet,
    };
    let (reader, compression) = unpack(Counted { inner: reader, count: &stored })?;
    let (head, mut reader) = peek(reader)?;
    if head.is_empty() {
        return Err(LoadError::Empty);
    }
    let loaded = |snapshot, format| Loaded { snapshot, format, compression, report: None, unproved: None };
    if head == memtrack_file::MAGIC {
        let (snapshot, report) = load_from(reader.take(max_input))?;
        return Ok(Loaded { report: Some(report), ..loaded(snapshot, Format::Recording) });
    }
    let text = head.trim_ascii_start();
    // Neither bracket is an instruction of pickle's.
    if matches!(text.first(), Some(b'{' | b'[')) || head.starts_with(b"\xef\xbb\xbf") {
        let snapshot = read::json(reader, max_input, &stored.bytes, progress, events)?;
        return Ok(loaded(snapshot, Format::Json));
    }
    let snapshot = read::pickle(&mut reader, max_input, &stored.bytes, progress, events)?;
    // A pickle says where it ends, so nothing has looked at the checksum behind it.
    let unproved = match compression {
        Compression::None => None,
        _ => reader.fill_buf().err().map(|error| error.to_string()),
    };
    Ok(Loaded { unproved, ..loaded(snapshot, Format::Pickle) })
}
