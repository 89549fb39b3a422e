//! The phase of a training step that each record is in.

use foldhash::fast::RandomState;
use memtrack_model::optrace::{OperatorTrace, TracePhase};
use std::collections::HashMap;

/// The phase of each record: what it says itself, else that of the record it is inside of, else that of the innermost record
/// on its thread that says one and has not ended: PyTorch's annotation of an optimizer's step is beside the operators that
/// run in it, not around them.
pub(crate) fn phases(trace: &OperatorTrace) -> Vec<TracePhase> {
    let mut phases: Vec<TracePhase> = Vec::with_capacity(trace.records.len());
    let mut open: HashMap<u64, Vec<(i64, TracePhase)>, RandomState> = HashMap::default();
    for record in &trace.records {
        let mut phase = record.phase;
        if phase == TracePhase::Inherited {
            phase = record.parent.map_or(TracePhase::Inherited, |parent| phases[parent as usize]);
        }
        if phase == TracePhase::Inherited
            && let Some(open) = open.get_mut(&record.thread)
        {
            while open.last().is_some_and(|&(end_ns, _)| end_ns < record.time_ns) {
                open.pop();
            }
            phase = open.last().map_or(TracePhase::Inherited, |&(_, phase)| phase);
        }
        if let (TracePhase::Of(_) | TracePhase::Other, Some(end_ns)) = (record.phase, record.end_ns) {
            open.entry(record.thread).or_default().push((end_ns, record.phase));
        }
        phases.push(phase);
    }
    phases
}
