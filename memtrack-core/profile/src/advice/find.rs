//! Finds memory that is live at the peak but not in use then.

use super::edits::Change;
use super::lines::{CodeLine, program_frame};
use super::uses::{Gap, Memory, Use};
use super::{Finding, Kind, LastUse, NextUse};
use crate::category::Category;
use crate::curve::{Curve, State};
use crate::names::Names;
use crate::places::{ModuleId, StepPart};
use foldhash::{HashMap, HashSet};
use memtrack_blocks::estimate::Sum;
use memtrack_model::optrace::{OperatorTrace, RecordKind, TraceFrame};
use memtrack_model::snapshot::StringId;

/// A proposed change, consisting of the finding and its effect on memory.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub(super) finding: Finding,
    pub(super) change: Change,
    /// The modules to recompute. Empty for all other kinds of advice.
    pub(super) modules: Vec<ModuleId>,
}

/// The common origin of the pieces that a single program change affects: all allocations made by a line or,
/// if the line is unknown, all allocations made by an operator within a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Origin {
    category: Category,
    module: Option<ModuleId>,
    operator: Option<StringId>,
    line: Option<TraceFrame>,
    /// The piece itself, if its origin is otherwise unknown.
    piece: Option<u32>,
}

/// Identifies a single program change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: Kind,
    origin: Origin,
    /// The places of the uses before and after the gap.
    between: (Option<Site>, Option<Site>),
}

/// A place where memory is used, given by the operator's name and the enclosing module.
type Site = (StringId, Option<ModuleId>);

#[derive(Default)]
struct Group {
    change: Change,
    /// The pieces that are idle at the peak, each with its gap.
    at_peak: Vec<(u32, Gap)>,
}

/// Finds changes to memory that is idle at the peak. Pieces in `recomputable` are skipped while they wait for
/// the backward pass, because recomputing their module already covers them.
pub(super) fn find_proposals(
    memory: &Memory<'_>,
    curve: &Curve,
    peak: State,
    recomputable: &HashSet<u32>,
) -> Vec<Proposal> {
    let mut groups: HashMap<Key, Group> = HashMap::default();
    let mut order: Vec<Key> = Vec::new();
    for (number, piece) in (0..).zip(&memory.pieces) {
        if piece.storage.is_none() {
            continue;
        }
        let category = piece.category_at(i64::MAX);
        let counted: fn(&Memory<'_>, &Use) -> bool = match category {
            Category::Buffer => continue,
            // Zeroing a gradient does not count as a use.
            Category::Gradient => |memory, of| !is_zeroing(memory, of),
            _ => |_, _| true,
        };
        let gaps = memory.find_gaps(number, curve, |of| counted(memory, of));
        let mut origin: Option<Origin> = None;
        for gap in gaps {
            let Some((kind, gap)) = classify(memory, number, category, gap) else { continue };
            if kind == Kind::Idle && recomputable.contains(&number) && awaits_backward(&gap) {
                continue;
            }
            let origin = *origin.get_or_insert_with(|| origin_of(memory, number, category));
            let between = match kind {
                Kind::Idle if !is_kept(category) => (site_of(memory, gap.before), site_of(memory, gap.after)),
                _ => (None, None),
            };
            let key = Key { kind, origin, between };
            let group = groups.entry(key).or_insert_with(|| {
                order.push(key);
                Group::default()
            });
            group.change.removed.push((number, gap.states));
            if gap.contains(peak) {
                group.at_peak.push((number, gap));
            }
        }
    }
    let found = order.into_iter().filter_map(|key| {
        let group = groups.remove(&key)?;
        let finding = build_finding(memory, curve, peak, &key, &group.at_peak)?;
        Some(Proposal { finding, change: group.change, modules: Vec::new() })
    });
    found.collect()
}

fn site_of(memory: &Memory<'_>, of: Option<Use>) -> Option<Site> {
    let record = of?.record;
    let RecordKind::Op(op) = &memory.profile.trace().records[record as usize].what else { return None };
    Some((op.name, memory.places.get(record).module))
}

/// Returns whether memory of this category is kept from step to step.
const fn is_kept(category: Category) -> bool {
    matches!(category, Category::Parameter | Category::OptimizerState | Category::Gradient)
}

/// Returns whether the memory is waiting for the backward pass during this gap.
fn awaits_backward(gap: &Gap) -> bool {
    gap.before.is_none_or(|of| of.part != StepPart::Backward)
        && gap.after.is_some_and(|of| of.part == StepPart::Backward)
}

fn is_zeroing(memory: &Memory<'_>, of: &Use) -> bool {
    let trace = memory.profile.trace();
    let RecordKind::Op(op) = &trace.records[of.record as usize].what else { return false };
    let name = trace.strings.get(op.name);
    matches!(&*name, "aten::zero_" | "aten::fill_" | "aten::_foreach_zero_" | "zero_" | "fill_")
}

/// Returns the kind of advice that applies to a gap of a piece, along with the gap, widened to all states in
/// which the piece would not exist.
fn classify(memory: &Memory<'_>, number: u32, category: Category, mut gap: Gap) -> Option<(Kind, Gap)> {
    let kind = match category {
        Category::Parameter | Category::OptimizerState => Kind::Idle,
        Category::Gradient => {
            let was_used = gap.before.is_some_and(|of| of.part != StepPart::Backward);
            match gap.after {
                // The gradient is waiting for the optimizer step or for the remaining parts of the batch.
                Some(of) if of.part != StepPart::Backward || !was_used => Kind::Idle,
                _ if was_used => Kind::ZeroGrad,
                // The gradient has not been used yet.
                _ => return None,
            }
        }
        _ => match (gap.before, gap.after) {
            (_, None) => Kind::Late,
            (None, Some(_))
                if needs_no_other_memory(memory, number)
                    && !awaits_backward_from_forward(memory, number, &gap) =>
            {
                gap.states.0 = memory.live_states(number).0;
                Kind::Early
            }
            _ => Kind::Idle,
        },
    };
    Some((kind, gap))
}

/// Returns whether the piece could have been created later. This is the case if the piece existed before the
/// trace, or if the operator that allocated it neither used nor allocated any other memory on the device.
fn needs_no_other_memory(memory: &Memory<'_>, number: u32) -> bool {
    memory.pieces[number as usize].allocated_by.is_none()
        || memory.allocating_operator(number).is_none_or(|maker| memory.touches_only(maker, number))
}

/// Returns whether the piece was allocated in the forward pass and is waiting for the backward pass. Dropout
/// masks are an example.
fn awaits_backward_from_forward(memory: &Memory<'_>, number: u32, gap: &Gap) -> bool {
    let made = memory.pieces[number as usize].allocated_by.map(|record| memory.places.get(record).part);
    made == Some(StepPart::Forward) && awaits_backward(gap)
}

fn origin_of(memory: &Memory<'_>, number: u32, category: Category) -> Origin {
    let none = Origin { category, module: None, operator: None, line: None, piece: None };
    if is_kept(category) {
        return none;
    }
    let Some(allocated_by) = memory.pieces[number as usize].allocated_by else {
        return Origin { piece: Some(number), ..none };
    };
    let trace = memory.profile.trace();
    let operator =
        memory.allocating_operator(number).and_then(|maker| match &trace.records[maker as usize].what {
            RecordKind::Op(op) => Some(op.name),
            _ => None,
        });
    let (module, line) = (memory.places.get(allocated_by).module, program_frame(trace, allocated_by));
    let is_unknown = operator.is_none() && line.is_none();
    Origin { category, module, operator, line, piece: is_unknown.then_some(number) }
}

fn build_finding(
    memory: &Memory<'_>,
    curve: &Curve,
    peak: State,
    key: &Key,
    at_peak: &[(u32, Gap)],
) -> Option<Finding> {
    let trace = memory.profile.trace();
    let &(largest, gap) =
        at_peak.iter().rev().max_by_key(|(piece, _)| memory.pieces[*piece as usize].bytes)?;
    let piece = &memory.pieces[largest as usize];
    let peak_ns = curve.begin_ns(peak)?;
    let since = |from_ns: i64, to_ns: i64| u64::try_from(to_ns.saturating_sub(from_ns)).unwrap_or(0);
    let mut names = Names::of(memory.profile, &memory.places);
    let (operator, module) = if names.has_scope_names() && !is_kept(key.origin.category) {
        // The operator's name already contains the module. Names with parentheses are placeholders such as
        // `(before the trace)`.
        let name = names.operator(piece.allocated_by);
        (Some(name).filter(|name| !name.contains('(')), None)
    } else {
        let module = key.origin.module.map(|module| memory.places.full_name(module));
        (key.origin.operator.map(|name| trace.strings.get(name).into_owned()), module)
    };
    let (mut sum, mut blocks) = (Sum::default(), Sum::default());
    for (piece, _) in at_peak {
        memory.pieces[*piece as usize].add_to(memory.profile, &mut sum, &mut blocks);
    }
    let allocated_bytes = memory.bytes_of(at_peak.iter().map(|(piece, _)| piece));
    Some(Finding {
        kind: key.kind,
        allocated_bytes,
        allocated_bytes_error: memory.estimate_error(allocated_bytes, &sum),
        count: at_peak.len() as u64,
        category: memory.category(largest, curve, peak),
        module,
        operator,
        line: key.origin.line.map(|frame| CodeLine::of(trace, frame)),
        obtained_ns_before_the_peak: piece.begin_ns.map(|begin_ns| since(begin_ns, peak_ns)),
        last_used: gap.before.map(|of| {
            let (operator, module) = names.call_name(of.record);
            LastUse { operator, module, ns_before_the_peak: since(of.end_ns, peak_ns) }
        }),
        next_used: gap.after.map(|of| {
            let (operator, module) = names.call_name(of.record);
            NextUse { operator, module, ns_after_the_peak: since(peak_ns, of.begin_ns) }
        }),
        freed_ns_after_the_peak: piece.end_ns.map(|end_ns| since(peak_ns, end_ns)),
        ..Finding::default()
    })
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
