//! What programs report about their operators: which tensors they take and make, and which of them are parameters, gradients
//! and optimizer state. Together with the scopes, which say what is running, this determines the categories of memory.
//!
//! Recorded only where [`Options::operators`](crate::recorder::Options::operators) asks for it; otherwise each call is a
//! load and a branch. [`#[track_memory]`](crate::track_memory) reads the arguments and results of annotated
//! functions by itself; [`operator`] is for the rest.
//!
//! What the program reports is turned into numbers immediately: no tensor lives longer because of it, and a panic in an
//! implementation of [`ReportTensors`] ends only that report, not the program.

#[doc(inline)]
pub use memtrack_recorder::operators::{
    Dtype, Operator, ReportTensors, TensorInfo, TensorReader, buffers, gradient, is_recorded, operator,
    optimizer_state, parameters,
};
