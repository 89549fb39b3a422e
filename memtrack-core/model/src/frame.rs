//! Frames with names, and what names them: writers and reports take any [`NameFrames`], so they need not know where
//! names come from.

use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

/// One function of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The function's readable name, or `libfoo.so+0x1234 [build id abcdef012345]` where the binary was not found.
    pub function: String,
    /// The source file.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
    /// The binary that the function is in, where that is known.
    pub binary: Option<Arc<Binary>>,
}

/// Without the binary, whose path is long and nearly always follows from the rest.
impl Hash for Frame {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.function, &self.file, self.line).hash(state);
    }
}

/// A binary that a program runs: its executable, or a library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Binary {
    /// Its path when it was recorded.
    pub path: String,
    /// How it belongs to the program.
    pub part: BinaryPart,
}

/// How a binary belongs to the program that runs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BinaryPart {
    /// The program itself.
    Program,
    /// A library that lies with the program: in its folder, below it, or in the `lib` beside its `bin`.
    WithProgram,
    /// Any other library.
    #[default]
    Library,
}

/// Names the frames of stacks.
pub trait NameFrames {
    /// The functions of the frame that [`Snapshot::frame_keys`](crate::Snapshot::frame_keys) calls `key`: the innermost
    /// inlined one first, the one it was compiled into last. Never empty: a frame without a name is given its number.
    fn frames(&mut self, key: u64) -> Rc<[Frame]>;
}
