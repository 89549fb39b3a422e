//! The steps of a request: allocating, freeing, waiting for streams, mapping and releasing memory, and failing.

pub(crate) mod events;
pub(crate) mod expandable;
pub(crate) mod free;
pub(crate) mod malloc;
pub(crate) mod oom;
pub(crate) mod private_pools;
pub(crate) mod release;
