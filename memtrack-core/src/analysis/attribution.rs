//! Who an allocation belongs to: the operator whose scope was open, or the one that its stack names, or nobody. Every
//! report asks the same [`Attributor`], so that rows and totals agree.

use super::patterns::Patterns;
use super::units::shorten_middle;
use crate::event::{ScopeId, StackId};
use crate::snapshot::Snapshot;
use crate::stack::symbols::Symbolizer;
use serde::Serialize;
use std::collections::HashMap;

/// How an operator was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An operator's scope was open.
    Annotated,
    /// A frame pattern matched the stack.
    NamedFromStack,
    /// Neither.
    Unattributed,
}

/// Bytes by how their operator was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AttributedBytes {
    /// Bytes allocated inside operator scopes.
    #[serde(rename = "annotated_bytes")]
    pub annotated: u64,
    /// Bytes named by a frame of their stack.
    #[serde(rename = "named_from_stacks_bytes")]
    pub named_from_stacks: u64,
    /// Bytes that neither scope nor stack names.
    #[serde(rename = "unattributed_bytes")]
    pub unattributed: u64,
}

impl AttributedBytes {
    /// Adds `bytes` of `source`; stays at the largest number rather than overflow.
    pub fn add(&mut self, source: Source, bytes: u64) {
        let sum = match source {
            Source::Annotated => &mut self.annotated,
            Source::NamedFromStack => &mut self.named_from_stacks,
            Source::Unattributed => &mut self.unattributed,
        };
        *sum = sum.saturating_add(bytes);
    }
}

/// Names operators, each distinct scope and stack once.
#[derive(Debug)]
pub struct Attributor<'a> {
    snapshot: &'a Snapshot,
    patterns: &'a Patterns,
    by_stack: HashMap<StackId, Option<String>>,
}

impl<'a> Attributor<'a> {
    /// For events of `snapshot`; `patterns` are asked where no operator's scope was open.
    pub fn new(snapshot: &'a Snapshot, patterns: &'a Patterns) -> Self {
        Self { snapshot, patterns, by_stack: HashMap::new() }
    }

    /// The operator of an event in `scope` with `stack`, and how it was found: `encoder.forward.matmul`, or with a
    /// name from the stack `encoder.forward.candle.matmul`, or `encoder.forward.(no operator)`. Outside modules and
    /// phases the name stands alone.
    pub fn operator(&mut self, scope: ScopeId, stack: StackId, symbols: &mut Symbolizer) -> (String, Source) {
        let place = self.snapshot.scopes.place(scope);
        if let Some(name) = place.operator_name() {
            return (row_name(&name), Source::Annotated);
        }
        let (snapshot, patterns) = (self.snapshot, self.patterns);
        let from_stack = self.by_stack.entry(stack).or_insert_with(|| {
            let frames = symbols.stack(&snapshot.frame_keys(stack));
            patterns.name(frames.iter().map(|frame| frame.function.as_str()))
        });
        let (operator, source) = match from_stack {
            Some(name) => (name.as_str(), Source::NamedFromStack),
            None if place.phase.is_some() => ("(no operator)", Source::Unattributed),
            None => ("(unattributed)", Source::Unattributed),
        };
        (row_name(&format!("{}.{operator}", place.prefix())), source)
    }
}

/// Full names longer than this many characters lose their middle: nobody reads them, and there may be many.
const MAX_NAME: usize = 1000;

/// The name of a row: the root module has none, so that names in it would begin with a dot.
pub(super) fn row_name(name: &str) -> String {
    shorten_middle(name.trim_start_matches('.'), MAX_NAME)
}
