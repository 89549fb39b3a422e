//! A program's own texts for its blocks (PyTorch's `user_metadata`). An allocation event carries the text that its
//! thread had set, and an `annotate` event may later give the block a more precise name.

use memtrack_blocks::lifetimes::Lifetime;
use memtrack_model::event::{Action, DeviceId, ScopeId};
use memtrack_model::snapshot::pytorch::{Key, PyTorch};
use memtrack_model::snapshot::{Snapshot, StringId};
use std::collections::HashMap;

/// The texts of one device's blocks.
#[derive(Default)]
pub(super) struct Texts<'a> {
    source: Option<(&'a Snapshot, &'a PyTorch)>,
    /// Texts from later annotations, by the row of the block's allocation.
    annotated: HashMap<usize, StringId>,
    /// Texts for blocks that are older than the trace, by address.
    annotated_older: HashMap<u64, StringId>,
}

impl<'a> Texts<'a> {
    /// Collects the texts for the blocks of `device`. A recording that is not in PyTorch's format has none.
    pub(super) fn of_device(snapshot: &'a Snapshot, device: DeviceId) -> Self {
        let Some(pytorch) = snapshot.pytorch.as_deref() else { return Self::default() };
        let mut texts = Self { source: Some((snapshot, pytorch)), ..Self::default() };
        let events = &snapshot.events;
        if events.action.contains(&Action::Annotate) {
            // For each address at which a block is live, the row of the block's allocation.
            let mut open: HashMap<u64, usize> = HashMap::new();
            for row in events.rows_of(device) {
                let address = events.address[row];
                match events.action[row] {
                    Action::Alloc => {
                        open.insert(address, row);
                    }
                    Action::Free | Action::FreeRequested | Action::FreeCompleted => {
                        open.remove(&address);
                    }
                    Action::Annotate => texts.annotate(open.get(&address).copied(), address, row),
                    _ => {}
                }
            }
        }
        texts
    }

    fn annotate(&mut self, block: Option<usize>, address: u64, row: usize) {
        let Some(text) = self.event_text(row) else { return };
        match block {
            Some(block) => self.annotated.insert(block, text),
            None => self.annotated_older.insert(address, text),
        };
    }

    /// Returns the text of a block, or `None` if it has none or the text is empty.
    pub(super) fn block_text(&self, lifetime: &Lifetime) -> Option<StringId> {
        let (snapshot, _) = self.source?;
        let annotated = match (lifetime.from, lifetime.to, lifetime.block) {
            (Some(from), ..) => self.annotated.get(&from),
            (None, Some(to), _) => self.annotated_older.get(&snapshot.events.address[to]),
            (None, None, Some(block)) => {
                let block = snapshot.blocks.get(block as usize)?;
                self.annotated_older.get(&block.address)
            }
            (None, None, None) => None,
        };
        annotated.copied().or_else(|| self.event_text(lifetime.from.or(lifetime.to)?))
    }

    /// Returns the text of a block if the program wrote it. Texts that memtrack wrote, for scopes and for the weights
    /// of samples, are ignored.
    pub(super) fn program_text(&self, lifetime: &Lifetime) -> Option<StringId> {
        let (snapshot, pytorch) = self.source?;
        let event = lifetime.from.or(lifetime.to);
        let has_scope = lifetime.scope != ScopeId::NONE
            || event.is_some_and(|row| snapshot.events.scope[row] != ScopeId::NONE);
        let is_internal = |text: StringId| has_scope || pytorch.samples.has(text);
        self.block_text(lifetime).filter(|&text| !is_internal(text))
    }

    fn event_text(&self, row: usize) -> Option<StringId> {
        let (_, pytorch) = self.source?;
        let has = pytorch.events.has(row, Key::UserMetadata);
        let text = has.then(|| pytorch.events.text(row, Key::UserMetadata));
        text.filter(|&text| text != StringId::EMPTY)
    }
}
