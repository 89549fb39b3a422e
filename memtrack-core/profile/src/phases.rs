//! Determines the phase of the training step in which each record runs.

use foldhash::HashMap;
use memtrack_model::optrace::{OperatorTrace, TracePhase};

/// Returns the phase of each record. This is the phase that the record itself states, or else the enclosing
/// record's phase, or else the phase of the innermost unfinished record on the same thread that states one.
/// The last case is needed for PyTorch, whose annotation of an optimizer step does not enclose the step's
/// operators.
pub(crate) fn record_phases(trace: &OperatorTrace) -> Vec<TracePhase> {
    let mut phases: Vec<TracePhase> = Vec::with_capacity(trace.records.len());
    let mut open: HashMap<u64, Vec<(i64, TracePhase)>> = HashMap::default();
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
