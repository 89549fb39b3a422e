//! Reads the pickle from a statistics file, compressed or not. If the file is of another kind, the error names that
//! kind and the commands that read it.

use super::StatsError;
use memtrack_formats::pickle::{Document, Global, Limits, Value, load};
use memtrack_formats::{Compression, CountingReader, InputState, unpack};
use std::io::{Cursor, Read};

/// The highest ratio of unpacked to stored size that the limits allow for.
pub(super) const MAX_COMPRESSION_RATIO: u64 = 8;

/// Reads the pickle within the limits that apply to its compression.
pub(super) fn read_pickle(
    reader: impl Read,
    limits: impl FnOnce(Compression) -> Limits,
) -> Result<Document, StatsError> {
    let stored = InputState::default();
    let (mut reader, compression) = unpack(CountingReader { inner: reader, count: &stored })?;
    let mut head = Vec::with_capacity(8);
    reader.by_ref().take(8).read_to_end(&mut head)?;
    let other = match head[..] {
        [] => Some("the file is empty"),
        _ if head == b"MEMTRACK" => {
            Some("this is a recording, not a tracker's statistics; use `memtrack top`")
        }
        // Neither `{` nor `[` is a pickle opcode.
        [b'{' | b'[', ..] => Some(
            "this is JSON, not a tracker's statistics; if it is a memory snapshot, use `memtrack summary`",
        ),
        _ => None,
    };
    if let Some(other) = other {
        return Err(StatsError::Shape(other.into()));
    }
    let reader = Cursor::new(head).chain(reader);
    let document = load(reader, &[Global::DefaultDict, Global::Int], limits(compression))?;
    if let Value::Dict(root) = document.root
        && ["segments", "device_traces"].iter().any(|key| document.get(root, key).is_some())
    {
        let snapshot =
            "this is a memory snapshot, not a tracker's statistics; use `memtrack summary`, `peak` or `top`";
        return Err(StatsError::Shape(snapshot.into()));
    }
    Ok(document)
}
