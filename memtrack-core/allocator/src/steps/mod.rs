//! The steps of requests: allocate, free, wait for streams, map and release memory, and fail.

pub(crate) mod deferred_frees;
pub(crate) mod events;
pub(crate) mod expandable;
pub(crate) mod free;
pub(crate) mod malloc;
pub(crate) mod oom;
pub(crate) mod release;
