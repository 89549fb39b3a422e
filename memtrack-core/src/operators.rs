//! The functions that programs call to report their operators: which tensors an operator reads and creates, and which
//! tensors are parameters, gradients and optimizer state. Together with the scopes, these reports determine the
//! categories of memory.
//!
//! Reports are recorded only if [`Options::operators`](crate::recorder::Options::operators) requests it; otherwise each
//! call is just a load and a branch. [`#[track_memory]`](crate::track_memory) reads the arguments and results of
//! annotated functions itself; [`operator`] is for all other code.
//!
//! A report is converted to numbers immediately, so it does not extend a tensor's lifetime. If an implementation of
//! [`ReportTensors`] panics, only that report ends, not the program.

#[doc(inline)]
pub use memtrack_recorder::operators::{
    Dtype, Operator, ReportTensors, TensorInfo, TensorReader, buffers, gradient, is_recorded, operator,
    optimizer_state, parameters,
};
