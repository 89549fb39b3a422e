//! Frames with names, and what names them: writers and reports take any [`NameFrames`], so they need not know where
//! names come from.

use std::rc::Rc;

/// One function of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function's readable name, or `libfoo.so+0x1234 [build id abcdef012345]` where the binary was not found.
    pub function: String,
    /// The source file.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
}

/// Names the frames of stacks.
pub trait NameFrames {
    /// The functions of the frame that [`Snapshot::frame_keys`](crate::Snapshot::frame_keys) calls `key`: the innermost
    /// inlined one first, the one it was compiled into last. Never empty: a frame without a name is given its number.
    fn frames(&mut self, key: u64) -> Rc<[Frame]>;
}
