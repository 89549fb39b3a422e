//! Determines each record's place in the program, i.e. the enclosing operator, module and phase.

use crate::analysis::record_phases;
use foldhash::HashMap;
use memtrack_model::Phase;
use memtrack_model::optrace::{Op, OpKind, OperatorTrace, RecordId, RecordKind, TracePhase};
use memtrack_model::snapshot::StringId;
use std::fmt;

/// The index of a module in [`Places::modules`].
pub type ModuleId = u32;

/// A module in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleNode {
    /// The module's path in the model if the trace contains it, otherwise its type and a number, as in
    /// PyTorch's profiler.
    pub name: String,
    /// Whether the name is a path within the model.
    pub is_path: bool,
    /// The module that made the first call to this one.
    pub parent: Option<ModuleId>,
    /// The nesting depth, i.e. the number of enclosing modules.
    pub depth: u32,
}

/// The part of a training step that a record belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepPart {
    /// The forward pass. It is running inside a module, or wherever the trace states this phase.
    Forward,
    /// The backward pass. It is running inside an autograd node, or wherever the trace states this phase.
    Backward,
    /// The optimizer step. It is running wherever the trace states this phase.
    Optimizer,
    /// Outside all of these phases.
    #[default]
    Other,
}

memtrack_model::serialize_as!(StepPart => &'static str: |part| part.name());

impl StepPart {
    /// All parts of a training step.
    pub const ALL: [Self; 4] = [Self::Forward, Self::Backward, Self::Optimizer, Self::Other];

    /// Returns the name used in reports and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for StepPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A record's place in the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The outermost enclosing record that is an operator with a known schema or an autograd node.
    pub operator: Option<RecordId>,
    /// The innermost enclosing module. In the backward pass, this is the module of the corresponding forward
    /// operator.
    pub module: Option<ModuleId>,
    /// The part of the step.
    pub part: StepPart,
}

/// The places of all records in a trace.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The modules. Each one comes after its caller.
    pub modules: Vec<ModuleNode>,
    /// The place of each record.
    places: Vec<Place>,
    /// For each record that is a call to a module, the module that it calls.
    calls: Vec<Option<ModuleId>>,
}

impl Places {
    /// Determines the places of all records.
    pub fn of(trace: &OperatorTrace) -> Self {
        let mut places = Self::default();
        let mut seen: HashMap<StringId, ModuleId> = HashMap::default();
        let mut counts: HashMap<StringId, u32> = HashMap::default();
        let mut forward: HashMap<i64, ModuleId> = HashMap::default();
        for (record, phase) in trace.records.iter().zip(record_phases(trace)) {
            let mut place =
                record.parent.map_or(Place::default(), |parent| places.inner_place(trace, parent));
            match phase {
                TracePhase::Inherited => {}
                TracePhase::Of(Phase::Forward) => place.part = StepPart::Forward,
                TracePhase::Of(Phase::Backward) => place.part = StepPart::Backward,
                TracePhase::Of(Phase::Optimizer) => place.part = StepPart::Optimizer,
                TracePhase::Other => place.part = StepPart::Other,
            }
            let mut call = None;
            match &record.what {
                RecordKind::Module(module) => {
                    let id = *seen.entry(module.identity).or_insert_with(|| {
                        let count = counts.entry(module.class).or_default();
                        let path = trace.strings.get(module.path);
                        let is_path = !path.is_empty();
                        let name = if path.is_empty() {
                            format!("{}_{count}", trace.strings.get(module.class))
                        } else {
                            path.into_owned()
                        };
                        *count += 1;
                        let parent = place.module;
                        let depth = parent.map_or(0, |parent| places.modules[parent as usize].depth + 1);
                        places.modules.push(ModuleNode { name, is_path, parent, depth });
                        places.modules.len() as ModuleId - 1
                    });
                    call = Some(id);
                }
                RecordKind::Op(op) => {
                    if let (Some(sequence), Some(module), StepPart::Forward | StepPart::Other) =
                        (op.sequence, place.module, place.part)
                        && op.kind == OpKind::Op
                    {
                        forward.insert(sequence, module);
                    }
                    if op.kind == OpKind::Backward || record.phase == TracePhase::Of(Phase::Backward) {
                        place.part = StepPart::Backward;
                        let module = op.sequence.and_then(|sequence| forward.get(&sequence).copied());
                        place.module = module.or(place.module);
                    }
                }
                _ => {}
            }
            places.places.push(place);
            places.calls.push(call);
        }
        places
    }

    /// Returns the place of a record.
    pub fn get(&self, record: RecordId) -> Place {
        self.places.get(record as usize).copied().unwrap_or_default()
    }

    /// Returns the module that this record calls, or `None` if it is not a call to a module.
    pub fn called_module(&self, record: RecordId) -> Option<ModuleId> {
        self.calls.get(record as usize).copied().flatten()
    }

    /// Returns the names of a module and its enclosing modules, outermost first, separated by ` / `. A name
    /// is skipped if an inner module's path already contains it.
    pub fn full_name(&self, module: ModuleId) -> String {
        let mut names: Vec<&str> = Vec::new();
        let mut at = Some(module);
        while let Some(id) = at {
            let node = &self.modules[id as usize];
            let is_contained = names.last().and_then(|name| name.strip_prefix(&*node.name));
            if !is_contained.is_some_and(|rest| rest.starts_with('.')) {
                names.push(&node.name);
            }
            at = node.parent;
        }
        names.reverse();
        names.join(" / ")
    }

    /// Returns the place of a record directly inside `parent`, before the record's own kind and phase are
    /// considered.
    fn inner_place(&self, trace: &OperatorTrace, parent: RecordId) -> Place {
        let mut place = self.places[parent as usize];
        match &trace.records[parent as usize].what {
            RecordKind::Op(Op { known, kind, .. }) if *known || *kind == OpKind::Backward => {
                place.operator.get_or_insert(parent);
            }
            RecordKind::Module(_) => {
                place.module = self.calls[parent as usize];
                if place.part == StepPart::Other {
                    place.part = StepPart::Forward;
                }
            }
            _ => {}
        }
        place
    }
}
