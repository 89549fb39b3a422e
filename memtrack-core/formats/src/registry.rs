//! A table of all snapshot formats, which determines how their files are recognised, named, read and written. To add a
//! format, add a file with its code and a row in this table.

use crate::pytorch::{Encoding, read};
use crate::{Compression, Format, LoadError, pytorch, recording};
use memtrack_file::ProcessChoice;
use memtrack_file::{MAGIC, ReadReport};
use memtrack_model::{NameFrames, Snapshot};
use std::cell::Cell;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

/// The uncompressed content of a file that is being read.
pub(crate) struct Input<'a> {
    pub(crate) reader: &'a mut dyn BufRead,
    pub(crate) max_bytes: u64,
    /// The number of bytes read from the file so far, before decompression.
    pub(crate) stored: &'a Cell<u64>,
    pub(crate) progress: &'a mut dyn FnMut(u64),
    /// Whether to read the events.
    pub(crate) events: bool,
    /// Whether the file is compressed as a whole.
    pub(crate) is_packed: bool,
    /// The processes of a run to read.
    pub(crate) process: &'a ProcessChoice,
}

type ReadFile = fn(Input<'_>) -> Result<(Snapshot, Option<ReadReport>), LoadError>;
type WriteFile = fn(&Snapshot, &mut dyn Write, &mut dyn NameFrames) -> io::Result<()>;

/// A row in the table of formats.
pub(crate) struct FormatRow {
    pub(crate) format: Format,
    /// The file name extensions of the format. The usual one comes first.
    pub(crate) suffixes: &'static [&'static str],
    /// Returns whether a file that starts with these bytes has this format. The rows are tried in order.
    pub(crate) begins_with: fn(&[u8]) -> bool,
    pub(crate) read: ReadFile,
    pub(crate) write: WriteFile,
}

/// All formats. Files that match no other format are read as a pickle, and the pickle reader reports the
/// error.
pub(crate) static FORMATS: [FormatRow; 3] = [
    FormatRow {
        format: Format::Recording,
        suffixes: &["memtrack"],
        begins_with: |head| head == MAGIC,
        read: |input| {
            let reader = input.reader.take(input.max_bytes);
            let packed_bytes = || if input.is_packed { input.stored.get() } else { u64::MAX };
            let (snapshot, report) = recording::load_choice(reader, input.process, &packed_bytes)?;
            Ok((snapshot, Some(report)))
        },
        write: |snapshot, output, _| recording::save_to(snapshot, output).map(|_| ()),
    },
    FormatRow {
        format: Format::Json,
        suffixes: &["json"],
        // No pickle starts with one of these brackets.
        begins_with: |head| {
            matches!(head.trim_ascii_start().first(), Some(b'{' | b'[')) || head.starts_with(b"\xef\xbb\xbf")
        },
        read: |input| {
            let snapshot =
                read::read_json(input.reader, input.max_bytes, input.stored, input.progress, input.events)?;
            Ok((snapshot, None))
        },
        write: |snapshot, output, names| write_pytorch(snapshot, output, Encoding::Json, names),
    },
    FormatRow {
        format: Format::Pickle,
        suffixes: &["pickle", "pkl"],
        begins_with: |_| true,
        read: |input| {
            let snapshot =
                read::read_pickle(input.reader, input.max_bytes, input.stored, input.progress, input.events)?;
            Ok((snapshot, None))
        },
        write: |snapshot, output, names| write_pytorch(snapshot, output, Encoding::Pickle, names),
    },
];

fn write_pytorch(
    snapshot: &Snapshot,
    output: &mut dyn Write,
    encoding: Encoding,
    names: &mut dyn NameFrames,
) -> io::Result<()> {
    if snapshot.pytorch.is_some() {
        return pytorch::write_tables(snapshot, output, encoding).map(|_| ());
    }
    pytorch::write(&pytorch::convert(snapshot, names), output, encoding).map(|_| ())
}

/// Returns the row of a format.
pub(crate) fn format_row(format: Format) -> &'static FormatRow {
    FORMATS.iter().find(|row| row.format == format).expect("every format has a row")
}

/// Returns the row for the format of a file that starts with `head`.
pub(crate) fn recognize(head: &[u8]) -> &'static FormatRow {
    FORMATS.iter().find(|row| (row.begins_with)(head)).expect("the last row accepts everything")
}

/// Lists the usual extensions for use in a sentence, such as `pickle, json or memtrack`, with `before` in
/// front of each one.
pub(crate) fn format_extensions(before: &str) -> String {
    let mut extensions = FORMATS.iter().rev().map(|row| format!("{before}{}", row.suffixes[0]));
    let last = extensions.next_back().unwrap_or_default();
    format!("{} or {last}", extensions.collect::<Vec<_>>().join(", "))
}

/// Returns the format and compression that a file's name indicates.
///
/// # Errors
/// Fails if the name is unknown. The error is a sentence that lists the possible extensions.
pub fn format_of(path: &Path) -> Result<(Format, Compression), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (name, compression) = split_compression(&name);
    let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    match format_named(suffix) {
        Some(format) => Ok((format, compression)),
        None => Err(format!(
            "the name must end in {}, followed by .gz or .zst to compress it",
            format_extensions(".")
        )),
    }
}

/// Returns the format with the file name extension `suffix`, ignoring case.
pub(crate) fn format_named(suffix: &str) -> Option<Format> {
    let is_of = |row: &&FormatRow| row.suffixes.iter().any(|known| suffix.eq_ignore_ascii_case(known));
    FORMATS.iter().find(is_of).map(|row| row.format)
}

/// Splits a file name into the name without its compression extension, and the compression.
pub fn split_compression(name: &str) -> (&str, Compression) {
    let packed = name.rsplit_once('.').and_then(|(name, end)| Some((name, Compression::named(end)?)));
    packed.unwrap_or((name, Compression::None))
}

/// Lists the formats in which a snapshot can be written: `pickle, json or memtrack`.
pub fn formats_listed() -> String {
    format_extensions("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pytorch::convert::tests::NoNames;

    #[test]
    fn names_determine_formats_and_sentences_list_them() {
        let of = |name: &str| format_of(Path::new(name));
        assert_eq!(of("a.PKL.gz"), Ok((Format::Pickle, Compression::Gzip)));
        assert_eq!(of("a.pickle.ZSTD"), Ok((Format::Pickle, Compression::Zstd)));
        assert_eq!(of("a.b.memtrack"), Ok((Format::Recording, Compression::None)));
        assert_eq!(of("json"), of("a.gz"));
        let refused =
            "the name must end in .pickle, .json or .memtrack, followed by .gz or .zst to compress it";
        assert_eq!(of("a.txt"), Err(refused.to_owned()));
        assert_eq!(formats_listed(), "pickle, json or memtrack");
    }

    #[test]
    fn files_are_recognised_by_row_that_wrote_them() {
        let mut names = NoNames;
        for row in &FORMATS {
            let mut file = Vec::new();
            (row.write)(&Snapshot::default(), &mut file, &mut names).unwrap();
            let head = &file[..8.min(file.len())];
            assert_eq!(recognize(head).format, row.format);
        }
    }
}
