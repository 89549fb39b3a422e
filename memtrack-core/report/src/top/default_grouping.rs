//! The default ranking for a snapshot: operators if they are known, and lines in the user's code otherwise. Stacks are
//! the last choice, because those of an unannotated program consist mostly of its frameworks' internals and take up ten
//! lines each.

use super::{By, TopOptions};
use memtrack_frames::attribution::{Attributor, Source};
use memtrack_frames::ownership::Owners;
use memtrack_model::event::{Action, ScopeId, StackId};
use memtrack_model::snapshot::{ScopeKind, Snapshot};
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;

impl By {
    /// Returns the default ranking for a snapshot: by operator if the snapshot has operator scopes, and otherwise by
    /// stack for PyTorch's files, because their stacks show the program's own code. Other recordings are ranked by
    /// operator if stacks name operators for at least half of the memory, and otherwise by line in the user's code. If
    /// there are no such lines, they are ranked by operator if stacks name any, and by stack if not.
    pub fn default_for(snapshot: &Snapshot, symbols: &mut Symbolizer, options: &TopOptions) -> Self {
        if has_operators(snapshot) {
            return Self::Operator;
        }
        if snapshot.pytorch.is_some() {
            return Self::Stack;
        }
        let mut attributor = Attributor::new(snapshot, &options.patterns);
        let mut owners = Owners::new(&options.rules);
        let (mut all, mut named, mut has_lines) = (0u64, 0u64, false);
        for (stack, bytes) in bytes_by_stack(snapshot) {
            all = all.saturating_add(bytes);
            let (_, source) = attributor.operator(ScopeId::NONE, stack, symbols);
            if source == Source::NamedFromStack {
                named = named.saturating_add(bytes);
            }
            has_lines = has_lines || owners.owner(&snapshot.frame_keys(stack), symbols).mine.is_some();
        }
        match (named, has_lines) {
            (1.., _) if named >= all - named => Self::Operator,
            (_, true) => Self::Line,
            (1.., false) => Self::Operator,
            (0, false) => Self::Stack,
        }
    }
}

fn has_operators(snapshot: &Snapshot) -> bool {
    let mut scopes = snapshot.scopes.rows.iter().skip(1);
    scopes.any(|scope| scope.kind == ScopeKind::Operator && !scope.name.is_empty())
}

/// Returns the bytes that each stack allocated or, if there are no events, the bytes of its live blocks.
fn bytes_by_stack(snapshot: &Snapshot) -> HashMap<StackId, u64, foldhash::fast::RandomState> {
    let mut bytes: HashMap<StackId, u64, foldhash::fast::RandomState> = HashMap::default();
    let mut add = |stack: StackId, more: u64| {
        let sum = bytes.entry(stack).or_default();
        *sum = sum.saturating_add(more);
    };
    let events = &snapshot.events;
    for row in (0..events.len()).filter(|&row| events.action[row] == Action::Alloc) {
        add(events.stack[row], snapshot.weighed_event(row).bytes);
    }
    if events.is_empty() {
        for (row, block) in snapshot.blocks.iter().enumerate() {
            add(block.stack, snapshot.weighed_block(row).bytes);
        }
    }
    bytes
}
