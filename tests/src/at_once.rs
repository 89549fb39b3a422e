//! The number of tests that run in parallel. Libtest runs one per processor, which suits tests that compute. A test that waits
//! for a child or for time to pass leaves its processor idle, so programs whose tests mostly wait run twice as many.
//!
//! **Why is it set before `main`?** Cargo's configuration can set the variable, but cannot count processors.

use std::env;
use std::thread::available_parallelism;

/// The variable that libtest reads.
const THREADS: &str = "RUST_TEST_THREADS";

/// Makes libtest run twice as many tests of this program in parallel, unless the variable is set.
#[macro_export]
macro_rules! tests_wait {
    () => {
        /// Called before `main`, because libtest reads the environment in `main`.
        #[cfg(target_os = "linux")]
        #[allow(unsafe_code)]
        #[used]
        // SAFETY: the section contains pointers to functions of this type.
        #[unsafe(link_section = ".init_array")]
        static TWICE_AS_MANY: extern "C" fn() = $crate::at_once::twice_as_many;
    };
}

/// Sets the number of parallel tests for [`tests_wait!`](crate::tests_wait).
#[allow(unsafe_code)]
pub extern "C" fn twice_as_many() {
    if env::var_os(THREADS).is_none() {
        let processors = available_parallelism().map_or(1, |count| count.get());
        // SAFETY: no other thread exists before `main`.
        unsafe { env::set_var(THREADS, (2 * processors).to_string()) };
    }
}
