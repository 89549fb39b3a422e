//! Determines which functions of a stack an export contains. As in `memtrack top`, the ownership rules remove frames
//! that only forward calls, and the stack starts with the function that requested the memory.

use memtrack_blocks::origin::Origin;
use memtrack_frames::ownership::{Owner, Owners, Rules, short};
use memtrack_frames::trim::is_internal;
use memtrack_model::{Frame, Snapshot};
use memtrack_symbols::Symbolizer;

/// The inlined functions at one key, followed by the function that contains them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InlinedFrames {
    /// A return address in a recording, or the index of a frame in PyTorch's files.
    pub(crate) key: u64,
    /// The functions, innermost first. There is at least one.
    pub(crate) frames: Vec<Frame>,
}

/// A stack, or the texts that take its place.
#[derive(Clone, Debug)]
pub(crate) enum ExportedStack {
    /// A stack, with the functions at each key, innermost first. There is at least one key.
    Stack(Vec<InlinedFrames>),
    /// The texts for blocks without a stack, innermost first.
    Unknown(Vec<String>),
}

/// A lookup of the functions in stacks.
pub(crate) struct Stacks<'a> {
    snapshot: &'a Snapshot,
    owners: Owners<'a>,
}

impl<'a> Stacks<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, rules: &'a Rules) -> Self {
        Self { snapshot, owners: Owners::new(rules) }
    }

    /// Returns the stack, or the texts that take its place, for blocks with this origin.
    pub(crate) fn look_up(&mut self, origin: Origin, symbols: &mut Symbolizer) -> ExportedStack {
        match (origin, origin.stack_placeholder()) {
            (Origin::Allocated(stack), _) => {
                let keys = self.snapshot.frame_keys(stack);
                ExportedStack::Stack(self.visible_functions(&keys, symbols))
            }
            (Origin::Freed(stack), instead) => {
                let owned = self.owners.owner(&self.snapshot.frame_keys(stack), symbols);
                let freed_at = owned.mine.or(owned.called).map(|frame| format!("freed at {}", short(&frame)));
                ExportedStack::Unknown(freed_at.into_iter().chain(instead.map(str::to_owned)).collect())
            }
            (_, instead) => ExportedStack::Unknown(instead.map(str::to_owned).into_iter().collect()),
        }
    }

    fn visible_functions(&mut self, keys: &[u64], symbols: &mut Symbolizer) -> Vec<InlinedFrames> {
        let functions = self.owners.functions(keys, symbols);
        // The innermost frames only forward an allocation. They are left out, because tools that rank functions by self
        // bytes would attribute the allocation to them.
        let forwards = |(frame, owner): &(Frame, Owner)| *owner == Owner::Noise || is_internal(frame);
        let first = functions.iter().position(|function| !forwards(function));
        // If every frame only forwards, all frames are visible.
        let is_visible =
            |index: usize, owner: Owner| first.is_none_or(|first| index >= first && owner != Owner::Noise);
        let mut functions = functions.into_iter().enumerate();
        let mut visible_keys = Vec::with_capacity(keys.len());
        for &key in keys {
            let at_key = functions.by_ref().take(symbols.frames(key).len());
            let visible = at_key.filter(|(index, (_, owner))| is_visible(*index, *owner));
            let frames: Vec<Frame> = visible.map(|(_, (frame, _))| frame).collect();
            if !frames.is_empty() {
                visible_keys.push(InlinedFrames { key, frames });
            }
        }
        visible_keys
    }
}

/// Returns a frame's file, if it is known. PyTorch writes `??` for an unknown file.
pub(crate) fn file_of(frame: &Frame) -> Option<&str> {
    frame.file.as_deref().filter(|file| !file.is_empty() && *file != "??")
}

/// Returns a frame's line, if it is known.
pub(crate) fn line_of(frame: &Frame) -> Option<u32> {
    frame.line.filter(|&line| line > 0)
}
