//! Attribution of allocations to operators: an allocation belongs to the operator whose scope was open or, if no
//! operator's scope was open, to the operator named by the stack. Every report uses the same [`Attributor`] so that
//! rows and totals agree.

use crate::framework_operators::Patterns;
use crate::torch_stacks::TorchStack;
use memtrack_model::event::{Action, ScopeId, StackId};
use memtrack_model::snapshot::Snapshot;
use memtrack_model::units::shorten_middle;
use memtrack_model::{Phase, ScopePosition};
use memtrack_symbols::Symbolizer;
use serde::Serialize;
use std::collections::HashMap;

/// The source of an operator's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An operator's scope was open.
    Annotated,
    /// A frame pattern matched the stack, or PyTorch's frames name the operator.
    NamedFromStack,
    /// Neither a scope nor the stack names the operator.
    Unattributed,
}

/// Bytes by the source of the operator's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AttributedBytes {
    /// Bytes allocated inside operator scopes.
    #[serde(rename = "annotated_bytes")]
    pub annotated: u64,
    /// Bytes whose operator is named by a stack frame.
    #[serde(rename = "named_from_stacks_bytes")]
    pub named_from_stacks: u64,
    /// Bytes whose operator is named by neither a scope nor the stack.
    #[serde(rename = "unattributed_bytes")]
    pub unattributed: u64,
}

impl AttributedBytes {
    /// Replaces each source's bytes with `map(source, bytes)`.
    pub fn map(&mut self, map: impl Fn(Source, u64) -> u64) {
        for (source, part) in [
            (Source::Annotated, &mut self.annotated),
            (Source::NamedFromStack, &mut self.named_from_stacks),
            (Source::Unattributed, &mut self.unattributed),
        ] {
            *part = map(source, *part);
        }
    }

    /// Adds `bytes` to the total for `source`, saturating on overflow.
    pub fn add(&mut self, source: Source, bytes: u64) {
        let sum = match source {
            Source::Annotated => &mut self.annotated,
            Source::NamedFromStack => &mut self.named_from_stacks,
            Source::Unattributed => &mut self.unattributed,
        };
        *sum = sum.saturating_add(bytes);
    }
}

/// The operator, phase and modules that can be inferred from one stack.
#[derive(Debug, Default)]
struct StackNames {
    /// The operator named by a pattern or by PyTorch's frames.
    operator: Option<String>,
    torch: TorchStack,
}

/// A lookup for the operator, phase and modules of allocations, which come from the scope or, failing that, from the
/// stack. The names inferred from each distinct stack are cached.
#[derive(Debug)]
pub struct Attributor<'a> {
    snapshot: &'a Snapshot,
    patterns: &'a Patterns,
    /// The patterns that take precedence over the names in PyTorch's frames.
    above_layers: Patterns,
    by_stack: HashMap<StackId, StackNames>,
    /// Whether the frames of a frame key can name anything. Most stacks of a program have no such frame, and have few
    /// different frames.
    names_something: HashMap<u64, bool>,
}

impl<'a> Attributor<'a> {
    /// Creates an attributor for the events of `snapshot`; `patterns` name the operators of events that happened
    /// outside any operator scope.
    pub fn new(snapshot: &'a Snapshot, patterns: &'a Patterns) -> Self {
        Self {
            snapshot,
            patterns,
            above_layers: patterns.without_layers(),
            by_stack: HashMap::new(),
            names_something: HashMap::new(),
        }
    }

    /// Returns the operator of an event in `scope` with `stack`, and the source of its name. A name from a scope looks
    /// like `encoder.forward.matmul`. A name from the stack looks like `encoder.forward.candle.matmul` or
    /// `backward.aten::mm`. If the operator is unknown, the name looks like `encoder.forward.(no operator)`. Outside of
    /// modules and phases, the name has no prefix.
    pub fn operator(&mut self, scope: ScopeId, stack: StackId, symbols: &mut Symbolizer) -> (String, Source) {
        let place = self.snapshot.scopes.place(scope);
        if place.operator.is_some() {
            return operator_at(&place, (None, None));
        }
        let from_stack = self.read_stack(stack, symbols);
        operator_at(&place, (from_stack.operator.as_deref(), from_stack.torch.phase))
    }

    /// Returns the phase of the training step, taken from the scopes or, failing that, from the stack.
    pub fn phase(&mut self, scope: ScopeId, stack: StackId, symbols: &mut Symbolizer) -> Option<Phase> {
        self.snapshot.scopes.place(scope).phase.or_else(|| self.read_stack(stack, symbols).torch.phase)
    }

    /// Returns the modules, taken from the scopes (`encoder.attn`) or, failing that, from the stack
    /// (`model.py:382 > attention.py:39`). Names in parentheses stand for memory in a phase but in no module
    /// (`(forward, in no module)`, meaning the root module itself), for memory outside of all phases and modules, and
    /// for unknown modules.
    pub fn module(&mut self, scope: ScopeId, stack: StackId, symbols: &mut Symbolizer) -> String {
        let snapshot = self.snapshot;
        if let Some(module) = module_at(&snapshot.scopes.place(scope)) {
            return module;
        }
        let modules = &self.read_stack(stack, symbols).torch.modules;
        if !modules.is_empty() {
            return format_row_name(&modules.join(" > "));
        }
        // Without scopes, and with stacks that may contain only C++ frames, there is no way to tell whether the memory
        // was allocated outside of modules.
        if snapshot.scopes.rows.len() > 1 { OUTSIDE_MODULES } else { "(no module in the stack)" }.into()
    }

    fn read_stack(&mut self, stack: StackId, symbols: &mut Symbolizer) -> &StackNames {
        let (snapshot, patterns, above_layers) = (self.snapshot, self.patterns, &self.above_layers);
        let names_something = &mut self.names_something;
        self.by_stack.entry(stack).or_insert_with(|| {
            let keys = snapshot.frame_keys(stack);
            let mut of_key = |&key: &u64| {
                *names_something.entry(key).or_insert_with(|| {
                    let frames = symbols.frames(key);
                    frames.iter().any(|frame| patterns.may_name(frame) || TorchStack::may_name(frame))
                })
            };
            if !keys.iter().any(&mut of_key) {
                return StackNames::default();
            }
            let frames = symbols.stack(&keys);
            let torch = TorchStack::of(&frames);
            // PyTorch's name for an operator is more specific than the name from the layer below.
            let operator = above_layers.name_of(&frames).or_else(|| torch.operator.clone());
            let operator = operator.or_else(|| patterns.name_of(&frames));
            StackNames { operator, torch }
        })
    }
}

/// The module name for memory that was allocated outside of modules.
pub const OUTSIDE_MODULES: &str = "(outside modules)";

/// The operator name for memory that is older than the recording, and the name of the row for blocks whose allocation was not
/// recorded. In rankings by stack, that row is for all blocks that are older than the trace and have no stack.
pub const OLDER_MEMORY: &str = "(allocated before the first event)";

/// The name of the row for blocks that were allocated within the trace but without a stack.
pub const NO_STACK: &str = "(no stack)";

/// Returns the operator of memory that was allocated at `place`, in the format of [`Attributor::operator`];
/// `from_stack` is the operator and the phase inferred from the stack.
pub fn operator_at(place: &ScopePosition<'_>, from_stack: (Option<&str>, Option<Phase>)) -> (String, Source) {
    if let Some(name) = place.operator_name() {
        return (format_row_name(&name), Source::Annotated);
    }
    let phase = place.phase.or(from_stack.1);
    let (operator, source) = match from_stack.0 {
        Some(name) => (name, Source::NamedFromStack),
        None if phase.is_some() => ("(no operator)", Source::Unattributed),
        None => ("(unattributed)", Source::Unattributed),
    };
    // The modules from a stack are source lines. Including them here would turn each call site into a separate
    // operator.
    let prefix = if place.phase.is_some() { place.prefix() } else { phase.map_or("", Phase::name).into() };
    (format_row_name(&format!("{prefix}.{operator}")), source)
}

/// Returns the module of memory that was allocated at `place`, in the format of [`Attributor::module`]; `None` outside
/// of modules and phases.
pub fn module_at(place: &ScopePosition<'_>) -> Option<String> {
    if !place.modules.is_empty() {
        return Some(format_row_name(&place.module_path()));
    }
    place.phase.map(|phase| format!("({phase}, in no module)"))
}

/// The names that reports use for the operator and the module of each allocation of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct EventNames {
    names: Vec<String>,
    /// The operator and the module for each row of the event table, as indices into `names`; `None` for events other
    /// than allocations.
    of_row: Vec<Option<[u32; 2]>>,
}

impl EventNames {
    /// Names the operators and modules of all allocations, using the built-in patterns.
    pub fn of(snapshot: &Snapshot, symbols: &mut Symbolizer) -> Self {
        let patterns = Patterns::default();
        let mut attributor = Attributor::new(snapshot, &patterns);
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut known: HashMap<(ScopeId, StackId), [u32; 2]> = HashMap::new();
        let events = &snapshot.events;
        let row = |row: usize| {
            let key = (events.scope[row], events.stack[row]);
            (events.action[row] == Action::Alloc).then(|| {
                *known.entry(key).or_insert_with(|| {
                    let operator = attributor.operator(key.0, key.1, symbols).0;
                    [operator, attributor.module(key.0, key.1, symbols)].map(|name| {
                        let next = numbers.len() as u32;
                        *numbers.entry(name).or_insert(next)
                    })
                })
            })
        };
        let of_row = (0..events.len()).map(row).collect();
        let mut names: Vec<(String, u32)> = numbers.into_iter().collect();
        names.sort_unstable_by_key(|&(_, number)| number);
        Self { names: names.into_iter().map(|(name, _)| name).collect(), of_row }
    }

    /// Returns whether there are no names at all.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the operator of the allocation in this row; `None` if the row is not an allocation.
    pub fn operator(&self, row: usize) -> Option<&str> {
        self.name(row, 0)
    }

    /// Returns the module of the allocation in this row; `None` if the row is not an allocation.
    pub fn module(&self, row: usize) -> Option<&str> {
        self.name(row, 1)
    }

    fn name(&self, row: usize, which: usize) -> Option<&str> {
        let names = self.of_row.get(row).copied().flatten()?;
        self.names.get(names[which] as usize).map(String::as_str)
    }
}

/// Names longer than this many characters are shortened in the middle, because they would be unreadable and there may
/// be many of them.
const MAX_NAME_CHARS: usize = 1000;

/// Strips the leading dot that names in the unnamed root module would otherwise have, and shortens very long names.
fn format_row_name(name: &str) -> String {
    shorten_middle(name.trim_start_matches('.'), MAX_NAME_CHARS)
}
