//! Platforms on which the frames of Python are not read.

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
