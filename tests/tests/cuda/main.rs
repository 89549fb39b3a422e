//! The CUDA hook and the mock driver.

mod aarch64;
mod hook;
mod mock;
mod mock_work;
mod programs;
