//! A separate heap for the recorder, from its own pages. It must not use the program's heap: that may be in the
//! middle of a change when the recorder runs (a signal handler that ends the process, an allocator that calls back),
//! and then an allocation from it would wait for ever.

use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

/// An allocator over pages from the kernel, behind one lock: the recorder seldom needs memory.
pub(super) struct PrivateHeap {
    pages: UnsafeCell<Dlmalloc>,
    lock: Lock,
}

// SAFETY: `pages` is accessed through `with` alone, which holds the lock.
unsafe impl Sync for PrivateHeap {}

impl PrivateHeap {
    pub(super) const fn new() -> Self {
        Self { pages: UnsafeCell::new(Dlmalloc::new()), lock: Lock(AtomicU32::new(FREE)) }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Dlmalloc) -> R) -> R {
        // A signal may arrive at any point of this.
        HELD.set(true);
        self.lock.take();
        // SAFETY: the lock is held, and `act` is one of dlmalloc's own functions, which do not call back.
        let result = act(unsafe { &mut *self.pages.get() });
        self.lock.give();
        HELD.set(false);
        result
    }
}

// SAFETY: dlmalloc keeps the promises of `GlobalAlloc`, and is called by one thread at a time.
unsafe impl GlobalAlloc for &PrivateHeap {
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
    /// Whether this thread holds the lock, or is about to.
    static HELD: Cell<bool> = const { Cell::new(false) };
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// A thread may be sleeping.
const AWAITED: u32 = 2;

/// A lock that survives a fork, and that never allocates.
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
        // SAFETY: a word that lives for ever; every thread has an `errno`, which is preserved.
        unsafe {
            let errno = *libc::__errno_location();
            libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, value, null::<libc::timespec>());
            *libc::__errno_location() = errno;
        }
    }
}

/// Makes forks wait until no thread is in the allocator, so that the child finds it consistent.
pub(super) fn prepare() {
    // SAFETY: plain functions that stay loaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
}

/// If a signal handler that interrupted the allocator forks, this thread holds the lock already; both processes
/// continue the interrupted work, and so release it.
extern "C" fn before_fork() {
    if !HELD.get() {
        super::PRIVATE_HEAP.lock.take();
    }
}

extern "C" fn after_fork() {
    if !HELD.get() {
        super::PRIVATE_HEAP.lock.give();
    }
}
