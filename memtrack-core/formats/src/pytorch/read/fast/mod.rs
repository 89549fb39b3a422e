//! The fast path of the machine: what events and stacks are spelled by in nearly all files.

pub(super) mod burst;
pub(super) mod runs;
pub(super) mod spelled;
pub(super) mod stencil;
