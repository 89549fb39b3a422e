//! The bounds of a thread's stack, so that a walk never reads outside it.
#![allow(unsafe_code)]

/// The calling thread's stack: `low..high` in bytes. Empty if the system does not provide it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackBounds {
    low: u64,
    high: u64,
}

impl StackBounds {
    /// Queries the system. For the main thread glibc reads `/proc/self/maps`: tens of microseconds, once per thread.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_this_thread() -> Self {
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut low: *mut libc::c_void = std::ptr::null_mut();
        let mut size: libc::size_t = 0;
        // SAFETY: pthread_getattr_np initialises the attributes when it returns 0, and only then are they read and
        // destroyed; the out-pointers are local variables.
        unsafe {
            if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
                return Self { low: 0, high: 0 };
            }
            let got = libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            if got != 0 {
                return Self { low: 0, high: 0 };
            }
        }
        Self { low: low as u64, high: low as u64 + size as u64 }
    }

    /// Unknown on other systems, so nothing is read.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of_this_thread() -> Self {
        Self { low: 0, high: 0 }
    }

    /// Returns whether `sp` points into this stack.
    #[inline(always)]
    pub(crate) fn contain(&self, sp: u64) -> bool {
        sp >= self.low && sp < self.high
    }

    /// Returns whether `sp` points into this stack, and `bytes` lie below it.
    #[inline(always)]
    pub(crate) fn has_below(&self, sp: u64, bytes: u64) -> bool {
        sp < self.high && sp >= self.low.saturating_add(bytes)
    }

    /// Returns the word at `address`, if it lies between `sp`, the lowest address in use, and the bottom of the
    /// stack.
    #[inline(always)]
    pub(crate) fn read(&self, sp: u64, address: u64) -> Option<u64> {
        if address < sp || address > self.high.wrapping_sub(8) || address & 7 != 0 || !self.contain(sp) {
            return None;
        }
        // SAFETY: the address is aligned and within the part of this thread's own stack that is in use, from its
        // stack pointer to its bottom, which is mapped and readable.
        Some(unsafe { (address as *const u64).read() })
    }

    /// Returns the two words at `address`, if both lie between `sp` and the bottom of the stack.
    #[inline(always)]
    pub(crate) fn read_pair(&self, sp: u64, address: u64) -> Option<(u64, u64)> {
        if address < sp || address > self.high.wrapping_sub(16) || address & 7 != 0 || !self.contain(sp) {
            return None;
        }
        // SAFETY: as in `read`, for both words.
        Some(unsafe { Self::read_known_pair(address) })
    }

    /// Returns the two words at an address that was checked before.
    ///
    /// # Safety
    /// `address` must be one that `read_pair` of this thread's bounds accepted, and not be below its stack pointer
    /// now.
    #[inline(always)]
    pub(super) unsafe fn read_known_pair(address: u64) -> (u64, u64) {
        let words = address as *const [u64; 2];
        // SAFETY: aligned, mapped and in use (the caller's promise).
        let [first, second] = unsafe { words.read() };
        (first, second)
    }
}
