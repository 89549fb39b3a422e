//! Named frames and stacks of them. PyTorch's files contain these, and symbolising a recording's raw addresses produces
//! them.

use super::pytorch::{Key, Records, Shape};
use super::{Snapshot, StringId};
use crate::event::StackId;
use crate::frame::Binary;
use std::borrow::Cow;
use std::sync::Arc;

/// The id of a frame in a [`FrameTable`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct FrameId(pub u32);

impl FrameId {
    /// Returns the id as an index into its table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Distinct frames, with the function, file, line and everything else that a file contains about them, as [`Records`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameTable {
    /// The frames as dictionaries.
    pub records: Records,
    /// The frames' binaries, where they are known, by [`FrameId`]. The list may be shorter than the table and is not
    /// stored in files.
    pub binaries: Vec<Option<Arc<Binary>>>,
}

impl FrameTable {
    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the function's name.
    pub fn name(&self, frame: FrameId) -> StringId {
        self.records.text(frame.index(), Key::Name)
    }

    /// Returns the file, or the binary if the frame is not symbolised.
    pub fn filename(&self, frame: FrameId) -> StringId {
        self.records.text(frame.index(), Key::Filename)
    }

    /// Returns the line, or the offset in the binary if the frame is not symbolised.
    pub fn line(&self, frame: FrameId) -> u64 {
        self.records.number(frame.index(), Key::Line)
    }

    /// Returns the binary that contains the function, if it is known.
    pub fn binary(&self, frame: FrameId) -> Option<&Arc<Binary>> {
        self.binaries.get(frame.index())?.as_ref()
    }

    /// Stores the binary that contains the function of `frame`.
    pub fn set_binary(&mut self, frame: FrameId, binary: Arc<Binary>) {
        if self.binaries.len() <= frame.index() {
            self.binaries.resize(frame.index() + 1, None);
        }
        self.binaries[frame.index()] = Some(binary);
    }

    /// Appends a frame in PyTorch's form.
    pub fn push(&mut self, name: StringId, filename: StringId, line: u64) -> FrameId {
        if self.records.shapes.is_empty() {
            self.records.shapes.push(Shape::of(&[Key::Name, Key::Filename, Key::Line]));
        }
        let row = self.records.push(0);
        self.records.set(row, Key::Name, name.0.into());
        self.records.set(row, Key::Filename, filename.0.into());
        self.records.set(row, Key::Line, line);
        FrameId(row as u32)
    }
}

/// Stacks of named frames, innermost first, with the same [`StackId`]s as in [`super::StackTable`]. A snapshot from
/// PyTorch has only these; a recording has only raw addresses until `SnapshotFiles::as_pytorch` converts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedStacks {
    /// The frames of stack `id` are at `ends[id - 1] .. ends[id]`; stack 0 is empty.
    ends: Vec<u64>,
    frames: Vec<FrameId>,
}

impl Default for NamedStacks {
    fn default() -> Self {
        Self { ends: vec![0], frames: Vec::new() }
    }
}

impl Snapshot {
    /// Returns the keys with which [`NameFrames`] looks up the frames of a stack: return addresses, or frame numbers in a
    /// PyTorch snapshot.
    ///
    /// [`NameFrames`]: crate::NameFrames
    pub fn frame_keys(&self, stack: StackId) -> Cow<'_, [u64]> {
        if self.pytorch.is_none() {
            return Cow::Borrowed(self.stacks.get(stack));
        }
        self.named.get(stack).iter().map(|frame| frame.0.into()).collect()
    }
}

impl NamedStacks {
    /// Returns the number of stacks, including the empty one.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is no stack other than the empty one.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Returns the frames of a stack, innermost first. The result is empty if the id is from another table.
    pub fn get(&self, stack: StackId) -> &[FrameId] {
        let Some(&end) = self.ends.get(stack.index()) else { return &[] };
        let start = if stack.is_none() { 0 } else { self.ends[stack.index() - 1] };
        &self.frames[start as usize..end as usize]
    }

    /// Appends a stack and returns its id, which is its row.
    ///
    /// # Panics
    /// Panics after 2^32 stacks.
    pub fn push(&mut self, frames: impl IntoIterator<Item = FrameId>) -> StackId {
        let id = u32::try_from(self.ends.len()).expect("more than 4 G stacks");
        self.frames.extend(frames);
        self.ends.push(self.frames.len() as u64);
        StackId(id)
    }

    /// Returns the number of bytes of memory that the table takes.
    pub fn used_bytes(&self) -> u64 {
        (self.ends.capacity() * 8 + self.frames.capacity() * 4) as u64
    }
}
