//! Finds the largest parts of the memory at the peak, and determines whether the program uses several devices.

use super::lines::{CodeLine, program_frame};
use super::uses::Memory;
use super::{Advice, PeakPart};
use crate::curve::State;
use crate::names::Names;
use foldhash::fast::RandomState;
use memtrack_blocks::estimate::Sum;
use memtrack_model::optrace::{OperatorTrace, RecordKind};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Returns the lines that hold the most memory in a state. Where the line is unknown, the operator takes its
/// place.
pub(super) fn largest_parts(memory: &Memory<'_>, state: State) -> Vec<PeakPart> {
    let trace = memory.profile.trace();
    let mut names = Names::of(memory.profile, &memory.places);
    let mut parts: HashMap<String, (u64, Sum), RandomState> = HashMap::default();
    let (mut total, mut blocks) = (0_u64, Sum::default());
    for piece in memory.pieces_live_in(state) {
        let line = piece
            .allocated_by
            .and_then(|record| program_frame(trace, record))
            .map(|frame| CodeLine::of(trace, frame));
        let name = match line {
            Some(CodeLine { file, line: 0, function }) => format!("{file} {function}"),
            Some(CodeLine { file, line, function }) => format!("{file}:{line} {function}"),
            None => names.operator(piece.allocated_by),
        };
        let (bytes, sum) = parts.entry(name).or_default();
        *bytes = bytes.saturating_add(piece.bytes);
        total = total.saturating_add(piece.bytes);
        piece.add_to(memory.profile, sum, &mut blocks);
    }
    let part = |(name, (bytes, sum)): (String, (u64, Sum))| PeakPart {
        name,
        bytes,
        error: memory.estimate_error(bytes, &sum),
        share: bytes as f64 / total.max(1) as f64,
    };
    let mut parts: Vec<PeakPart> = parts.into_iter().map(part).collect();
    parts.sort_by(|a, b| (Reverse(a.bytes), &a.name).cmp(&(Reverse(b.bytes), &b.name)));
    parts.truncate(Advice::MAX_LARGEST);
    parts
}

/// Returns whether the program uses several accelerators, i.e. whether it has memory on more than one or
/// communicates with other processes.
pub(super) fn has_several_devices(trace: &OperatorTrace) -> bool {
    let accelerators = trace.devices.iter().filter(|name| name.contains(':')).count();
    let talks = |name: &str| {
        name.starts_with("c10d::") || name.starts_with("nccl:") || name.starts_with("_c10d_functional::")
    };
    let mut operators = trace.records.iter().filter_map(|record| match &record.what {
        RecordKind::Op(op) => Some(op.name),
        _ => None,
    });
    accelerators > 1 || operators.any(|name| talks(&trace.strings.get(name)))
}
