//! Which operator an allocation belongs to: the one whose scope was open, or the one that its stack names, or none.
//! Every report uses the same [`Attributor`], so that rows and totals agree.

use super::patterns::Patterns;
use super::torch_stacks::TorchStack;
use memtrack_model::Phase;
use memtrack_model::event::{ScopeId, StackId};
use memtrack_model::snapshot::Snapshot;
use memtrack_model::units::shorten_middle;
use memtrack_symbols::Symbolizer;
use serde::Serialize;
use std::collections::HashMap;

/// How an operator was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An operator's scope was open.
    Annotated,
    /// A frame pattern matched the stack, or PyTorch's frames name the operator.
    NamedFromStack,
    /// Neither.
    Unattributed,
}

/// Bytes by how their operator was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AttributedBytes {
    /// Bytes allocated inside operator scopes.
    #[serde(rename = "annotated_bytes")]
    pub annotated: u64,
    /// Bytes named by a frame of their stack.
    #[serde(rename = "named_from_stacks_bytes")]
    pub named_from_stacks: u64,
    /// Bytes that neither a scope nor the stack names.
    #[serde(rename = "unattributed_bytes")]
    pub unattributed: u64,
}

impl AttributedBytes {
    /// Replaces the bytes of each source.
    pub(super) fn change(&mut self, changed: impl Fn(Source, u64) -> u64) {
        for (source, part) in [
            (Source::Annotated, &mut self.annotated),
            (Source::NamedFromStack, &mut self.named_from_stacks),
            (Source::Unattributed, &mut self.unattributed),
        ] {
            *part = changed(source, *part);
        }
    }

    /// Adds `bytes` of `source`; saturates instead of overflowing.
    pub fn add(&mut self, source: Source, bytes: u64) {
        let sum = match source {
            Source::Annotated => &mut self.annotated,
            Source::NamedFromStack => &mut self.named_from_stacks,
            Source::Unattributed => &mut self.unattributed,
        };
        *sum = sum.saturating_add(bytes);
    }
}

/// What one stack says.
#[derive(Debug)]
struct FromStack {
    /// The operator, by a pattern or PyTorch's frames.
    operator: Option<String>,
    torch: TorchStack,
}

/// Names operators, phases and modules, once for each distinct scope and stack: by the scope, or else by the stack.
#[derive(Debug)]
pub struct Attributor<'a> {
    snapshot: &'a Snapshot,
    patterns: &'a Patterns,
    /// The patterns that are asked before PyTorch's frames.
    above_layers: Patterns,
    by_stack: HashMap<StackId, FromStack>,
}

impl<'a> Attributor<'a> {
    /// For events of `snapshot`; `patterns` name those for which no operator's scope was open.
    pub fn new(snapshot: &'a Snapshot, patterns: &'a Patterns) -> Self {
        Self { snapshot, patterns, above_layers: patterns.without_layers(), by_stack: HashMap::new() }
    }

    /// The operator of an event in `scope` with `stack`, and how it was found: `encoder.forward.matmul`, or with a
    /// name from the stack `encoder.forward.candle.matmul` or `backward.aten::mm`, or `encoder.forward.(no operator)`.
    /// Outside modules and phases, the name has no prefix.
    pub fn operator(&mut self, scope: ScopeId, stack: StackId, symbols: &mut Symbolizer) -> (String, Source) {
        let place = self.snapshot.scopes.place(scope);
        if let Some(name) = place.operator_name() {
            return (row_name(&name), Source::Annotated);
        }
        let from_stack = self.read_stack(stack, symbols);
        let phase = place.phase.or(from_stack.torch.phase);
        let (operator, source) = match &from_stack.operator {
            Some(name) => (name.as_str(), Source::NamedFromStack),
            None if phase.is_some() => ("(no operator)", Source::Unattributed),
            None => ("(unattributed)", Source::Unattributed),
        };
        // The modules of a stack are its lines: they have rows of their own, and would make of each call an operator.
        let prefix =
            if place.phase.is_some() { place.prefix() } else { phase.map_or("", Phase::name).into() };
        (row_name(&format!("{prefix}.{operator}")), source)
    }

    /// The part of the training step: from the scopes, or else from the stack.
    pub fn phase(&mut self, scope: ScopeId, stack: StackId, symbols: &mut Symbolizer) -> Option<Phase> {
        self.snapshot.scopes.place(scope).phase.or_else(|| self.read_stack(stack, symbols).torch.phase)
    }

    /// The modules: from the scopes, as `encoder.attn`, or else from the stack, as `model.py:382 > attention.py:39`;
    /// what is in a phase but in none of the modules (`(forward, in no module)`: in the root itself), what is outside of both,
    /// and what is unknown have names in brackets.
    pub fn module(&mut self, scope: ScopeId, stack: StackId, symbols: &mut Symbolizer) -> String {
        let snapshot = self.snapshot;
        let place = snapshot.scopes.place(scope);
        if !place.modules.is_empty() {
            return row_name(&place.module_path());
        }
        if let Some(phase) = place.phase {
            return format!("({phase}, in no module)");
        }
        let modules = &self.read_stack(stack, symbols).torch.modules;
        if !modules.is_empty() {
            return row_name(&modules.join(" > "));
        }
        // Without any scope, and with stacks that may be of C++ alone, nobody knows what was outside.
        if snapshot.scopes.rows.len() > 1 { "(outside modules)" } else { "(no module in the stack)" }.into()
    }

    fn read_stack(&mut self, stack: StackId, symbols: &mut Symbolizer) -> &FromStack {
        let (snapshot, patterns, above_layers) = (self.snapshot, self.patterns, &self.above_layers);
        self.by_stack.entry(stack).or_insert_with(|| {
            let frames = symbols.stack(&snapshot.frame_keys(stack));
            let torch = TorchStack::of(&frames);
            let functions = || frames.iter().map(|frame| frame.function.as_str());
            // What PyTorch calls an operator says more than the layer below it.
            let operator = above_layers.name(functions()).or_else(|| torch.operator.clone());
            let operator = operator.or_else(|| patterns.name(functions()));
            FromStack { operator, torch }
        })
    }
}

/// Full names longer than this many characters lose their middle: nobody reads them, and there may be many.
const MAX_NAME: usize = 1000;

/// The name of a row: the root module has none, so that names in it would begin with a dot.
fn row_name(name: &str) -> String {
    shorten_middle(name.trim_start_matches('.'), MAX_NAME)
}
