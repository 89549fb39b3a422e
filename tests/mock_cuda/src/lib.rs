//! A CUDA driver for tests: a real `libcuda.so.1` whose device memory is host memory, so that copies really copy, and
//! that counts its allocations exactly. Everything that cudarc calls works except kernels, which do nothing; every other
//! known function returns 801, "not supported".
//!
//! Tests do not link it. They put it into a folder under both of its names (`memtrack_tests::mock_cuda::driver_dir`), start
//! a program with that folder in `LD_LIBRARY_PATH`, and read the counts through the `memtrack_mock_*` functions or the
//! summary that the mock writes at exit. `settings` lists the environment variables that configure it.
#![allow(unsafe_code, non_snake_case)]

mod arena;
mod call;
mod context;
mod counters;
mod device;
mod entry;
mod fork;
mod handle;
mod machine;
mod physical;
mod pool;
mod proc_address;
mod report;
mod settings;
mod status;
mod work;
