//! Captures the stack of the calling thread as raw return addresses. The recorder calls this for every event with a
//! stack, so it never allocates after a thread's first capture, never takes a lock and never looks up a symbol.
//!
//! There are three methods, and the cheapest that works is used. The first is frame pointers, if a self-check at
//! the start of monitoring found that the program was built with them, and only if the chain reaches the bottom of the
//! thread's stack. The second is framehop with reuse of the thread's previous stack. The last is the `backtrace` crate,
//! if neither of the others is possible (as on other architectures).
//!
//! **Why not `backtrace` alone?** For 46 frames, it takes 4.5 µs, whereas framehop with reuse takes 92 ns and frame
//! pointers take 36 ns (docs/COSTS.md).

mod bounds;
#[cfg(target_arch = "x86_64")]
mod foreign;
#[cfg(target_arch = "x86_64")]
mod frame_pointers;
mod mappings;
mod registers;
mod slow;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod unwind;
#[cfg(target_arch = "x86_64")]
mod unwind_tables;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_unwind_tables.rs"]
mod unwind_tables;

pub(crate) use bounds::StackBounds;
pub(crate) use registers::Registers;
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) use unwind_tables::MAX_COPIED_BYTES;
pub(in crate::stack) use unwind_tables::binary_at;
pub(crate) use unwind_tables::{
    as_recorded, generation as binaries_generation, listed_in_child, load as load_binaries_of, relocate,
    reserve as reserve_addresses, unloaded,
};

/// The maximum number of frames in a stack. If a stack is deeper, its innermost frames are kept.
pub(crate) const MAX_FRAMES: usize = 256;

/// A method of capturing stacks. Each process uses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMethod {
    /// Following the chain of frame pointers.
    FramePointers,
    /// Unwinding with framehop, reusing the previous stack.
    Unwinder,
    /// `backtrace::trace_unsynchronized`.
    Backtrace,
}

/// The buffers for captures, which one thread uses at a time. They hold the addresses of its newest stack, **outermost
/// first** (so that the common part of two stacks is at the same indices), and the unwinder's state. They take about
/// 370 KB, of which a thread with few call sites touches only a part.
pub(crate) struct Capture {
    addresses: [u64; MAX_FRAMES],
    #[cfg(target_arch = "x86_64")]
    unwind: unwind::ThreadUnwinder,
    #[cfg(target_arch = "x86_64")]
    chain: frame_pointers::ThreadChain,
    /// A buffer for the words of foreign stacks, which are not the thread's own.
    #[cfg(target_arch = "x86_64")]
    foreign: Vec<u64>,
}

impl Capture {
    /// Creates buffers for any thread. Allocates, and needs about 100 KB of stack in a debug build.
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            addresses: [0; MAX_FRAMES],
            #[cfg(target_arch = "x86_64")]
            unwind: unwind::ThreadUnwinder::new(),
            #[cfg(target_arch = "x86_64")]
            chain: frame_pointers::ThreadChain::new(),
            #[cfg(target_arch = "x86_64")]
            foreign: Vec::new(),
        })
    }

    /// Drops the previous stack, because another thread will use the buffers.
    pub(crate) fn forget(&mut self) {
        #[cfg(target_arch = "x86_64")]
        {
            self.unwind.forget();
            self.chain.forget();
        }
    }

    /// Captures the stack that starts at `registers` with the method chosen for the process. `registers` must belong to a
    /// frame of the calling thread that still exists, and `bounds` must be the bounds of the thread's stack.
    ///
    /// Returns the return addresses, outermost first.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn take(&mut self, registers: &Registers, bounds: &StackBounds) -> &[u64] {
        if !bounds.contain(registers.sp) {
            return foreign::take(&mut self.unwind, &mut self.foreign, registers);
        }
        if frame_pointers::is_verified() {
            // This takes two calls, because the borrow checker extends a borrow that is returned on one path to all
            // paths (Polonius would accept it).
            if self.chain.walk(registers, bounds).is_some() {
                return self.chain.newest();
            }
        }
        let addresses = self.unwind.walk(registers, bounds);
        // The last resort walks from here, which may be on a separate stack by now.
        let here = Registers::here();
        if !addresses.is_empty() || !bounds.contain(here.sp) {
            addresses
        } else {
            slow::take(&mut self.addresses)
        }
    }

    /// Captures the stack of the calling thread.
    ///
    /// Returns the return addresses, outermost first.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub(crate) fn take(&mut self, _registers: &Registers, bounds: &StackBounds) -> &[u64] {
        // The thread's frames cannot be walked from a separate stack.
        if bounds.contain(Registers::here().sp) { slow::take(&mut self.addresses) } else { &[] }
    }

    /// Captures the stack with the given method, for benchmarks and tests. Returns `None` if the method does not work.
    #[doc(hidden)]
    pub(crate) fn take_by(&mut self, method: CaptureMethod, bounds: &StackBounds) -> Option<&[u64]> {
        #[cfg(target_arch = "x86_64")]
        {
            let registers = Registers::here();
            match method {
                CaptureMethod::FramePointers => {
                    return self.chain.walk(&registers, bounds);
                }
                CaptureMethod::Unwinder => {
                    return Some(self.unwind.walk(&registers, bounds))
                        .filter(|addresses| !addresses.is_empty());
                }
                CaptureMethod::Backtrace => {}
            }
        }
        (method == CaptureMethod::Backtrace).then(|| slow::take(&mut self.addresses))
    }
}

/// Reads the loaded modules, and determines by a self-check whether frame pointers can be trusted. This is called when
/// monitoring starts. It must not be called inside a hook, because it takes the dynamic linker's lock and allocates.
pub fn prepare() -> CaptureMethod {
    #[cfg(target_arch = "x86_64")]
    {
        unwind_tables::refresh();
        {
            // The self-check walks outside a hook, so the tables must be locked.
            let _unchanged = unwind_tables::lock_known();
            frame_pointers::self_check();
        }
        if frame_pointers::is_verified() { CaptureMethod::FramePointers } else { CaptureMethod::Unwinder }
    }
    #[cfg(not(target_arch = "x86_64"))]
    CaptureMethod::Backtrace
}
