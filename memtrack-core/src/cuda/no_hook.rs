//! In the place of the hook, and of what `memtrack run` has it do, where there is none: another system, or another C
//! library.

pub(super) fn is_in_place() -> bool {
    false
}

pub(super) fn unknown_frees() -> u64 {
    0
}

pub(super) fn on_this_thread() {}

pub(super) fn reset_after_fork() {}

/// Nobody asks a process without a hook for anything.
pub(crate) mod run {
    pub(crate) fn begin_if_asked() {}

    pub(crate) fn ends_with_library() -> bool {
        false
    }

    pub(in crate::cuda) fn reset_after_fork() {}
}
