//! Reads a whole workload before any operation runs, so that an invalid workload does not lead to a partial result.

use super::operation::{Config, Operation};
use crate::memory::simulated::MAX_TOTAL_BYTES;
use crate::{AllocatorBackend, Settings, SettingsError};
use memtrack_formats::{CountingReader, InputState, unpack};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, Read};

/// The maximum length of a line, in bytes.
const MAX_LINE_BYTES: usize = 1 << 20;
/// The maximum number of streams. PyTorch creates 32 streams per priority and then reuses them, but experiments may use
/// more.
const MAX_STREAMS: u64 = 1 << 20;
/// The maximum number of devices. There is no address space for more simulated devices.
const MAX_DEVICES: u16 = 63;

/// A workload: devices and the operations on them.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The devices.
    pub config: Config,
    /// The initial settings.
    pub settings: Settings,
    /// The operations, in order, all on one thread.
    pub operations: Vec<Operation>,
    /// Hints for the author about fields and settings that are ignored.
    pub hints: Vec<String>,
}

/// The maximum number of hints.
const MAX_HINTS: usize = 10;

/// The reason a workload cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The file cannot be read.
    Io(io::Error),
    /// A line is not a valid operation. Contains the line's number, counted from 1, and the reason.
    Line(u64, String),
    /// The initial settings are invalid.
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

/// The maximum ratio of a workload's memory to the size of its file, not counting [`MEMORY_ALLOWANCE`].
const MAX_MEMORY_RATIO: u64 = 64;
/// The amount of memory that any workload may take, in bytes.
const MEMORY_ALLOWANCE: u64 = 64 << 20;
/// The memory of an operation and its entry in the table of ids, in bytes.
const OPERATION_BYTES: u64 = 2 * size_of::<Operation>() as u64;

const CONFIG_FIELDS: &[&str] = &["devices", "total_bytes", "settings", "fraction"];

#[derive(Deserialize)]
struct ConfigLine {
    op: String,
    #[serde(flatten)]
    config: Config,
}

impl Workload {
    /// Reads a workload, which may be compressed and may have at most `max_input` bytes when uncompressed.
    ///
    /// # Errors
    /// Fails when `reader` fails or a line is not a valid operation.
    pub fn read(reader: impl Read, max_input: u64) -> Result<Self, WorkloadError> {
        let count = InputState::default();
        let (reader, _) = unpack(CountingReader { inner: reader, count: &count })?;
        let mut reader = reader.take(max_input);
        let mut number = 0;
        let mut line = Vec::new();
        let mut workload: Option<Self> = None;
        // For each id, the number of the line that allocates its block.
        let mut ids: HashMap<String, u64> = HashMap::new();
        while next_line(&mut reader, &mut line, &mut number)? {
            // Check this before parsing, because a line that is cut off at the limit would only be reported as invalid
            // JSON.
            if reader.limit() == 0 {
                let why =
                    format!("it has more than {max_input} bytes; raise --max-input if that is intended");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why).into());
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let memory_bytes =
                workload.as_ref().map_or(0, |workload| workload.operations.len() as u64) * OPERATION_BYTES;
            if memory_bytes > MEMORY_ALLOWANCE.saturating_add(count.bytes().saturating_mul(MAX_MEMORY_RATIO))
            {
                let why = "it would take too much memory for its size: it repeats the same data endlessly"
                    .to_owned();
                return Err(WorkloadError::Line(number, why));
            }
            let parse_error =
                |error: serde_json::Error| WorkloadError::Line(number, format_parse_error(&error));
            match &mut workload {
                None => {
                    let first: ConfigLine = serde_json::from_slice(&line).map_err(parse_error)?;
                    let mut first = Self::from_config_line(first, number)?;
                    first.check_fields(&line, CONFIG_FIELDS, number);
                    workload = Some(first);
                }
                Some(workload) => {
                    let operation: Operation = serde_json::from_slice(&line).map_err(parse_error)?;
                    if operation.stream() > MAX_STREAMS {
                        let why = format!("streams go up to {MAX_STREAMS}, not {}", operation.stream());
                        return Err(WorkloadError::Line(number, why));
                    }
                    if let Operation::Alloc { id, .. } = &operation
                        && let Some(before) = ids.insert(id.to_string(), number)
                    {
                        let why =
                            format!("the alloc in line {before} has the id {id} already; ids must be unique");
                        return Err(WorkloadError::Line(number, why));
                    }
                    workload.check_fields(&line, operation.fields(), number);
                    workload.operations.push(operation);
                }
            }
        }
        workload.ok_or(WorkloadError::Empty)
    }

    fn from_config_line(ConfigLine { op, config }: ConfigLine, line: u64) -> Result<Self, WorkloadError> {
        let invalid = |why: String| Err(WorkloadError::Line(line, why));
        if op != "config" {
            return invalid(format!("the first operation must be config, not {op}"));
        }
        if !(1..=MAX_DEVICES).contains(&config.devices) {
            return invalid(format!("devices must be from 1 to {MAX_DEVICES}, not {}", config.devices));
        }
        if config.total_bytes > MAX_TOTAL_BYTES {
            return invalid(format!(
                "total_bytes must be at most {MAX_TOTAL_BYTES}, not {}",
                config.total_bytes
            ));
        }
        if config.fraction.is_some_and(|fraction| !(0.0..=1.0).contains(&fraction)) {
            return invalid("fraction must be from 0 to 1".into());
        }
        let settings = Settings::parse(&config.settings).map_err(WorkloadError::Settings)?;
        if settings.backend() != AllocatorBackend::Native {
            return invalid("settings: only backend:native can be simulated".into());
        }
        let hints =
            settings.warnings().iter().map(|warning| format!("line {line}: settings: {warning}")).collect();
        Ok(Self { config, settings, operations: Vec::new(), hints })
    }

    /// Adds hints about unknown fields in a line, which are ignored.
    fn check_fields(&mut self, line: &[u8], known: &[&str], number: u64) {
        // The line has already been parsed once, so this cannot fail.
        let fields: HashMap<Cow<'_, str>, IgnoredAny> = serde_json::from_slice(line).unwrap_or_default();
        if fields.len() <= 1 {
            return;
        }
        let mut unknown: Vec<_> =
            fields.into_keys().filter(|field| field != "op" && !known.contains(&field.as_ref())).collect();
        unknown.sort();
        for field in unknown {
            match self.hints.len() {
                0..MAX_HINTS => {
                    self.hints.push(format!("line {number}: the field {field:?} means nothing here"))
                }
                MAX_HINTS => self.hints.push("there are more such fields".into()),
                _ => {}
            }
        }
    }
}

/// Formats a parser error for a line, without the parser's own line number, which is always 1.
fn format_parse_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let why = text.rsplit_once(" at line ").map_or(text.as_str(), |(why, _)| why);
    match error.column() {
        0 => why.to_owned(),
        column => format!("{why} (column {column})"),
    }
}

/// Reads a line into `line` without the line break; returns `false` at the end of the input.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>, number: &mut u64) -> Result<bool, WorkloadError> {
    line.clear();
    let read = reader.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', line)?;
    *number += 1;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() >= MAX_LINE_BYTES {
        return Err(WorkloadError::Line(*number, "it is longer than 1 MiB".into()));
    }
    Ok(read > 0)
}
