//! Limits on a test's memory: on its peak, its leaks and its number of allocations. A test that exceeds a limit fails
//! and prints the lines of code that held the memory, with their stacks.
//!
//! ```
//! // The test program declares the allocator, once: tests/NAME.rs, or src/lib.rs under #[cfg(test)].
//! #[global_allocator]
//! static ALLOCATOR: memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();
//!
//! # fn parse(text: &str) -> Vec<u32> { text.split(',').filter_map(|number| number.parse().ok()).collect() }
//! use memtrack_core::testing::{Limits, limits};
//!
//! #[limits(peak = "64 KiB", leaks = 0, count = 1)]
//! # /*
//! #[test]
//! # */
//! fn parsing_takes_one_allocation() {
//!     assert_eq!(parse("1,2,3"), [1, 2, 3]);
//! }
//! # parsing_takes_one_allocation();
//!
//! // For a part of a test:
//! let numbers = Limits::new().peak(64 << 10).run(|| parse("1,2,3"));
//! # assert_eq!(numbers.len(), 3);
//! ```
//!
//! Numbers are exact, even while other tests run. A block counts towards the test in whose scope it was allocated,
//! regardless of which thread frees it. At first, only the test's own thread is in the test's scope. Other threads and
//! tasks enter it like any [`scope`](crate::scope):
//!
//! ```
//! # #[global_allocator]
//! # static ALLOCATOR: memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();
//! use memtrack_core::{scope, testing};
//!
//! let (_, used) = testing::measure(|| {
//!     let scope = scope::current();
//!     std::thread::spawn(move || {
//!         let _in_the_test = scope.enter();
//!         drop(vec![0_u8; 1 << 20]);
//!     })
//!     .join()
//! });
//! assert!(used.host().peak_bytes >= 1 << 20);
//! ```
//!
//! `scope.future(task)` does the same for each poll of a task. Memory that threads allocate outside the scopes of all
//! tests does not count towards any test; a failing test prints how much of it there was and on which threads.
//!
//! The repository's docs/TESTING.md has the details: what counts as a leak, devices, async tests, tests that should
//! panic, and the cost.

#[cfg(feature = "record")]
mod account;
#[cfg(feature = "record")]
mod body;
#[cfg(feature = "record")]
#[doc(hidden)]
pub mod expansion;
#[cfg(feature = "record")]
mod limits;
#[cfg(feature = "record")]
mod lines;
#[cfg(feature = "record")]
mod usage;
#[cfg(feature = "record")]
mod verdict;

#[cfg(feature = "record")]
pub use limits::Limits;
#[doc(inline)]
pub use memtrack_macros::limits;
#[cfg(feature = "record")]
pub use usage::{DeviceUsage, Usage, measure};
