//! A small reverse-mode autodiff engine over a simulated device, with a well-known mistake of such engines: a backward
//! closure that captures the tensor which owns it. Neither is ever freed, and their device memory stays allocated until the
//! program ends. The fix is one line, in [`operators::tanh`].
//!
//! Code for memtrack is marked `memtrack:`.

pub mod device;
pub mod operators;
pub mod tensor;
pub mod training;

/// Whether the engine contains the mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Each step leaves a cycle behind.
    Mistake,
    /// The closure captures a weak pointer instead.
    Fixed,
}
