//! Telling files apart, and reading each with its reader.

use super::input::{Compression, Counted, LoadOptions, Stored, peek, unpack};
use super::{LoadError, read};
use crate::Loaded;
use crate::registry::{FORMATS, Input};
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
    let row = FORMATS.iter().find(|row| (row.begins_with)(&head)).expect("the last row takes all");
    let input = Input { reader: &mut reader, max_bytes: max_input, stored: &stored.bytes, progress, events };
    let (snapshot, report) = (row.read)(input)?;
    // A pickle says where it ends, so nothing has looked at the checksum behind it.
    let unproved = match compression {
        Compression::None => None,
        _ => reader.fill_buf().err().map(|error| error.to_string()),
    };
    Ok(Loaded { snapshot, format: row.format, compression, report, unproved })
}
