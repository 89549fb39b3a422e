//! What happens to a request: memory is found, taken, waited for, given back, or refused.

pub(crate) mod deferred_frees;
pub(crate) mod events;
pub(crate) mod expandable;
pub(crate) mod free;
pub(crate) mod malloc;
pub(crate) mod oom;
pub(crate) mod release;
