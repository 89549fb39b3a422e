//! The fast path of the machine, for the encoding of events and stacks in nearly all files.

pub(super) mod burst;
pub(super) mod runs;
pub(super) mod spelled;
pub(super) mod stencil;
