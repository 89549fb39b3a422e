//! Reading a workload: all of it before anything runs, so that an unreadable one does not give half a result.

use super::operation::{Config, Operation};
use crate::memory::simulated::MAX_TOTAL;
use crate::{AllocatorBackend, Settings, SettingsError};
use memtrack_formats::{Counted, Stored, unpack};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, Read};

/// No sensible line is longer.
const LONGEST_LINE: usize = 1 << 20;
/// PyTorch creates 32 streams of a kind and then reuses them; this allows more for experiments.
const MOST_STREAMS: u64 = 1 << 20;
/// As many devices have an address space.
const MOST_DEVICES: u16 = 63;

/// A workload: devices and what is done to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The devices.
    pub config: Config,
    /// The settings at the start.
    pub settings: Settings,
    /// The operations, in order, of one thread.
    pub operations: Vec<Operation>,
    /// Warnings about what was ignored, for the author.
    pub hints: Vec<String>,
}

/// More of one kind say nothing more.
const MOST_HINTS: usize = 10;

/// Why a workload cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The file cannot be read.
    Io(io::Error),
    /// A line, counted from 1, is not a valid operation.
    Line(u64, String),
    /// The settings at the start are wrong.
    Settings(SettingsError),
    /// The file is empty.
    Empty,
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Line(line, why) => write!(f, "line {line}: {why}"),
            Self::Settings(error) => write!(f, "line 1: settings: {error}"),
            Self::Empty => {
                f.write_str("it is empty; the first line must be {\"op\":\"config\",\"total_bytes\":…}")
            }
        }
    }
}

impl std::error::Error for WorkloadError {}

impl From<io::Error> for WorkloadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A workload may take so many times the size of its file in memory, and so many bytes more.
const MOST_HELD: u64 = 64;
const HELD_ANYWAY: u64 = 64 << 20;
/// Bytes of an operation, with its place in the table of ids.
const HELD_BY_OPERATION: u64 = 2 * size_of::<Operation>() as u64;

const CONFIG_FIELDS: &[&str] = &["devices", "total_bytes", "settings", "fraction"];

#[derive(Deserialize)]
struct First {
    op: String,
    #[serde(flatten)]
    config: Config,
}

impl Workload {
    /// Reads a workload, compressed or not, of at most `max_input` bytes uncompressed.
    ///
    /// # Errors
    /// When it cannot be read or a line is not a valid operation.
    pub fn read(reader: impl Read, max_input: u64) -> Result<Self, WorkloadError> {
        let count = Stored::default();
        let (reader, _) = unpack(Counted { inner: reader, count: &count })?;
        let mut reader = reader.take(max_input);
        let mut number = 0;
        let mut line = Vec::new();
        let mut workload: Option<Self> = None;
        // By the line of its alloc.
        let mut ids: HashMap<String, u64> = HashMap::new();
        while next_line(&mut reader, &mut line, &mut number)? {
            // Looked at first: a line that was cut there would only be bad JSON.
            if reader.limit() == 0 {
                let why =
                    format!("it has more than {max_input} bytes; raise --max-input if that is intended");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why).into());
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let held =
                workload.as_ref().map_or(0, |workload| workload.operations.len() as u64) * HELD_BY_OPERATION;
            if held > HELD_ANYWAY.saturating_add(count.bytes().saturating_mul(MOST_HELD)) {
                let why = "it would take too much memory for its size: it repeats the same data endlessly"
                    .to_owned();
                return Err(WorkloadError::Line(number, why));
            }
            let wrong = |error: serde_json::Error| WorkloadError::Line(number, without_line(&error));
            match &mut workload {
                None => {
                    let first: First = serde_json::from_slice(&line).map_err(wrong)?;
                    let mut first = Self::of_first(first, number)?;
                    first.check_fields(&line, CONFIG_FIELDS, number);
                    workload = Some(first);
                }
                Some(workload) => {
                    let operation: Operation = serde_json::from_slice(&line).map_err(wrong)?;
                    if operation.stream() > MOST_STREAMS {
                        let why = format!("streams go up to {MOST_STREAMS}, not {}", operation.stream());
                        return Err(WorkloadError::Line(number, why));
                    }
                    if let Operation::Alloc { id, .. } = &operation
                        && let Some(before) = ids.insert(id.to_string(), number)
                    {
                        let why =
                            format!("the id {id} is that of the alloc in line {before}; each needs its own");
                        return Err(WorkloadError::Line(number, why));
                    }
                    workload.check_fields(&line, operation.fields(), number);
                    workload.operations.push(operation);
                }
            }
        }
        workload.ok_or(WorkloadError::Empty)
    }

    fn of_first(First { op, config }: First, line: u64) -> Result<Self, WorkloadError> {
        let refuse = |why: String| Err(WorkloadError::Line(line, why));
        if op != "config" {
            return refuse(format!("the first operation must be config, not {op}"));
        }
        if !(1..=MOST_DEVICES).contains(&config.devices) {
            return refuse(format!("devices must be from 1 to {MOST_DEVICES}, not {}", config.devices));
        }
        if config.total_bytes > MAX_TOTAL {
            return refuse(format!("total_bytes must be at most {MAX_TOTAL}, not {}", config.total_bytes));
        }
        if config.fraction.is_some_and(|fraction| !(0.0..=1.0).contains(&fraction)) {
            return refuse("fraction must be from 0 to 1".into());
        }
        let settings = Settings::parse(&config.settings).map_err(WorkloadError::Settings)?;
        if settings.backend() != AllocatorBackend::Native {
            return refuse("settings: only backend:native can be simulated".into());
        }
        let hints =
            settings.warnings().iter().map(|warning| format!("line {line}: settings: {warning}")).collect();
        Ok(Self { config, settings, operations: Vec::new(), hints })
    }

    /// Notes the fields of a line that mean nothing.
    fn check_fields(&mut self, line: &[u8], known: &[&str], number: u64) {
        // It was read before, so that this cannot fail.
        let fields: HashMap<Cow<'_, str>, IgnoredAny> = serde_json::from_slice(line).unwrap_or_default();
        if fields.len() <= 1 {
            return;
        }
        let mut unknown: Vec<_> =
            fields.into_keys().filter(|field| field != "op" && !known.contains(&field.as_ref())).collect();
        unknown.sort();
        for field in unknown {
            match self.hints.len() {
                0..MOST_HINTS => {
                    self.hints.push(format!("line {number}: the field {field:?} means nothing here"))
                }
                MOST_HINTS => self.hints.push("there are more such fields".into()),
                _ => {}
            }
        }
    }
}

/// What a parser says of one line, without telling that it is the first.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let why = text.rsplit_once(" at line ").map_or(text.as_str(), |(why, _)| why);
    match error.column() {
        0 => why.to_owned(),
        column => format!("{why} (column {column})"),
    }
}

/// Reads a line, without its end, into `line`; `false` at the end of the input.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>, number: &mut u64) -> Result<bool, WorkloadError> {
    line.clear();
    let read = reader.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', line)?;
    *number += 1;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() >= LONGEST_LINE {
        return Err(WorkloadError::Line(*number, "it is longer than 1 MiB".into()));
    }
    Ok(read > 0)
}
