//! Memory of the recorder's own, from pages of its own. The program's heap is none of its business: it may be in the
//! middle of a change when the recorder runs (a signal's handler that ends the process, an allocator that calls back),
//! and then whoever asks it for memory waits for ever.

use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

/// An allocator over pages from the kernel, behind one lock: the recorder seldom needs memory.
pub(super) struct OwnMemory {
    pages: UnsafeCell<Dlmalloc>,
    lock: Lock,
}

// SAFETY: `pages` is reached through `with` alone, which holds the lock.
unsafe impl Sync for OwnMemory {}

impl OwnMemory {
    pub(super) const fn new() -> Self {
        Self { pages: UnsafeCell::new(Dlmalloc::new()), lock: Lock(AtomicU32::new(FREE)) }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Dlmalloc) -> R) -> R {
        // A signal may come at any point of this.
        HELD.set(true);
        self.lock.take();
        // SAFETY: the lock is held, and `act` is one of dlmalloc's own functions, which come back here for nothing.
        let result = act(unsafe { &mut *self.pages.get() });
        self.lock.give();
        HELD.set(false);
        result
    }
}

// SAFETY: dlmalloc keeps the promises of `GlobalAlloc`, and one thread at a time is in it.
unsafe impl GlobalAlloc for &OwnMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        self.with(|pages| unsafe { pages.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        self.with(|pages| unsafe { pages.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises.
        self.with(|pages| unsafe { pages.free(block, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises.
        self.with(|pages| unsafe { pages.realloc(block, layout.size(), layout.align(), size) })
    }
}

thread_local! {
    /// Whether this thread has the lock, or is about to.
    static HELD: Cell<bool> = const { Cell::new(false) };
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Somebody may sleep.
const AWAITED: u32 = 2;

/// A lock that a fork can carry over, and that never allocates.
struct Lock(AtomicU32);

impl Lock {
    fn take(&self) {
        if self.0.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            self.futex(libc::FUTEX_WAIT, AWAITED);
        }
    }

    fn give(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            self.futex(libc::FUTEX_WAKE, 1);
        }
    }

    fn futex(&self, operation: i32, value: u32) {
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: a word that lives for ever; every thread has an `errno`, which stays as it was.
        unsafe {
            let errno = *libc::__errno_location();
            libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, value, null::<libc::timespec>());
            *libc::__errno_location() = errno;
        }
    }
}

/// Has forks wait until nobody is in the allocator, so that the child finds it whole.
pub(super) fn prepare() {
    // SAFETY: plain functions that stay loaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
}

/// Where a signal's handler that interrupted the allocator forks, the lock is this thread's already; both processes go on
/// with what was interrupted, and so give it back.
extern "C" fn before_fork() {
    if !HELD.get() {
        super::OWN_MEMORY.lock.take();
    }
}

extern "C" fn after_fork() {
    if !HELD.get() {
        super::OWN_MEMORY.lock.give();
    }
}
