//! The bounds of a thread's stack, so that a walk never reads outside it.
#![allow(unsafe_code)]

use super::mappings;

/// The address range `low..high` of a thread's stack, which is empty if the system does not provide it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackBounds {
    low: u64,
    high: u64,
}

/// Returns whether the calling thread is the process's first one.
fn is_main_thread() -> bool {
    // SAFETY: both calls only return numbers.
    unsafe { libc::syscall(libc::SYS_gettid) == libc::syscall(libc::SYS_getpid) }
}

/// Returns the limit of the main thread's stack, in bytes; `None` if there is none.
fn stack_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call writes to the local variable.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } == 0;
    Some(limit.rlim_cur).filter(|&bytes| is_known && bytes != libc::RLIM_INFINITY)
}

impl StackBounds {
    /// Queries the bounds of the calling thread's stack, once per thread. The C library is asked, except about the main thread,
    /// and if the thread may hold locks of the program's allocator, which the C library's function would call.
    pub(crate) fn of_this_thread() -> Self {
        if is_main_thread() || crate::reentry::is_mapping() {
            return Self::from_list_of_mappings().unwrap_or(Self { low: 0, high: 0 });
        }
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut low: *mut libc::c_void = std::ptr::null_mut();
        let mut size: libc::size_t = 0;
        // SAFETY: pthread_getattr_np initializes the attributes when it returns 0, and they are read and destroyed only
        // in that case. The out-pointers are local variables.
        unsafe {
            if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
                return Self { low: 0, high: 0 };
            }
            let result = libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            if result != 0 {
                return Self { low: 0, high: 0 };
            }
        }
        Self { low: low as u64, high: low as u64 + size as u64 }
    }

    /// Finds the mapping that contains the stack in the system's list, without allocating memory. `None` if there is no such
    /// list.
    fn from_list_of_mappings() -> Option<Self> {
        if is_main_thread() {
            // SAFETY: the call returns a number from memory that the system prepared.
            let inside = unsafe { libc::getauxval(libc::AT_RANDOM) };
            let (below, mapping) = mappings::around(inside)?;
            // The mapping grows as the stack does, at most up to its limit and to the mapping below.
            let grown = stack_limit().map_or(0, |limit| mapping.end.saturating_sub(limit));
            return Some(Self { low: below.max(grown).min(mapping.start), high: mapping.end });
        }
        // The C library puts a thread's control block at the end of the thread's stack.
        // SAFETY: the call returns the address of that block.
        let high = unsafe { libc::pthread_self() } as u64;
        let (_, mapping) = mappings::around(high)?;
        Some(Self { low: mapping.start, high })
    }

    /// Returns whether `sp` points into this stack.
    #[inline(always)]
    pub(crate) fn contain(&self, sp: u64) -> bool {
        sp >= self.low && sp < self.high
    }

    /// Returns whether `sp` points into this stack and at least `bytes` are left below it.
    #[inline(always)]
    pub(crate) fn has_below(&self, sp: u64, bytes: u64) -> bool {
        sp < self.high && sp >= self.low.saturating_add(bytes)
    }

    /// Returns the word at `address` if it lies between `sp`, the lowest address in use, and the bottom of the stack,
    /// which is its highest address.
    #[inline(always)]
    pub(crate) fn read(&self, sp: u64, address: u64) -> Option<u64> {
        if address < sp || address > self.high.wrapping_sub(8) || address & 7 != 0 || !self.contain(sp) {
            return None;
        }
        // SAFETY: the address is aligned and lies in the part of this thread's own stack that is in use, which is
        // mapped and readable.
        Some(unsafe { (address as *const u64).read() })
    }

    /// Returns the two words at `address` if both lie between `sp` and the bottom of the stack.
    #[inline(always)]
    pub(crate) fn read_pair(&self, sp: u64, address: u64) -> Option<(u64, u64)> {
        if address < sp || address > self.high.wrapping_sub(16) || address & 7 != 0 || !self.contain(sp) {
            return None;
        }
        // SAFETY: as in `read`, for both words.
        Some(unsafe { Self::read_known_pair(address) })
    }

    /// Returns the two words at an address that has already been checked.
    ///
    /// # Safety
    /// `read_pair` must have accepted `address` for this thread's bounds, and `address` must not be below the thread's
    /// current stack pointer.
    #[inline(always)]
    pub(super) unsafe fn read_known_pair(address: u64) -> (u64, u64) {
        let words = address as *const [u64; 2];
        // SAFETY: the caller guarantees that the address is aligned, mapped and in use.
        let [first, second] = unsafe { words.read() };
        (first, second)
    }
}
