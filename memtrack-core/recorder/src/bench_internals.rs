//! What the benchmarks in `benches/` measure one by one. Not API: feature `bench-internals` only.

pub use crate::stack::capture::CaptureMethod;
use crate::stack::capture::{Capture, Registers, StackBounds, prepare};

/// Room for captures on the calling thread.
pub struct Captures(Box<Capture>, StackBounds);

impl Captures {
    /// Prepares the process and the thread.
    pub fn new() -> Self {
        prepare();
        Self(Capture::new(), StackBounds::of_this_thread())
    }

    /// The method that monitoring would choose in this process.
    pub fn chosen() -> CaptureMethod {
        prepare()
    }

    /// Takes the stack as the recorder does; the number of frames.
    #[inline(always)]
    pub fn take(&mut self) -> usize {
        self.0.take(&Registers::here(), &self.1).len()
    }

    /// Takes the stack by one method; the addresses, outermost first.
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

/// The hash by which stacks are interned.
pub fn hash(addresses: &[u64]) -> u64 {
    crate::stack::intern::hash(addresses)
}

/// One reading of the recorder's clock.
pub fn ticks() -> u64 {
    crate::recorder::ticks()
}

/// A number for each thread, from 0.
pub fn thread_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local!(static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.with(|mine| *mine)
}
