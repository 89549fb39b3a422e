//! Takes the stack of the calling thread as raw return addresses. Called by the recorder for every event that keeps a
//! stack; it never allocates after a thread's first capture, never takes a lock and never looks up a symbol.
//!
//! Three methods, the cheapest that works first: frame pointers (if a self-check at the start of monitoring found the
//! program built with them, and only while the chain reaches the thread's bottom), framehop with reuse of the
//! thread's previous stack, and the `backtrace` crate if neither is possible (another architecture, a stack that is
//! not the thread's own).
//!
//! **Why not `backtrace` alone?** For 46 frames it takes 4.5 µs; framehop with reuse takes 92 ns, frame pointers 36
//! (docs/COSTS.md).

mod bounds;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod foreign;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod frame_pointers;
mod registers;
mod slow;
#[cfg(test)]
mod tests;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod unwind;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod unwind_tables;

pub(crate) use bounds::StackBounds;
pub(crate) use registers::Registers;
#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
pub(crate) use unwind_tables::MAX_COPIED_BYTES;

/// The most frames of one stack. Of a deeper one the innermost are kept.
pub(crate) const MAX_FRAMES: usize = 256;

/// The method by which stacks are taken in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMethod {
    /// Along the frame pointers.
    FramePointers,
    /// framehop with the previous stack reused.
    Unwinder,
    /// `backtrace::trace_unsynchronized`.
    Backtrace,
}

/// The buffers for captures, for one thread at a time: the addresses of its newest stack, **outermost first** (so
/// that the common part of two stacks is at the same indices), and the unwinder's state. Some 370 KB, of which a
/// thread with few call sites touches only a part.
pub(crate) struct Capture {
    addresses: [u64; MAX_FRAMES],
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    unwind: unwind::ThreadUnwinder,
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    chain: frame_pointers::ThreadChain,
    /// The words copied from stacks that are not the thread's.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    foreign: Vec<u64>,
}

impl Capture {
    /// Makes buffers for any thread. Allocates, and needs some 100 KB of stack in a debug build.
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            addresses: [0; MAX_FRAMES],
            #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
            unwind: unwind::ThreadUnwinder::new(),
            #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
            chain: frame_pointers::ThreadChain::new(),
            #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
            foreign: Vec::new(),
        })
    }

    /// Drops the previous stack, because another thread takes over.
    pub(crate) fn forget(&mut self) {
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        {
            self.unwind.forget();
            self.chain.forget();
        }
    }

    /// Takes the stack that begins at `registers`, those of a frame of the calling thread that still exists, by the
    /// method chosen for the process. `bounds` are the thread's.
    ///
    /// Returns return addresses, outermost first.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[inline(always)]
    pub(crate) fn take(&mut self, registers: &Registers, bounds: &StackBounds) -> &[u64] {
        if !bounds.contain(registers.sp) {
            return foreign::take(&mut self.unwind, &mut self.foreign, registers);
        }
        if frame_pointers::proven() {
            // Read twice because a borrow that is returned on one path only is held on all (Polonius).
            if self.chain.walk(registers, bounds).is_some() {
                return self.chain.newest();
            }
        }
        let addresses = self.unwind.walk(registers, bounds);
        // The last resort walks from here, which may be another stack by now.
        let here = Registers::here();
        if !addresses.is_empty() || !bounds.contain(here.sp) {
            addresses
        } else {
            slow::take(&mut self.addresses)
        }
    }

    /// Takes the stack of the calling thread.
    ///
    /// Returns return addresses, outermost first.
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    #[inline(always)]
    pub(crate) fn take(&mut self, _registers: &Registers, bounds: &StackBounds) -> &[u64] {
        // On a separate stack there is nothing to find.
        if bounds.contain(Registers::here().sp) { slow::take(&mut self.addresses) } else { &[] }
    }

    /// Takes the stack by one method, for benchmarks and tests; `None` if it does not work.
    #[doc(hidden)]
    pub(crate) fn take_by(&mut self, method: CaptureMethod, bounds: &StackBounds) -> Option<&[u64]> {
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
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

/// Reads the loaded modules and decides by a self-check whether frame pointers can be trusted. Called when monitoring
/// starts, outside any hook: it takes the dynamic linker's lock and allocates.
pub fn prepare() -> CaptureMethod {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    {
        unwind_tables::refresh();
        {
            // It walks outside a hook.
            let _unchanged = unwind_tables::lock_known();
            frame_pointers::self_check();
        }
        if frame_pointers::proven() { CaptureMethod::FramePointers } else { CaptureMethod::Unwinder }
    }
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    CaptureMethod::Backtrace
}

/// Learns modules that were loaded since monitoring started, for a new stack with these `addresses`. Returns whether
/// there was one: then the stack may have been truncated and is worth taking again.
pub(crate) fn learn_binaries_of(addresses: &[u64]) -> bool {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return unwind_tables::learn(addresses);
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    {
        let _ = addresses;
        false
    }
}

/// A binary that is no longer loaded.
pub(crate) struct Unloaded {
    /// Its code, at the addresses in stored stacks.
    pub(crate) code: std::ops::Range<u64>,
    /// Its module in recordings.
    pub(crate) module: Option<memtrack_model::snapshot::Module>,
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    gone: unwind_tables::UnloadedBinary,
}

impl Unloaded {
    /// Makes sure that code loaded at its addresses later is distinguished from it, because stacks of recordings
    /// contain them.
    pub(crate) fn reserve_addresses(&self) {
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        unwind_tables::reserve(&self.gone);
    }
}

/// Compares with the binaries that are loaded now, and returns those unloaded since the last call. Never inside a
/// hook: it takes the dynamic linker's lock, except in a forked child, where that may be locked for ever.
pub(crate) fn unloaded() -> Vec<Unloaded> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    {
        unwind_tables::refresh();
        let convert = |binary: unwind_tables::UnloadedBinary| Unloaded {
            code: binary.code.clone(),
            module: binary.module.clone(),
            gone: binary,
        };
        unwind_tables::take_unloaded().into_iter().map(convert).collect()
    }
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    Vec::new()
}

/// Returns a loaded binary for recordings; none if its addresses are in no stack while those of another one are.
pub(crate) fn as_recorded(
    module: memtrack_model::snapshot::Module,
) -> Option<memtrack_model::snapshot::Module> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return unwind_tables::as_recorded(module);
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    Some(module)
}

/// Returns the binaries for a forked child, from its parent's list. Takes no lock of the loader's.
pub(crate) fn listed_in_child(
    of_parent: Vec<memtrack_model::snapshot::Module>,
) -> Vec<memtrack_model::snapshot::Module> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return unwind_tables::listed_in_child(of_parent);
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    of_parent
}

/// Relocates a new stack's addresses before they are stored: an address in a recording has one meaning, even
/// after binaries were unloaded.
pub(crate) fn relocate(addresses: &mut [u64]) {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    unwind_tables::relocate(addresses);
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    let _ = addresses;
}

/// Returns a number that changes when binaries were learned: a recording's module list is then incomplete.
pub(crate) fn binaries_generation() -> u32 {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return unwind_tables::generation();
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    0
}
