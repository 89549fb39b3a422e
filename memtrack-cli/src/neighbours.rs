//! Identifies a file that a verb cannot use, so that the error can name the verbs that can.

use crate::Streams;
use crate::error::CliError;
use memtrack_core::cycles::is_graph;
use memtrack_core::profile::optrace::is_operator_trace;
use memtrack_core::snapshot::Format;
use memtrack_core::snapshot::pytorch::{Compression, unpacked_head};
use memtrack_core::snapshot::recording::MAGIC;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The number of bytes of a file that are inspected, before decompression.
const HEAD_BYTES: usize = 64 << 10;
/// The number of bytes that are inspected after decompression.
const UNPACKED_HEAD_BYTES: usize = 4096;

/// The kinds of files that users may have next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A memtrack recording.
    Recording,
    /// A PyTorch snapshot, or the same data as JSON.
    Snapshot,
    /// Statistics from PyTorch's `MemoryTracker`.
    Statistics,
    OperatorTrace,
    /// A reference graph.
    Graph,
    /// A workload of allocator requests.
    Workload,
    /// A profiler trace in the format of Chrome and Perfetto.
    ChromeTrace,
    /// Python source.
    Python,
    /// An executable or a library.
    Program,
    /// An HTML page, such as `memtrack view` writes.
    Page,
    /// A file written by `torch.save`, or another zip archive.
    Archive,
    /// An SQLite database, such as `torch.cuda.memory._dump_snapshot_sqlite` writes.
    Database,
    /// A profile from another memory profiler, with the profiler's name.
    Profile(&'static str),
    /// Text of any other kind.
    Text,
}

/// The first bytes (after decompression) of files that other memory profilers write, and the profilers' names.
const PROFILERS: [(&[u8], &str); 7] = [
    (b"memray", "memray"),
    (b"desc: ", "Valgrind's massif"),
    (b"heap_v2/", "jemalloc"),
    (b"heap profile: ", "gperftools"),
    (b"v 10", "heaptrack"),
    (b"{\"dhatFileVersion\"", "DHAT"),
    (b"PERFILE2", "perf"),
];

impl Kind {
    /// Determines the kind of a file from its first bytes, which may be compressed. Returns `None` if the kind is
    /// unknown.
    pub(crate) fn detect(path: &Path, head: &[u8]) -> Option<Self> {
        let unpacked = unpacked_head(head, UNPACKED_HEAD_BYTES);
        let text = unpacked.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&unpacked).trim_ascii_start();
        let has = |word: &str| unpacked.windows(word.len()).any(|window| window == word.as_bytes());
        let is_json = matches!(text.first(), Some(b'{' | b'['));
        let is_pickle = unpacked.starts_with(b"\x80") || unpacked.starts_with(b"(");
        // Text in any encoding has no control characters other than white space.
        let is_control = |&byte: &u8| byte < b' ' && !byte.is_ascii_whitespace();
        let is_text = !unpacked.is_empty() && !is_pickle && !unpacked.iter().any(is_control);
        let is_page = text.get(..9).is_some_and(|start| start.eq_ignore_ascii_case(b"<!doctype"))
            || text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"<html"));
        if let Some(profiler) = detect_profiler(text) {
            return Some(Self::Profile(profiler));
        }
        Some(match () {
            () if unpacked.starts_with(&MAGIC) => Self::Recording,
            () if unpacked.starts_with(b"\x7fELF") => Self::Program,
            () if unpacked.starts_with(b"PK\x03\x04") => Self::Archive,
            () if unpacked.starts_with(b"SQLite format 3\0") => Self::Database,
            () if is_page => Self::Page,
            () if is_pickle && has("memories_allocated") => Self::Statistics,
            () if is_pickle && (has("segments") || has("device_traces")) => Self::Snapshot,
            () if is_graph(&unpacked) => Self::Graph,
            () if is_operator_trace(head) => Self::OperatorTrace,
            () if is_json && has("\"traceEvents\"") => Self::ChromeTrace,
            () if is_json && has("\"op\"") => Self::Workload,
            () if is_json && (has("\"segments\"") || has("\"device_traces\"")) => Self::Snapshot,
            () if is_text && !is_json && is_python(path, text) => Self::Python,
            () if is_text && !is_json && !may_be_pickle(path) => Self::Text,
            () => return None,
        })
    }
}

/// Returns the memory profiler that wrote a file starting with `text`.
fn detect_profiler(text: &[u8]) -> Option<&'static str> {
    PROFILERS.iter().find(|(start, _)| text.starts_with(start)).map(|&(_, name)| name)
}

/// Returns whether a text file may be a pickle, judging by its path: pickles in protocol 0 are text. The pickle reader reports
/// better errors about such a file.
fn may_be_pickle(path: &Path) -> bool {
    let suffix = path.extension().unwrap_or_default().to_string_lossy();
    path == Path::new("-")
        || suffix.eq_ignore_ascii_case("p")
        || Compression::named(&suffix).is_some()
        || matches!(Format::named(&suffix), Some(Format::Pickle | Format::Recording))
}

/// Returns whether text is a Python program.
fn is_python(path: &Path, text: &[u8]) -> bool {
    let first = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let begins = |word: &str| first.starts_with(word.as_bytes());
    path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("py"))
        || begins("#!") && first.windows(6).any(|window| window == b"python")
        || begins("import ")
        || begins("from ") && first.windows(8).any(|window| window == b" import ")
}

impl Kind {
    /// Describes this kind of file and names the verbs that read it.
    fn describe(self, path: &Path) -> String {
        let name = if path == Path::new("-") { "FILE".into() } else { path.to_string_lossy() };
        match self {
            Self::Recording => "this is a recording of memtrack, for memtrack summary, top, peak, leaks, diff and view".into(),
            Self::Snapshot => "this is a PyTorch snapshot, for memtrack summary, top, peak, leaks, diff and view".into(),
            Self::Statistics => "these are statistics of PyTorch's MemoryTracker, for memtrack tracker".into(),
            Self::OperatorTrace => {
                "this is an operator trace, for memtrack categories, timeline, modules and advise".into()
            }
            Self::Graph => "this is a graph of references, for memtrack cycles".into(),
            Self::Workload => "this is a workload of allocator requests, for memtrack simulate".into(),
            Self::ChromeTrace => "this is a profiler's trace for Chrome, which contains little about \
                                  memory; memtrack export-script prints a script that writes an operator \
                                  trace of the same run"
                .into(),
            Self::Python => format!(
                "this is Python source, not a snapshot; memtrack run -- python3 {name} records the program, and \
                 torch.cuda.memory._dump_snapshot in it writes a snapshot"
            ),
            Self::Program => {
                format!("this is a program, not a recording; memtrack run -- {name} makes a recording of it")
            }
            Self::Page => {
                "this is a page for the browser, not a snapshot; memtrack reads the file that it was made from".into()
            }
            Self::Archive => "this is a zip archive, as torch.save writes for tensors, not a snapshot; \
                              torch.cuda.memory._dump_snapshot writes one"
                .into(),
            Self::Database => "this is an SQLite database, which memtrack does not read; \
                               torch.cuda.memory._dump_snapshot writes the same snapshot as a pickle"
                .into(),
            Self::Profile(profiler) => format!("this is a profile of {profiler}, which memtrack does not read"),
            Self::Text => "this is text, not a snapshot or recording".into(),
        }
    }
}

/// Returns the error for a file that a verb cannot use. If the file's kind is known and is not one of `own`, the kinds
/// that the verb reads, the error describes the file. Otherwise it is `why`, the error from the verb's reader.
pub(crate) fn unusable_file_error(
    path: &Path,
    head: &[u8],
    own: &[Kind],
    why: impl fmt::Display,
) -> CliError {
    match Kind::detect(path, head).filter(|kind| !own.contains(kind)) {
        Some(kind) => CliError::input(path, kind.describe(path)),
        None => CliError::input(path, why),
    }
}

/// Reads a file, or for `-` standard input, with `read`. If it is not one of `own`, the kinds that the verb reads, the error
/// describes it.
///
/// # Errors
/// Fails if the file cannot be read, or `read` fails.
pub(crate) fn read_file<T, E: fmt::Display + From<io::Error>>(
    path: &Path,
    own: &[Kind],
    streams: &mut Streams<'_>,
    read: impl FnOnce(&mut dyn Read) -> Result<T, E>,
) -> Result<T, CliError> {
    let (head, stdin) = open_head(path, &mut *streams.stdin)?;
    let read = match stdin {
        Some(mut stdin) => read(&mut stdin),
        None => File::open(path).map_err(E::from).and_then(|mut file| read(&mut file)),
    };
    read.map_err(|error| unusable_file_error(path, &head, own, error))
}

/// Returns the first bytes of a file, or nothing for a pipe, which cannot be read twice.
pub(crate) fn read_head(path: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    // Bytes read from a pipe here would be missing when the file is loaded.
    if path.metadata().is_ok_and(|file| file.is_file())
        && let Ok(file) = File::open(path)
    {
        let _ = file.take(HEAD_BYTES as u64).read_to_end(&mut head);
    }
    head
}

/// Returns the first bytes of an input, and for `-` a reader of the whole standard input.
///
/// # Errors
/// Fails if standard input cannot be read.
pub(crate) fn open_head<'a>(
    path: &Path,
    stdin: &'a mut dyn Read,
) -> Result<(Vec<u8>, Option<impl Read + 'a>), CliError> {
    if path != Path::new("-") {
        return Ok((read_head(path), None));
    }
    let mut head = Vec::new();
    let read = stdin.take(HEAD_BYTES as u64).read_to_end(&mut head);
    read.map_err(|error| CliError::input(path, error))?;
    Ok((head.clone(), Some(io::Cursor::new(head).chain(stdin))))
}
