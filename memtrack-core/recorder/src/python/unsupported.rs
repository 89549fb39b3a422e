//! Platforms on which the frames of Python are not read.

use memtrack_model::event::StackId;

/// Returns none, because no stack has Python frames.
pub(crate) fn stack_with(_hash: u64, _generation: u32) -> Option<StackId> {
    None
}

/// Stores nothing.
pub(crate) fn store(_hash: u64, _generation: u32, _stack: StackId) {}

/// The buffer for the Python frames of a stack, which stays empty.
pub(crate) struct PythonFrames;

impl PythonFrames {
    pub(crate) const fn new() -> Self {
        Self
    }

    /// Returns the hash unchanged.
    #[inline(always)]
    pub(crate) fn add_to(&mut self, hash: u64) -> u64 {
        hash
    }

    /// Changes nothing, and returns false.
    pub(crate) fn insert_into(&self, _outermost_first: &mut Vec<u64>) -> bool {
        false
    }
}
