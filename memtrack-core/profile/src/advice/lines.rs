//! The line of the program that requested memory.

use memtrack_model::optrace::{OperatorTrace, RecordId, RecordKind, TraceFrame};
use memtrack_model::paths::with_slashes;

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
    pub(super) fn of(trace: &OperatorTrace, frame: TraceFrame) -> Self {
        let text = |id| trace.strings.get(id).into_owned();
        Self { file: text(frame.file), line: frame.line, function: text(frame.name) }
    }
}
