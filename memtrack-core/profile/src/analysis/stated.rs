//! Categories from what the program states, in traces that memtrack's SDK recorded. Operators of a Rust
//! framework are coarse: the trace does not show the inside of an annotated function, and a backward pass is
//! one call. Data flow alone therefore leaves much of the memory without a category, although the program
//! states the phase and the operator that allocated it. The rules here derive the category from these
//! statements. A rule applies only where data flow and registrations give no category, except the last two
//! rules, and except temporaries that data flow classifies as activations. The rules are part of the tolerant
//! mode. Traces of PyTorch, whose operators are fine-grained, are not affected.

use super::timeline::{Action, Change};
use crate::category::Category;
use memtrack_model::Phase;
use memtrack_model::optrace::{OpKind, OperatorTrace, RecordId, TracePhase, What};

/// A rule that determines the category of memory from the program's statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Allocated in a backward pass, not a gradient, and freed before the next step: autograd detail.
    Backward,
    /// Allocated in an optimizer's step or where the optimizer is created, and live after that: optimizer
    /// state.
    OptimizerKeeps,
    /// Allocated and freed in an optimizer's step: temporary memory of the optimizer.
    OptimizerFrees,
    /// Allocated in a module of the forward pass and live after the operator, or allocated in an operator
    /// outside modules that reports its tensors, and freed before the next step: an activation.
    ForwardKeeps,
    /// Allocated and freed in an operator outside the backward pass and the optimizer's step: temporary.
    ForwardFrees,
    /// An input according to data flow, but allocated inside a module: computed in the forward pass by
    /// operators that did not report their inputs. An activation.
    NotAnInput,
    /// A parameter according to data flow, but allocated inside a module or an operator, and not registered:
    /// an activation.
    NotAParameter,
}

/// The program's statement about a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) rule: Rule,
    pub(super) category: Category,
}

/// The records that enclose an allocation.
#[derive(Clone, Copy, Default)]
struct EnclosingRecords {
    /// The outermost operator of the current phase. An operator that encloses a whole forward pass is not
    /// part of the pass.
    operator: Option<RecordId>,
    /// Whether one of the enclosing operators reports its tensors.
    reports_tensors: bool,
    /// The outermost record of the optimizer's phase.
    optimizer: Option<RecordId>,
    is_in_module: bool,
}

/// Returns for each record the program's statement about the memory that the record allocated.
pub(super) fn statements(
    trace: &OperatorTrace,
    phases: &[TracePhase],
    changes: &[Change],
) -> Vec<Option<Statement>> {
    let mut around: Vec<EnclosingRecords> = Vec::with_capacity(trace.records.len());
    for (number, record) in (0..).zip(&trace.records) {
        let mut here = record.parent.map_or(EnclosingRecords::default(), |parent| around[parent as usize]);
        let outer = record.parent.map_or(TracePhase::Inherited, |parent| phases[parent as usize]);
        if phases[number as usize] != outer {
            (here.operator, here.reports_tensors) = (None, false);
        }
        match &record.what {
            What::Op(op) if op.known || op.kind == OpKind::Op => {
                here.operator = here.operator.or(Some(number));
                here.reports_tensors |= op.known;
            }
            What::Module(_) => here.is_in_module = true,
            _ => {}
        }
        if phases[number as usize] == TracePhase::Of(Phase::Optimizer) {
            here.optimizer = here.optimizer.or(Some(number));
        }
        around.push(here);
    }
    let steps = Steps::of(trace, phases);
    let mut statements: Vec<Option<Statement>> = vec![None; trace.records.len()];
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
        let (rule, category) = match phases[allocated_by as usize] {
            TracePhase::Of(Phase::Optimizer) if freed_in(here.optimizer) => {
                (Rule::OptimizerFrees, Category::OptimizerTemporary)
            }
            TracePhase::Of(Phase::Optimizer) => (Rule::OptimizerKeeps, Category::OptimizerState),
            TracePhase::Of(Phase::Backward) if outlives_step() => continue,
            TracePhase::Of(Phase::Backward) => (Rule::Backward, Category::AutogradDetail),
            _ if here.operator.is_none() && !here.is_in_module => continue,
            _ if freed_in(here.operator) => (Rule::ForwardFrees, Category::Temporary),
            // An operator outside modules may allocate anything, such as data that the program keeps.
            _ if !here.is_in_module && (!here.reports_tensors || outlives_step()) => continue,
            _ => (Rule::ForwardKeeps, Category::Activation),
        };
        statements[allocated_by as usize] = Some(Statement { rule, category });
    }
    statements
}

/// The ends of training steps. Outside modules, and in the backward pass, memory that outlives its step is a
/// cache or a buffer rather than an activation or autograd detail.
struct Steps {
    /// The start times of backward passes and optimizer steps, sorted.
    later_starts_ns: Vec<i64>,
    /// The start times of forward passes, sorted.
    forward_starts_ns: Vec<i64>,
    /// The end of the last optimizer step. Memory from before it that is live at the end of the trace has
    /// outlived its step, too.
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

    /// Returns the end of the step that contains this time: the beginning of the next forward pass after a
    /// backward pass or an optimizer step; `None` if the step may not have ended.
    fn end_after(&self, time_ns: i64) -> Option<i64> {
        let next =
            |times: &[i64], after: i64| times.get(times.partition_point(|&time| time <= after)).copied();
        let later = next(&self.later_starts_ns, time_ns);
        let forward = later.and_then(|later| next(&self.forward_starts_ns, later));
        // Without a next forward pass, a step followed by an optimizer step ends with the trace.
        forward.or_else(|| self.last_optimizer_ns.filter(|&end| end > time_ns).map(|_| i64::MAX))
    }
}

/// Returns the category of a version, and the rule if one applied, given the result of data flow and the
/// program's statement.
pub(super) fn decide(
    by_flow: Option<Category>,
    is_registered: bool,
    stated: Option<Statement>,
) -> (Option<Category>, Option<Rule>) {
    let is_forward_rule = |stated: &Statement| matches!(stated.rule, Rule::ForwardKeeps | Rule::ForwardFrees);
    match (by_flow, stated) {
        (None, Some(stated)) => (Some(stated.category), Some(stated.rule)),
        (Some(Category::Input), Some(stated)) if is_forward_rule(&stated) => {
            (Some(stated.category), Some(Rule::NotAnInput))
        }
        (Some(Category::Parameter), Some(stated)) if is_forward_rule(&stated) && !is_registered => {
            (Some(stated.category), Some(Rule::NotAParameter))
        }
        // The result of an inner operator that the outer operator drops.
        (Some(Category::Activation), Some(stated)) if stated.rule == Rule::ForwardFrees && !is_registered => {
            (Some(stated.category), Some(stated.rule))
        }
        _ => (by_flow, None),
    }
}
