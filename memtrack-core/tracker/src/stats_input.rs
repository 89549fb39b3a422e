//! Reads the pickle from a statistics file, compressed or not. If the file is of another kind, the error names that
//! kind and the commands that read it.

use super::StatsError;
use memtrack_formats::document::{self, Document};
use memtrack_formats::{CountingReader, InputState, unpack};
use std::io::{Cursor, Read};

pub(super) fn read_pickle(reader: impl Read) -> Result<Document, StatsError> {
    let stored = InputState::default();
    let (mut reader, _) = unpack(CountingReader { inner: reader, count: &stored })?;
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
    let document = document::load(reader, &stored)?;
    if ["segments", "device_traces"].iter().any(|key| document.root().get(key).is_some()) {
        let snapshot =
            "this is a memory snapshot, not a tracker's statistics; use `memtrack summary`, `peak` or `top`";
        return Err(StatsError::Shape(snapshot.into()));
    }
    Ok(document)
}
