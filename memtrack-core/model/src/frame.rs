//! Frames with names, and the trait that produces them. Writers and reports accept any [`NameFrames`], so they do not
//! depend on the source of the names.

use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

/// One function in a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The function's readable name, or `libfoo.so+0x1234 [build id abcdef012345]` if the binary was not found.
    pub function: String,
    /// The source file.
    pub file: Option<String>,
    /// The line in the file, from 1.
    pub line: Option<u32>,
    /// The binary that contains the function, if it is known.
    pub binary: Option<Arc<Binary>>,
}

/// Excludes the binary, because its path is long and nearly always follows from the other fields.
impl Hash for Frame {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.function, &self.file, self.line).hash(state);
    }
}

/// A binary of a program: its executable or a library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Binary {
    /// The binary's path at the time of the recording.
    pub path: String,
    /// The binary's relation to the program.
    pub part: BinaryPart,
}

/// The relation of a binary to the program that runs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BinaryPart {
    /// The program itself.
    Program,
    /// A library installed with the program: in or below the program's folder, or in the `lib` folder next to the
    /// program's `bin` folder.
    WithProgram,
    /// Any other library.
    #[default]
    Library,
}

/// A source of names for the frames of stacks.
pub trait NameFrames {
    /// Returns the functions of the frame with the key `key`, which is one of
    /// [`Snapshot::frame_keys`](crate::Snapshot::frame_keys). The innermost inlined function comes first, and the
    /// function that it was compiled into comes last. The result is never empty, because a frame without a name gets
    /// its number as the name.
    fn frames(&mut self, key: u64) -> Rc<[Frame]>;
}
