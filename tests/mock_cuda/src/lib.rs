//! A CUDA driver for tests: a real `libcuda.so.1` whose device memory is host memory, so that copies are true, and
//! that keeps exact books of what it gave out. Everything cudarc calls works but kernels, which do nothing; every other
//! known name answers 801, "not supported".
//!
//! Tests do not link it. They put it under its two names into a folder (`memtrack_tests::mock_cuda::driver_dir`), start
//! a program with that folder in `LD_LIBRARY_PATH`, and read the books through the `memtrack_mock_*` functions or the
//! summary it writes at exit. `settings` lists the environment variables that shape it.
#![allow(unsafe_code, non_snake_case)]

mod arena;
mod books;
mod call;
mod context;
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
