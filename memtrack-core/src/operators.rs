//! What programs say of their operators: which tensors they take and make, and which of them are parameters, gradients
//! and optimizer state. With the scopes, which say what is running, this is what memory is categorised by.
//!
//! Recorded only where [`Options::operators`](crate::recorder::Options::operators) asks for it; otherwise each call is a
//! load and a branch. [`#[track_memory]`](crate::track_memory) reads the arguments and results of annotated
//! functions by itself; [`operator`] is for the rest.
//!
//! What the program hands over is described as numbers on the spot: no tensor lives longer for it, and a panic in an
//! implementation of [`ReportTensors`] ends in the report, not in the program.

#[doc(inline)]
pub use memtrack_recorder::operators::{
    Dtype, Operator, ReportTensors, TensorInfo, TensorReader, buffers, gradient, is_recorded, operator,
    optimizer_state, parameters,
};
