//! The steps of a request: memory is found, reserved, waited for, released, or refused.

pub(crate) mod deferred_frees;
pub(crate) mod events;
pub(crate) mod expandable;
pub(crate) mod free;
pub(crate) mod malloc;
pub(crate) mod oom;
pub(crate) mod release;
