//! Replaces the modules `hook` and `run` where there is no hook: on another system, or with another C library.

pub(super) fn is_in_place() -> bool {
    false
}

pub(super) fn unknown_frees() -> u64 {
    0
}

/// Does nothing: a process without a hook handles no requests from `memtrack run`.
pub(crate) mod run {
    pub(crate) fn begin_if_requested() {}
}
