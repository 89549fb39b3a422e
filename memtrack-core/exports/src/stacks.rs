//! The functions of a stack as exports show them: without frames that only pass a call on, by the rules of ownership,
//! and from the function outwards that requested the memory, as `memtrack top` has them.

use memtrack_model::{Frame, Snapshot};
use memtrack_report::analysis::origin::Origin;
use memtrack_report::analysis::ownership::{Owner, Owners, Rules, short};
use memtrack_report::analysis::trim::is_internal;
use memtrack_symbols::Symbolizer;

/// The functions of one key: the inlined ones, then the one they were compiled into.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InlinedFrames {
    /// A return address, or the number of a frame.
    pub(crate) key: u64,
    /// Innermost first, at least one.
    pub(crate) frames: Vec<Frame>,
}

/// A stack, or a text in its place.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    /// Innermost first, at least one place.
    Stack(Vec<InlinedFrames>),
    /// Blocks without a stack: the texts in its place, innermost first.
    Unknown(Vec<String>),
}

/// A cache that names stacks.
pub(crate) struct Stacks<'a> {
    snapshot: &'a Snapshot,
    owners: Owners<'a>,
}

impl<'a> Stacks<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, rules: &'a Rules) -> Self {
        Self { snapshot, owners: Owners::new(rules) }
    }

    /// Returns the stack or text for blocks of that origin.
    pub(crate) fn shown(&mut self, origin: Origin, symbols: &mut Symbolizer) -> Shown {
        match (origin, origin.stack_placeholder()) {
            (Origin::Allocated(stack), _) => {
                let keys = self.snapshot.frame_keys(stack);
                Shown::Stack(self.places(&keys, symbols))
            }
            (Origin::Freed(stack), instead) => {
                let owned = self.owners.owner(&self.snapshot.frame_keys(stack), symbols);
                let freed_at = owned.mine.or(owned.called).map(|frame| format!("freed at {}", short(&frame)));
                Shown::Unknown(freed_at.into_iter().chain(instead.map(str::to_owned)).collect())
            }
            (_, instead) => Shown::Unknown(instead.map(str::to_owned).into_iter().collect()),
        }
    }

    fn places(&mut self, keys: &[u64], symbols: &mut Symbolizer) -> Vec<InlinedFrames> {
        let functions = self.owners.functions(keys, symbols);
        // The innermost frames only pass an allocation on; tools that rank functions by their own bytes would count
        // it for them.
        let carries = |(frame, owner): &(Frame, Owner)| *owner == Owner::Noise || is_internal(frame);
        let first = functions.iter().position(|function| !carries(function));
        // A stack that consists only of such frames is shown completely.
        let is_visible =
            |place: usize, owner: Owner| first.is_none_or(|first| place >= first && owner != Owner::Noise);
        let mut functions = functions.into_iter().enumerate();
        let mut places = Vec::with_capacity(keys.len());
        for &key in keys {
            let here = functions.by_ref().take(symbols.frames(key).len());
            let visible = here.filter(|(place, (_, owner))| is_visible(*place, *owner));
            let frames: Vec<Frame> = visible.map(|(_, (frame, _))| frame).collect();
            if !frames.is_empty() {
                places.push(InlinedFrames { key, frames });
            }
        }
        places
    }
}

/// Returns the file of a frame, if it is known: PyTorch writes `??` otherwise.
pub(crate) fn file_of(frame: &Frame) -> Option<&str> {
    frame.file.as_deref().filter(|file| !file.is_empty() && *file != "??")
}

/// Returns the line of a frame, if it is known.
pub(crate) fn line_of(frame: &Frame) -> Option<u32> {
    frame.line.filter(|&line| line > 0)
}
