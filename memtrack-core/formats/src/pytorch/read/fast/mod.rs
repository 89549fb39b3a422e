//! The machine's fast path for events and stacks as nearly all files encode them.

pub(super) mod burst;
pub(super) mod matched;
pub(super) mod runs;
pub(super) mod stencil;
