//! How many tests run at once. Libtest runs as many as there are processors, which is right for tests that compute; where they
//! wait, for a child or for time to pass, a processor is idle meanwhile.
//!
//! **Why set before `main`?** A setting of cargo's cannot count processors. Programs whose tests mostly wait run twice as
//! many at once.

use std::env;
use std::thread::available_parallelism;

/// What libtest reads.
const THREADS: &str = "RUST_TEST_THREADS";

/// Has libtest run twice as many tests of this program at once, unless it is told how many.
#[macro_export]
macro_rules! tests_wait {
    () => {
        /// Called before `main`, which reads the environment.
        #[cfg(target_os = "linux")]
        #[allow(unsafe_code)]
        #[used]
        // SAFETY: the section holds pointers to functions of this kind.
        #[unsafe(link_section = ".init_array")]
        static TWICE_AS_MANY: extern "C" fn() = $crate::at_once::twice_as_many;
    };
}

/// For [`tests_wait!`](crate::tests_wait).
#[allow(unsafe_code)]
pub extern "C" fn twice_as_many() {
    if env::var_os(THREADS).is_none() {
        let processors = available_parallelism().map_or(1, |count| count.get());
        // SAFETY: before `main` there is no other thread.
        unsafe { env::set_var(THREADS, (2 * processors).to_string()) };
    }
}
