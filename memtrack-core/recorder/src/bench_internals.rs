//! Internals that the benchmarks in `benches/` measure individually. Not part of the API: requires feature
//! `bench-internals`.

pub use crate::stack::capture::CaptureMethod;
use crate::stack::capture::{Capture, Registers, StackBounds, prepare};

/// Buffers for captures on the calling thread.
pub struct Captures(Box<Capture>, StackBounds);

impl Captures {
    /// Prepares the process and the calling thread for captures.
    pub fn new() -> Self {
        prepare();
        Self(Capture::new(), StackBounds::of_this_thread())
    }

    /// Returns the capture method that monitoring would choose in this process.
    pub fn chosen() -> CaptureMethod {
        prepare()
    }

    /// Captures the stack as the recorder does and returns the number of frames.
    #[inline(always)]
    pub fn take(&mut self) -> usize {
        self.0.take(&Registers::here(), &self.1).len()
    }

    /// Captures the stack with the given method; returns the addresses, outermost first.
    #[inline(always)]
    pub fn take_by(&mut self, method: CaptureMethod) -> Option<&[u64]> {
        self.0.take_by(method, &self.1)
    }
}

impl Default for Captures {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the hash that identifies a stack in the interner.
pub fn hash(addresses: &[u64]) -> u64 {
    crate::stack::intern::hash(addresses)
}

/// Reads the recorder's clock once.
pub fn ticks() -> u64 {
    crate::events::ticks()
}

/// Returns a different number for each thread, starting from 0.
pub fn thread_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}
