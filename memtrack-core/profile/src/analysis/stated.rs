//! Derives categories from the program's statements in traces recorded by memtrack's SDK. The operators of a
//! Rust framework are coarse: the trace does not show what happens inside an annotated function, and a
//! backward pass is a single call. Data flow alone would therefore leave much of the memory without a
//! category, even though the program states which phase and operator allocated it. The rules in this module
//! derive the category from these statements. Most of them apply only where data flow and registrations give no
//! category; [`decide`] has the exceptions. The rules are part of tolerant mode. They do not affect traces of PyTorch, whose operators are
//! fine-grained.

use super::timeline::{Action, Change};
use crate::category::Category;
use memtrack_model::Phase;
use memtrack_model::optrace::{OpKind, OperatorTrace, RecordId, RecordKind, TracePhase};

/// The records that enclose an allocation.
#[derive(Clone, Copy, Default)]
struct EnclosingRecords {
    /// The outermost operator of the current phase. An operator that encloses an entire forward pass is not
    /// part of that pass.
    operator: Option<RecordId>,
    /// Whether any of the enclosing operators reports its tensors.
    reports_tensors: bool,
    /// The outermost record of the optimizer's phase.
    optimizer: Option<RecordId>,
    is_in_module: bool,
}

/// Returns, for each record, the category that the program states for the memory that the record allocated.
pub(super) fn find_statements(
    trace: &OperatorTrace,
    phases: &[TracePhase],
    changes: &[Change],
) -> Vec<Option<Category>> {
    let mut around: Vec<EnclosingRecords> = Vec::with_capacity(trace.records.len());
    for (number, record) in (0..).zip(&trace.records) {
        let mut here = record.parent.map_or(EnclosingRecords::default(), |parent| around[parent as usize]);
        let outer = record.parent.map_or(TracePhase::Inherited, |parent| phases[parent as usize]);
        if phases[number as usize] != outer {
            (here.operator, here.reports_tensors) = (None, false);
        }
        match &record.what {
            RecordKind::Op(op) if op.known || op.kind == OpKind::Op => {
                here.operator = here.operator.or(Some(number));
                here.reports_tensors |= op.known;
            }
            RecordKind::Module(_) => here.is_in_module = true,
            _ => {}
        }
        if phases[number as usize] == TracePhase::Of(Phase::Optimizer) {
            here.optimizer = here.optimizer.or(Some(number));
        }
        around.push(here);
    }
    let steps = Steps::of(trace, phases);
    let mut statements: Vec<Option<Category>> = vec![None; trace.records.len()];
    let mut freed_ns: Vec<Option<i64>> = vec![None; trace.records.len()];
    for change in changes.iter().filter(|change| change.action == Action::Destroy) {
        if let Some(allocated_by) = change.allocated_by {
            freed_ns[allocated_by as usize] = Some(change.time_ns);
        }
    }
    for change in changes.iter().filter(|change| change.action == Action::Create) {
        let Some(allocated_by) = change.allocated_by else { continue };
        let (here, freed_ns) = (around[allocated_by as usize], freed_ns[allocated_by as usize]);
        let freed_in = |record: Option<RecordId>| {
            let end_ns = record.and_then(|record| trace.records[record as usize].end_ns);
            freed_ns.zip(end_ns).is_some_and(|(freed, end)| freed <= end)
        };
        let outlives_step = || {
            let end = steps.end_after(trace.records[allocated_by as usize].time_ns);
            end.is_some_and(|end| freed_ns.is_none_or(|freed| freed > end))
        };
        let category = match phases[allocated_by as usize] {
            TracePhase::Of(Phase::Optimizer) if freed_in(here.optimizer) => Category::OptimizerTemporary,
            // Memory that outlives the step, or that is allocated where the optimizer is created.
            TracePhase::Of(Phase::Optimizer) => Category::OptimizerState,
            TracePhase::Of(Phase::Backward) if outlives_step() => continue,
            TracePhase::Of(Phase::Backward) => Category::AutogradDetail,
            _ if here.operator.is_none() && !here.is_in_module => continue,
            _ if freed_in(here.operator) => Category::Temporary,
            // Outside modules, an operator may allocate anything, including data that the program keeps.
            _ if !here.is_in_module && (!here.reports_tensors || outlives_step()) => continue,
            _ => Category::Activation,
        };
        statements[allocated_by as usize] = Some(category);
    }
    statements
}

/// The ends of training steps. In the backward pass and outside modules, memory that outlives its step is not
/// autograd detail or an activation but a cache or a buffer.
struct Steps {
    /// The sorted start times of backward passes and optimizer steps.
    later_starts_ns: Vec<i64>,
    /// The sorted start times of forward passes.
    forward_starts_ns: Vec<i64>,
    /// The end of the last optimizer step. Memory that is older than this and still live at the end of the
    /// trace has also outlived its step.
    last_optimizer_ns: Option<i64>,
}

impl Steps {
    fn of(trace: &OperatorTrace, phases: &[TracePhase]) -> Self {
        let mut steps =
            Self { later_starts_ns: Vec::new(), forward_starts_ns: Vec::new(), last_optimizer_ns: None };
        for (record, &phase) in trace.records.iter().zip(phases) {
            let around = record.parent.map_or(TracePhase::Inherited, |parent| phases[parent as usize]);
            if phase == around {
                continue;
            }
            match phase {
                TracePhase::Of(Phase::Forward) => steps.forward_starts_ns.push(record.time_ns),
                TracePhase::Of(Phase::Backward) => steps.later_starts_ns.push(record.time_ns),
                TracePhase::Of(Phase::Optimizer) => {
                    steps.later_starts_ns.push(record.time_ns);
                    steps.last_optimizer_ns = steps.last_optimizer_ns.max(record.end_ns);
                }
                TracePhase::Inherited | TracePhase::Other => {}
            }
        }
        steps
    }

    /// Returns the end of the step that contains this time, which is the start of the next forward pass after
    /// a backward pass or an optimizer step. Returns `None` if the step may not have ended.
    fn end_after(&self, time_ns: i64) -> Option<i64> {
        let next =
            |times: &[i64], after: i64| times.get(times.partition_point(|&time| time <= after)).copied();
        let later = next(&self.later_starts_ns, time_ns);
        let forward = later.and_then(|later| next(&self.forward_starts_ns, later));
        // If an optimizer step follows but no forward pass does, the training step ends with the trace.
        forward.or_else(|| self.last_optimizer_ns.filter(|&end| end > time_ns).map(|_| i64::MAX))
    }
}

/// Decides the category of a version, given the result of data flow and the category that the program states.
pub(super) fn decide(by_flow: Option<Category>, is_registered: bool, stated: Category) -> Option<Category> {
    let is_of_forward = matches!(stated, Category::Activation | Category::Temporary);
    let is_corrected = match by_flow {
        None => true,
        // Memory is no input if it is allocated in the forward pass: the operators that computed it did not report
        // their inputs.
        Some(Category::Input) => is_of_forward,
        Some(Category::Parameter) => is_of_forward && !is_registered,
        // An inner operator produced this result, and the outer operator dropped it, so it is a temporary.
        Some(Category::Activation) => stated == Category::Temporary && !is_registered,
        Some(_) => false,
    };
    if is_corrected { Some(stated) } else { by_flow }
}
