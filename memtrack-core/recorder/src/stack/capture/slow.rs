//! The platform's unwinder through the `backtrace` crate, which is the last resort. It takes about 5 µs for 47 frames.
//!
//! **Why does it not symbolize?** With the recorded build id, addresses can also be symbolized later, and on other
//! machines.
#![allow(unsafe_code)]

use super::MAX_FRAMES;

/// Fills `addresses` from its end with the calling thread's stack, and returns the stack, outermost first.
#[cold]
pub(super) fn take(addresses: &mut [u64; MAX_FRAMES]) -> &[u64] {
    let mut from = MAX_FRAMES;
    // SAFETY: `trace_unsynchronized` only requires that no other thread uses the crate's *symbol* machinery at the same
    // time on platforms where walking needs it (Windows). On the platforms supported here, it only calls
    // `_Unwind_Backtrace`, which is thread-safe.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            from -= 1;
            addresses[from] = frame.ip() as u64;
            from > 0
        });
    }
    &addresses[from..]
}
