//! A small reverse-mode autodiff engine over a simulated device, with a well-known mistake of such engines: a backward
//! closure that captures the tensor which owns the closure. Neither is ever freed, and their device memory is lost until the
//! program ends. The fix is one line, in [`operators::tanh`].
//!
//! Code for memtrack is marked `memtrack:`.

pub mod device;
pub mod operators;
pub mod tensor;
pub mod training;

/// Whether the engine makes the mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Each step leaves a cycle behind.
    Mistake,
    /// The closure has a weak pointer.
    Fixed,
}
