//! A small reverse-mode autodiff engine over a pretended device, with a mistake that such engines are known for: a backward
//! closure that captures the tensor which keeps the closure. Nothing frees the two, and their device memory is gone until the
//! program ends. The fix is one line, in [`operators::tanh`].
//!
//! What is there for memtrack is marked `memtrack:`.

pub mod device;
pub mod operators;
pub mod tensor;
pub mod training;

/// Whether the mistake is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Each step leaves a cycle behind.
    Mistake,
    /// It is a weak pointer.
    Fixed,
}
