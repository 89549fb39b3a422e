//! The lines of Python: under `memtrack run`, the stack of a thread that runs Python also contains its Python frames.
//!
//! - `reader`: reads the frames in the program
//! - `unsupported`: the same functions where frames are not read
//! - `word`: the form of a frame in a recorded stack
//! - `merge`: puts the frames at their places among the native ones
//!
//! A recorded stack has its Python frames as [`FrameWord`]s; the command turns them into addresses with names.

mod merge;
#[cfg(target_arch = "x86_64")]
mod reader;
#[cfg(not(target_arch = "x86_64"))]
#[path = "unsupported.rs"]
mod reader;
mod word;

pub use merge::{UNMERGED, merge};
#[cfg(target_arch = "x86_64")]
pub use reader::functions;
pub(crate) use reader::*;
pub use word::{FrameWord, MAX_PYTHON_FRAMES};
