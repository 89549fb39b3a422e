//! What a program states itself, for traces that memtrack's SDK recorded. In a Rust framework operators are coarse: what
//! happens inside an annotated function is not seen, and a backward pass is one call. So data flow alone leaves much of
//! the memory unnamed, although the program says in which phase and inside of which operator it was obtained. These rules
//! name it. Each holds only where data flow and registrations say nothing, but for the last two.
//!
//! They are part of the tolerant mode. Traces of PyTorch, whose operators are fine, are not touched.

use super::timeline::{Action, Change};
use crate::category::Category;
use memtrack_model::Phase;
use memtrack_model::optrace::{OperatorTrace, RecordId, TracePhase, What};

/// A rule by which memory has its category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Obtained in a backward pass, and no gradient: autograd detail.
    Backward,
    /// Obtained in an optimizer's step or where the optimizer is made, and kept beyond it: optimizer state.
    OptimizerKeeps,
    /// Obtained in an optimizer's step, and given back in it: temporary memory of the optimizer.
    OptimizerGivesBack,
    /// Obtained in an operator or module of the forward pass, and kept beyond the operator: an activation.
    ForwardKeeps,
    /// Obtained in an operator of the forward pass, and given back in it: temporary.
    ForwardGivesBack,
    /// An input by data flow, but obtained inside a module: what is made in the forward pass of what no operator was seen
    /// to make it of. An activation.
    NoInput,
    /// A parameter by data flow, but obtained inside a module or an operator, and not registered: an activation.
    NoParameter,
}

/// What the program states of a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stated {
    pub(super) rule: Rule,
    pub(super) category: Category,
}

/// Where memory was obtained: what is around the record that obtained it.
#[derive(Clone, Copy, Default)]
struct Around {
    /// The outermost operator that is known.
    operator: Option<RecordId>,
    /// The outermost record of the optimizer's phase.
    optimizer: Option<RecordId>,
    is_in_module: bool,
}

/// What the program states of the memory that each record obtained; by record.
pub(super) fn stated(trace: &OperatorTrace, phases: &[TracePhase], changes: &[Change]) -> Vec<Option<Stated>> {
    let mut around: Vec<Around> = Vec::with_capacity(trace.records.len());
    for (number, record) in (0..).zip(&trace.records) {
        let mut here = record.parent.map_or(Around::default(), |parent| around[parent as usize]);
        match &record.what {
            What::Op(op) if op.known => here.operator = here.operator.or(Some(number)),
            What::Module(_) => here.is_in_module = true,
            _ => {}
        }
        if phases[number as usize] == TracePhase::Of(Phase::Optimizer) {
            here.optimizer = here.optimizer.or(Some(number));
        }
        around.push(here);
    }
    let mut stated: Vec<Option<Stated>> = vec![None; trace.records.len()];
    let mut freed_ns: Vec<Option<i64>> = vec![None; trace.records.len()];
    for change in changes.iter().filter(|change| change.action == Action::Destroy) {
        if let Some(obtained) = change.obtained {
            freed_ns[obtained as usize] = Some(change.time_ns);
        }
    }
    for change in changes.iter().filter(|change| change.action == Action::Create) {
        let Some(obtained) = change.obtained else { continue };
        let here = around[obtained as usize];
        let freed_in = |record: Option<RecordId>| {
            let end_ns = record.and_then(|record| trace.records[record as usize].end_ns);
            freed_ns[obtained as usize].zip(end_ns).is_some_and(|(freed, end)| freed <= end)
        };
        let (rule, category) = match phases[obtained as usize] {
            TracePhase::Of(Phase::Backward) => (Rule::Backward, Category::AutogradDetail),
            TracePhase::Of(Phase::Optimizer) if freed_in(here.optimizer) => {
                (Rule::OptimizerGivesBack, Category::OptimizerTemporary)
            }
            TracePhase::Of(Phase::Optimizer) => (Rule::OptimizerKeeps, Category::OptimizerState),
            _ if here.operator.is_none() && !here.is_in_module => continue,
            _ if freed_in(here.operator) => (Rule::ForwardGivesBack, Category::Temporary),
            _ => (Rule::ForwardKeeps, Category::Activation),
        };
        stated[obtained as usize] = Some(Stated { rule, category });
    }
    stated
}

/// The category of a version, given what data flow says and what the program states.
pub(super) fn decide(
    by_flow: Option<Category>,
    is_registered: bool,
    stated: Option<Stated>,
) -> (Option<Category>, Option<Rule>) {
    let is_of_forward = |stated: &Stated| matches!(stated.rule, Rule::ForwardKeeps | Rule::ForwardGivesBack);
    match (by_flow, stated) {
        (None, Some(stated)) => (Some(stated.category), Some(stated.rule)),
        (Some(Category::Input), Some(stated)) if is_of_forward(&stated) => {
            (Some(stated.category), Some(Rule::NoInput))
        }
        (Some(Category::Parameter), Some(stated)) if is_of_forward(&stated) && !is_registered => {
            (Some(stated.category), Some(Rule::NoParameter))
        }
        _ => (by_flow, None),
    }
}
