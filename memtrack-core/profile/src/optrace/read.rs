//! Reads operator traces line by line.
//!
//! **Which kinds of damage are errors?** Only those that leave the meaning ambiguous: a line that is not
//! JSON, an id with two definitions, or records that contain each other in a cycle. The specification treats
//! lines that are out of order, repeated or missing as errors in both modes. However, crashes and full disks
//! leave such files behind, and the memory in them can still be analysed. They are therefore repaired, and
//! each repair is counted. `--compat` rejects all damage.

use super::error::TraceError;
use super::line::{KindLine, TraceLine};
use super::resolve::Builder;
use crate::repairs::{Repair, Repairs};
use memtrack_formats::{CountingReader, InputState, unpack};
use memtrack_model::optrace::{Header, OperatorTrace};
use std::io::{self, BufRead, Read};

/// The way in which incomplete and contradictory traces are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Repairs damage where possible and counts the repairs. Also uses information in the trace that
    /// PyTorch's analysis ignores.
    #[default]
    Tolerant,
    /// Behaves exactly like PyTorch, including its errors.
    Compat,
}

/// A trace that has been read, and the repairs made in the process.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReadTrace {
    /// The trace.
    pub trace: OperatorTrace,
    /// The repairs, which are empty in [`Mode::Compat`].
    pub repairs: Repairs,
}

impl From<OperatorTrace> for ReadTrace {
    /// Wraps a trace that did not need any repairs.
    fn from(trace: OperatorTrace) -> Self {
        Self { trace, ..Self::default() }
    }
}

/// The maximum length of a line in bytes. In practice, optimizers have the longest lines, at about 100 bytes
/// per parameter.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// The maximum ratio of a file's decompressed size to its compressed size, not counting a fixed allowance.
/// Real traces reach a ratio of 20.
const MAX_UNPACKED_RATIO: u64 = 200;
const UNPACKED_ALLOWANCE: u64 = 16 << 20;

/// The maximum ratio of a trace's size in memory to its file size, not counting a fixed allowance. A typical
/// ratio is 15.
const MAX_MEMORY_RATIO: u64 = 100;
const MEMORY_ALLOWANCE: u64 = 64 << 20;

/// Reads a trace, compressed or not, that is at most `max_input` bytes long after decompression.
///
/// # Errors
///
/// Fails if the input is not an operator trace of version 1, is larger than allowed, or is contradictory. A
/// trace is contradictory if a line is not JSON, a handle or id has two definitions, or records enclose each
/// other in a cycle. [`Mode::Compat`] also rejects damage that [`Mode::Tolerant`] repairs (see docs/FILES.md
/// in the repository).
pub fn read(input: impl Read, mode: Mode, max_input: u64) -> Result<ReadTrace, TraceError> {
    let count = InputState::default();
    let (reader, _) = unpack(CountingReader { inner: input, count: &count })?;
    let mut lines = Lines {
        reader,
        line: Vec::new(),
        number: 0,
        remaining_bytes: max_input,
        unpacked: 0,
        stored: &count,
    };
    let mut memory_bytes = 0_u64;
    if !lines.next(mode)? {
        return Err(TraceError::Empty);
    }
    let header = read_header(&lines)?;
    let first = lines.line.clone();
    let mut builder = Builder::new(header, mode);
    let mut footer = None;
    let mut records = 0;
    while lines.next(mode)? {
        let number = lines.number;
        let line = match parse_line(lines.line.trim_ascii_end()) {
            Ok(Some(line)) => line,
            Ok(None) => {
                records += 1;
                continue;
            }
            Err(_) if lines.is_incomplete() => {
                if mode == Mode::Compat {
                    return Err(TraceError::Cut);
                }
                footer = None;
                break;
            }
            Err(what) => return Err(TraceError::Line(number, what)),
        };
        if mode == Mode::Compat && footer.is_some() {
            return Err(TraceError::Line(number, "a record after the footer".into()));
        }
        match &*line.ev.0 {
            "header" if mode == Mode::Tolerant && lines.line == first => {
                builder.repairs.add(Repair::RepeatedLines, 1);
            }
            "header" => {
                let what = "a second header: a file holds one trace";
                return Err(TraceError::Line(number, what.into()));
            }
            "footer" => {
                if footer.is_some() {
                    builder.repairs.add(Repair::RepeatedLines, 1);
                }
                footer = Some((line.records, line.dropped.unwrap_or(0)));
            }
            _ => {
                records += 1;
                memory_bytes = memory_bytes.saturating_add(line.memory_bytes());
                if memory_bytes
                    > MEMORY_ALLOWANCE.saturating_add(MAX_MEMORY_RATIO.saturating_mul(count.bytes()))
                {
                    let what = "the trace would take too much memory for its size: it repeats the same data endlessly";
                    return Err(TraceError::Line(number, what.into()));
                }
                builder.add(&line, &lines.line).map_err(|what| TraceError::Line(number, what))?;
            }
        }
    }
    let records = records - builder.repeated_records();
    match footer {
        Some((counted, dropped)) => {
            let missing = counted.map_or(0, |counted| counted.abs_diff(records));
            if mode == Mode::Compat && missing > 0 {
                return Err(TraceError::Cut);
            }
            builder.repairs.add(Repair::MissingRecords, missing);
            builder.repairs.add(Repair::DroppedRecords, dropped);
        }
        None if mode == Mode::Compat => return Err(TraceError::Cut),
        None => builder.repairs.add(Repair::Cut, 1),
    }
    builder.finish()
}

/// The non-empty lines of a file.
struct Lines<'a, R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
    remaining_bytes: u64,
    unpacked: u64,
    stored: &'a InputState,
}

impl<R: BufRead> Lines<'_, R> {
    /// Reads the next line into `line`. Returns `false` at the end of the file.
    fn next(&mut self, mode: Mode) -> Result<bool, TraceError> {
        loop {
            self.line.clear();
            self.number += 1;
            let max_bytes = MAX_LINE_BYTES.min(self.remaining_bytes);
            let read = self.reader.by_ref().take(max_bytes).read_until(b'\n', &mut self.line);
            match read {
                Ok(_) => {}
                // The compressed data is truncated, so use what has been read so far.
                Err(error)
                    if mode == Mode::Tolerant
                        && error.kind() == io::ErrorKind::InvalidData
                        && self.number > 1 =>
                {
                    if self.line.ends_with(b"\n") {
                        self.line.pop();
                    }
                }
                Err(error) => return Err(error.into()),
            }
            let length = self.line.len() as u64;
            if length == max_bytes && !self.line.ends_with(b"\n") && max_bytes > 0 {
                let what = if max_bytes == MAX_LINE_BYTES {
                    format!("longer than {} MiB", MAX_LINE_BYTES >> 20)
                } else {
                    "the trace is larger than --max-input allows".to_owned()
                };
                return Err(TraceError::Line(self.number, what));
            }
            self.remaining_bytes -= length;
            self.unpacked += length;
            if self.unpacked
                > UNPACKED_ALLOWANCE.saturating_add(MAX_UNPACKED_RATIO.saturating_mul(self.stored.bytes()))
            {
                let what = format!("the file unpacks to more than {MAX_UNPACKED_RATIO} times its size");
                return Err(TraceError::Line(self.number, what));
            }
            if length == 0 {
                if self.remaining_bytes == 0 && !self.reader.fill_buf()?.is_empty() {
                    let what = "the trace is larger than --max-input allows".to_owned();
                    return Err(TraceError::Line(self.number, what));
                }
                return Ok(false);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    /// Returns whether the file ends in the middle of the current line.
    fn is_incomplete(&self) -> bool {
        !self.line.ends_with(b"\n")
    }
}

/// Parses a line. Returns `None` if its kind is unknown.
fn parse_line(line: &[u8]) -> Result<Option<TraceLine<'_>>, String> {
    serde_json::from_slice::<TraceLine<'_>>(line).map(Some).or_else(|error| {
        let kind = serde_json::from_slice::<KindLine<'_>>(line);
        match kind {
            Ok(kind) if !is_known(&kind.ev.0) => Ok(None),
            _ => Err(format_json_error(&error)),
        }
    })
}

fn is_known(kind: &str) -> bool {
    const KNOWN: [&str; 13] = [
        "header",
        "tensor",
        "op",
        "end",
        "alloc",
        "free",
        "module",
        "optimizer",
        "grad",
        "mark",
        "stack",
        "dtype",
        "footer",
    ];
    KNOWN.contains(&kind)
}

/// Formats a JSON error, including its column in the line.
fn format_json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
    let kind = if error.is_data() { "" } else { "this is not JSON: " };
    format!("column {}: {kind}{what}", error.column())
}

fn read_header(lines: &Lines<'_, impl BufRead>) -> Result<Header, TraceError> {
    let Ok(Some(line)) = parse_line(&lines.line) else { return Err(TraceError::NoHeader) };
    if line.ev.0 != "header" || line.format.is_none_or(|format| format.0 != "memtrack-optrace") {
        return Err(TraceError::NoHeader);
    }
    match line.version {
        Some(serde_json::Value::Number(number)) if number.as_u64() == Some(1) => {}
        Some(other) => return Err(TraceError::Version(other.to_string().chars().take(40).collect())),
        None => return Err(TraceError::NoHeader),
    }
    let producer = line.producer.unwrap_or_default();
    Ok(Header {
        unix_time: line.time.is_none_or(|time| time.0 == "unix_ns"),
        producer: (producer.name, producer.version),
        pid: line.pid,
        host: line.host,
        rank: line.rank,
        devices: line.devices.unwrap_or_default(),
        partial: line.partial.unwrap_or(false),
    })
}
