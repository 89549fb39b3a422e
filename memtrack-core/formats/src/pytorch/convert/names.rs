//! Names the frames of a recording's stacks. Each address is symbolized once, and stacks with equal names
//! become one stack.

use crate::pytorch::StringInterner;
use crate::pytorch::intern::StackInterner;
use memtrack_model::NameFrames;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::{FrameId, FrameTable, Snapshot, StringId};
use std::collections::HashMap;
use std::sync::Arc;

/// The tables of names, and the addresses, frames and stacks that have already been converted.
pub(super) struct NameTables<'a> {
    from: &'a Snapshot,
    symbols: &'a mut dyn NameFrames,
    pub(super) strings: StringInterner,
    pub(super) frames: FrameTable,
    pub(super) stacks: StackInterner,
    /// The frames at each address, including inlined ones.
    known_addresses: HashMap<u64, Box<[FrameId]>>,
    known_frames: HashMap<(StringId, StringId, u64), FrameId>,
    known_stacks: HashMap<StackId, StackId>,
}

impl<'a> NameTables<'a> {
    pub(super) fn new(from: &'a Snapshot, symbols: &'a mut dyn NameFrames) -> Self {
        Self {
            from,
            symbols,
            strings: StringInterner::default(),
            frames: FrameTable::default(),
            stacks: StackInterner::default(),
            known_addresses: HashMap::new(),
            known_frames: HashMap::new(),
            known_stacks: HashMap::new(),
        }
    }

    /// Returns the stack of named frames for a recorded stack.
    pub(super) fn convert_stack(&mut self, stack: StackId) -> StackId {
        if let Some(&known) = self.known_stacks.get(&stack) {
            return known;
        }
        let mut frames = Vec::new();
        for &address in self.from.stacks.get(stack) {
            if !self.known_addresses.contains_key(&address) {
                let named = self.convert_frames(address);
                self.known_addresses.insert(address, named);
            }
            frames.extend_from_slice(&self.known_addresses[&address]);
        }
        let named = self.stacks.intern(&frames);
        self.known_stacks.insert(stack, named);
        named
    }

    fn convert_frames(&mut self, address: u64) -> Box<[FrameId]> {
        let frames = self.symbols.frames(address);
        frames
            .iter()
            .map(|frame| {
                let name = self.strings.intern(frame.function.as_bytes());
                // This is PyTorch's text for an unknown file.
                let file = self.strings.intern(frame.file.as_deref().unwrap_or("??").as_bytes());
                let line = u64::from(frame.line.unwrap_or(0));
                let table = &mut self.frames;
                let new = || {
                    let id = table.push(name, file, line);
                    if let Some(binary) = &frame.binary {
                        table.set_binary(id, Arc::clone(binary));
                    }
                    id
                };
                *self.known_frames.entry((name, file, line)).or_insert_with(new)
            })
            .collect()
    }
}
