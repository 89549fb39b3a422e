//! The CUDA hook and the mock driver.
#![allow(unsafe_code)]

mod aarch64;
#[path = "../../src/cuda/books.rs"]
mod books;
#[path = "../../src/cuda/client.rs"]
mod client;
mod failed_frees;
mod failures;
mod forks;
mod hook;
mod lookups;
mod many;
mod mock;
mod mock_work;
#[path = "../../src/cuda/pool_blocks.rs"]
mod pool_blocks;
mod pools;
mod programs;
mod readings;
mod soak;
mod steps;

memtrack_tests::tests_wait!();
