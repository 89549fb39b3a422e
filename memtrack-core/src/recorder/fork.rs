//! What must be fresh in the child of a `fork`. Other threads do not exist there, but the locks they held stay locked
//! for ever; so everything behind a lock hangs on a [`ForkCell`], which the child empties. The parent's tables are
//! leaked in the child: they are copy-on-write pages nobody touches again.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A lazily made value that lives for ever, or until the process becomes a child.
pub(crate) struct ForkCell<T: 'static> {
    value: AtomicPtr<T>,
    make: fn() -> T,
}

impl<T: Send + Sync> ForkCell<T> {
    /// An empty cell.
    pub(crate) const fn new(make: fn() -> T) -> Self {
        Self { value: AtomicPtr::new(std::ptr::null_mut()), make }
    }

    /// The value, made on first use. Two threads that race each make one; the loser's is dropped.
    #[inline(always)]
    pub(crate) fn get(&self) -> &'static T {
        // SAFETY: a pointer in the cell comes from a leaked box and is never freed.
        match unsafe { self.value.load(Ordering::Acquire).as_ref() } {
            Some(value) => value,
            None => self.fill(),
        }
    }

    #[cold]
    fn fill(&self) -> &'static T {
        let _own = crate::reentry::enter();
        let fresh = Box::into_raw(Box::new((self.make)()));
        let won =
            self.value.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
        match won {
            // SAFETY: just made, and leaked from here on.
            Ok(_) => unsafe { &*fresh },
            Err(other) => {
                // SAFETY: the exchange failed, so nobody else has seen this box.
                drop(unsafe { Box::from_raw(fresh) });
                // SAFETY: as in `get`.
                unsafe { &*other }
            }
        }
    }

    /// Whether the value was made.
    pub(crate) fn is_made(&self) -> bool {
        !self.value.load(Ordering::Acquire).is_null()
    }

    /// Leaves the value behind; the next `get` makes another.
    pub(crate) fn forget(&self) {
        self.value.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// How many forks lie between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Changes in the child of a fork: state that remembers another generation belongs to a parent.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has the child of every later fork start with fresh tables. Called when monitoring starts; once is enough.
pub(crate) fn watch() {
    #[cfg(unix)]
    {
        static WATCHED: std::sync::Once = std::sync::Once::new();
        // SAFETY: the handler is a plain function that stays loaded; it only stores to atomics and thread-locals
        // without destructors, which is allowed between fork and exec.
        WATCHED.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        });
    }
}

#[cfg(unix)]
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    crate::own::reset_after_fork();
    super::threads::reset_after_fork();
    super::mine::reset_after_fork();
    super::thread_names::reset_after_fork();
    super::hooks::reset_after_fork();
    super::kits::reset_after_fork();
    super::RECORDER.forget();
    super::scope_sums::reset_after_fork();
    super::session::reset_after_fork();
    super::binaries::reset_after_fork();
    super::inherit::reset_after_fork();
    super::keeper::reset_after_fork();
    super::oom::reset_after_fork();
    crate::host::reset_after_fork();
    crate::tracker::reset_after_fork();
    crate::monitor::reset_after_fork();
    crate::stack::capture::reset_after_fork();
    #[cfg(feature = "cuda")]
    crate::cuda::reset_after_fork();
}
