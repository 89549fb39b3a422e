//! Programs people would really write with memtrack; each lies in `src/bin`. Those that need CUDA or an async runtime are
//! packages of their own in `cuda/` and `service/`.
//!
//! The language model that `train` records is a library, because other programs run it too: a benchmark with
//! tracking off, a test that counts its bytes. It goes from [`data`] (characters in, batches out) through
//! [`model`] (the modules) and [`operators`] (what the modules compute) to [`training`] (the loop). [`tensors`] describes
//! its tensors to memtrack, which then knows what its memory is for.
//!
//! [`pool`] is a pool allocator for a simulated device, which `custom_allocator` reports from.

pub mod config;
pub mod data;
pub mod model;
pub mod operators;
pub mod pool;
pub mod tensors;
pub mod training;
