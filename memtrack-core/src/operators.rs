//! Reports of programs about their operators: the tensors that they take and make, and which of these are
//! parameters, gradients and optimizer state. Together with the scopes, which contain the running code, this
//! determines the categories of memory.
//!
//! Recorded only if [`Options::operators`](crate::recorder::Options::operators) requests it; otherwise each
//! call is a load and a branch. [`#[track_memory]`](crate::track_memory) reads the arguments and results of
//! annotated functions itself; [`operator`] is for other code.
//!
//! Reports are converted to numbers immediately: no tensor lives longer because of them, and a panic in an
//! implementation of [`ReportTensors`] ends only that report, not the program.

#[doc(inline)]
pub use memtrack_recorder::operators::{
    Dtype, Operator, ReportTensors, TensorInfo, TensorReader, buffers, gradient, is_recorded, operator,
    optimizer_state, parameters,
};
