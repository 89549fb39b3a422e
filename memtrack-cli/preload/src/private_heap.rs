//! A separate heap for the recorder, on its own pages. The recorder must not use the program's heap, which may be in
//! the middle of a change when the recorder runs, for example in a signal handler that ends the process, or when the
//! program's allocator itself makes a recorded call. In that case, an allocation from the program's heap would deadlock.

use super::pages::Pages;
use dlmalloc::Dlmalloc;
use memtrack_recorder::errno;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

/// An allocator over pages from the kernel, behind a single lock. One lock is enough because the recorder seldom
/// allocates.
pub(super) struct PrivateHeap {
    pages: UnsafeCell<Dlmalloc<Pages>>,
    lock: Lock,
}

// SAFETY: `pages` is accessed only through `with`, which holds the lock.
unsafe impl Sync for PrivateHeap {}

impl PrivateHeap {
    pub(super) const fn new() -> Self {
        Self {
            pages: UnsafeCell::new(Dlmalloc::new_with_allocator(Pages::new())),
            lock: Lock(AtomicU32::new(FREE)),
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Dlmalloc<Pages>) -> R) -> R {
        // This is set before locking, because a signal may arrive at any point.
        IN_ALLOCATOR.set(true);
        self.lock.acquire();
        // SAFETY: the lock is held, and `act` is one of dlmalloc's own functions, which do not call back.
        let result = act(unsafe { &mut *self.pages.get() });
        self.lock.release();
        IN_ALLOCATOR.set(false);
        result
    }
}

// SAFETY: dlmalloc fulfils the contract of `GlobalAlloc`, and is called by one thread at a time.
unsafe impl GlobalAlloc for &PrivateHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of `GlobalAlloc`, which is dlmalloc's too.
        self.with(|pages| unsafe { pages.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of `GlobalAlloc`, which is dlmalloc's too.
        self.with(|pages| unsafe { pages.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract of `GlobalAlloc`, which is dlmalloc's too.
        self.with(|pages| unsafe { pages.free(block, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of `GlobalAlloc`, which is dlmalloc's too.
        self.with(|pages| unsafe { pages.realloc(block, layout.size(), layout.align(), size) })
    }
}

thread_local! {
    /// Whether this thread holds the lock, or is about to acquire it.
    static IN_ALLOCATOR: Cell<bool> = const { Cell::new(false) };
}

const FREE: u32 = 0;
const LOCKED: u32 = 1;
/// Locked, and other threads may be sleeping until it is released.
const CONTENDED: u32 = 2;

/// A lock that survives a fork, and that never allocates.
struct Lock(AtomicU32);

impl Lock {
    fn acquire(&self) {
        if self.0.compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            self.futex(libc::FUTEX_WAIT, CONTENDED);
        }
    }

    fn release(&self) {
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            self.futex(libc::FUTEX_WAKE, 1);
        }
    }

    fn futex(&self, operation: i32, value: u32) {
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word is in a static.
        errno::preserving(|| unsafe {
            libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, value, null::<libc::timespec>());
        });
    }
}

/// Makes forks wait until no thread is in the allocator, so that the child's copy of it is consistent.
pub(super) fn prepare() {
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
}

/// Acquires the lock, unless a signal handler that interrupted the allocator forks. In that case, this thread already
/// holds the lock, and both processes then continue the interrupted allocation, which releases the lock.
extern "C" fn before_fork() {
    if !IN_ALLOCATOR.get() {
        super::PRIVATE_HEAP.lock.acquire();
    }
}

extern "C" fn after_fork() {
    if !IN_ALLOCATOR.get() {
        super::PRIVATE_HEAP.lock.release();
    }
}
