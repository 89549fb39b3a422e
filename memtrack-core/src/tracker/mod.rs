//! temporary
pub(crate) fn reset_after_fork() {}
