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

pub(crate) use bounds::StackBounds;
pub(crate) use registers::Registers;
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) use unwind_tables::MAX_COPIED_BYTES;
#[cfg(target_arch = "x86_64")]
pub(in crate::stack) use unwind_tables::binary_at;

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

/// Loads the unwind tables of binaries that are still unknown, for a new stack with these `addresses`. Returns whether
/// any tables were loaded, in which case the stack may have been truncated and should be captured again.
pub(crate) fn load_binaries_of(addresses: &[u64]) -> bool {
    #[cfg(target_arch = "x86_64")]
    return unwind_tables::load(addresses);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = addresses;
        false
    }
}

/// A binary that is no longer loaded.
pub(crate) struct Unloaded {
    /// The range of addresses that the binary's code has in stored stacks.
    pub(crate) code: std::ops::Range<u64>,
    /// The binary's entry in a recording's list of modules.
    pub(crate) module: Option<memtrack_model::snapshot::Module>,
    #[cfg(target_arch = "x86_64")]
    binary: unwind_tables::UnloadedBinary,
}

impl Unloaded {
    /// Ensures that code that is later loaded at the same addresses is distinguished from this binary's code, because
    /// stored stacks contain these addresses.
    pub(crate) fn reserve_addresses(&self) {
        #[cfg(target_arch = "x86_64")]
        unwind_tables::reserve(&self.binary);
    }
}

/// Returns the binaries that were unloaded since the last call. Must not be called inside a hook, because it takes the
/// dynamic linker's lock, except in a forked child, where that lock may be held forever.
pub(crate) fn unloaded() -> Vec<Unloaded> {
    #[cfg(target_arch = "x86_64")]
    {
        unwind_tables::refresh();
        let convert = |binary: unwind_tables::UnloadedBinary| Unloaded {
            code: binary.code.clone(),
            module: binary.module.clone(),
            binary,
        };
        unwind_tables::take_unloaded().into_iter().map(convert).collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

/// Returns a loaded binary as it is recorded, or `None` if its addresses are reserved for an unloaded binary and no stack
/// goes through the loaded one.
pub(crate) fn as_recorded(
    module: memtrack_model::snapshot::Module,
) -> Option<memtrack_model::snapshot::Module> {
    #[cfg(target_arch = "x86_64")]
    return unwind_tables::as_recorded(module);
    #[cfg(not(target_arch = "x86_64"))]
    Some(module)
}

/// Returns the binaries for a forked child, based on its parent's list. Takes no lock of the dynamic linker.
pub(crate) fn listed_in_child(
    parent_modules: Vec<memtrack_model::snapshot::Module>,
) -> Vec<memtrack_model::snapshot::Module> {
    #[cfg(target_arch = "x86_64")]
    return unwind_tables::listed_in_child(parent_modules);
    #[cfg(not(target_arch = "x86_64"))]
    parent_modules
}

/// Relocates a new stack's addresses before they are stored, so that each address in a recording refers to the code of
/// only one binary, even after binaries have been unloaded.
pub(crate) fn relocate(addresses: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    unwind_tables::relocate(addresses);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = addresses;
}

/// Returns a number that changes when the known binaries change, which makes a recording's list of modules outdated.
pub(crate) fn binaries_generation() -> u32 {
    #[cfg(target_arch = "x86_64")]
    return unwind_tables::generation();
    #[cfg(not(target_arch = "x86_64"))]
    0
}
