//! Programs people would really write with memtrack; each lies in `src/bin`.
//!
//! The language model that `train` records is a library, because other programs run it too: a benchmark with
//! tracking off, a test that counts its bytes. It goes from [`data`] (characters in, batches out) through
//! [`model`] (the modules) and [`operators`] (what the modules compute) to [`training`] (the loop).
//!
//! [`driver`] finds a CUDA driver for `cuda_candle_like`. [`pool`] is a pool allocator for a simulated device, which `custom_allocator` reports from.

pub mod config;
pub mod data;
pub mod driver;
pub mod model;
pub mod operators;
pub mod pool;
pub mod training;
