//! The lines of the program that requested memory.

use super::uses::Memory;
use super::{Advice, PeakPart};
use crate::curve::State;
use crate::names::Names;
use foldhash::HashMap;
use memtrack_blocks::estimate::Sum;
use memtrack_model::answer::FrameAnswer;
use memtrack_model::optrace::{OperatorTrace, RecordId, RecordKind, TraceFrame};
use memtrack_model::paths::with_slashes;
use std::cmp::Reverse;

/// A line of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLine {
    /// The file's path.
    pub file: String,
    /// The line number. In traces from PyTorch's profiler, this is the first line of the function.
    pub line: u32,
    /// The function's name.
    pub function: String,
}

memtrack_model::serialize_as!(CodeLine => FrameAnswer: |line| FrameAnswer {
    function: Some(line.function.clone()),
    file: Some(line.file.clone()),
    line: Some(line.line),
    address: None,
});

/// Path fragments that identify files outside the program: those of PyTorch, installed packages and Rust.
const EXTERNAL_PATHS: [&str; 9] = [
    "/torch/",
    "site-packages/",
    "dist-packages/",
    "/lib/python",
    "<frozen ",
    "/.cargo/registry/",
    "/.cargo/git/",
    "/rustc/",
    "/rustlib/",
];

/// Returns the innermost frame that belongs to the program's own code. The frame comes from the record's stack
/// or, failing that, from the stack of the innermost enclosing record that has such a frame.
pub(super) fn program_frame(trace: &OperatorTrace, record: RecordId) -> Option<TraceFrame> {
    let mut next = Some(record);
    while let Some(number) = next {
        let record = &trace.records[number as usize];
        let stack = match &record.what {
            RecordKind::Memory(memory) => memory.stack,
            RecordKind::Op(op) => op.stack,
            _ => None,
        };
        let frames = stack.and_then(|stack| trace.stacks.get(stack as usize));
        if let Some(frame) =
            frames.and_then(|frames| frames.iter().find(|frame| is_program_code(trace, frame)))
        {
            return Some(*frame);
        }
        next = record.parent;
    }
    None
}

fn is_program_code(trace: &OperatorTrace, frame: &TraceFrame) -> bool {
    let file = trace.strings.get(frame.file);
    let file = with_slashes(&file);
    !file.is_empty()
        && !file.starts_with("torch/")
        && !file.starts_with("<built-in")
        && !EXTERNAL_PATHS.iter().any(|part| file.contains(part))
}

impl CodeLine {
    /// Returns the file and, if it is known, the number of the line.
    pub(super) fn place(&self) -> String {
        if self.line == 0 { self.file.clone() } else { format!("{}:{}", self.file, self.line) }
    }

    pub(super) fn of(trace: &OperatorTrace, frame: TraceFrame) -> Self {
        let text = |id| trace.strings.get(id).into_owned();
        Self { file: text(frame.file), line: frame.line, function: text(frame.name) }
    }
}

/// Returns the lines that hold the most memory in a state. Where the line is unknown, the operator takes its
/// place.
pub(super) fn largest_parts(memory: &Memory<'_>, state: State) -> Vec<PeakPart> {
    let trace = memory.profile.trace();
    let mut names = Names::of(memory.profile, &memory.places);
    let mut parts: HashMap<String, (u64, Sum)> = HashMap::default();
    let (mut total, mut blocks) = (0_u64, Sum::default());
    for piece in memory.pieces_live_in(state) {
        let frame = piece.allocated_by.and_then(|record| program_frame(trace, record));
        let name = match frame.map(|frame| CodeLine::of(trace, frame)) {
            Some(line) => format!("{} {}", line.place(), line.function),
            None => names.operator(piece.allocated_by),
        };
        let (bytes, sum) = parts.entry(name).or_default();
        *bytes = bytes.saturating_add(piece.bytes);
        total = total.saturating_add(piece.bytes);
        piece.add_to(memory.profile, sum, &mut blocks);
    }
    let part = |(name, (bytes, sum)): (String, (u64, Sum))| PeakPart {
        name,
        requested_bytes: bytes,
        requested_bytes_error: memory.estimate_error(bytes, &sum),
        share: bytes as f64 / total.max(1) as f64,
    };
    let mut parts: Vec<PeakPart> = parts.into_iter().map(part).collect();
    parts.sort_by(|a, b| (Reverse(a.requested_bytes), &a.name).cmp(&(Reverse(b.requested_bytes), &b.name)));
    parts.truncate(Advice::MAX_LARGEST);
    parts
}
