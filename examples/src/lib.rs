//! Realistic programs that use memtrack; each is in `src/bin`. Those that need CUDA or an async runtime are separate packages
//! in `cuda/` and `service/`.
//!
//! The language model that `train` records is a library, because other programs run it too: a benchmark with
//! tracking off, and a test that counts the model's bytes. It consists of [`data`] (characters in, batches out),
//! [`model`] (the modules), [`operators`] (their computations) and [`training`] (the loop). [`tensors`] describes
//! the model's tensors to memtrack, which then reports the purpose of their memory.
//!
//! [`pool`] is a pool allocator for a simulated device; the example `custom_allocator` uses it.

pub mod config;
pub mod data;
pub mod model;
pub mod operators;
pub mod pool;
pub mod tensors;
pub mod training;
