//! The state that must be new in a forked child. The parent's other threads do not exist in the child, but the locks that
//! they held stay locked for ever. So everything protected by a lock, and each count that restarts, is in a [`ForkCell`],
//! which adds itself to a list that the child traverses. The parent's tables are leaked in the child: copy-on-write
//! pages that are never accessed again. Some state of the recorder cannot be in a cell: [`in_child`] lists it, with the
//! reason.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The cells that a forked child empties: a lock-free list.
static CELLS: AtomicPtr<Link> = AtomicPtr::new(std::ptr::null_mut());

/// An entry of the list; it is never freed.
struct Link {
    /// The cell's pointer to its value, of any type; null while the cell is empty.
    value: &'static AtomicPtr<()>,
    /// The entry that was added before this one.
    next: *mut Link,
}

impl Link {
    /// Adds a cell that forked children will empty.
    fn register(value: &'static AtomicPtr<()>) {
        let link = Box::into_raw(Box::new(Self { value, next: std::ptr::null_mut() }));
        let mut first = CELLS.load(Ordering::Acquire);
        loop {
            // SAFETY: the entry was just created, and no other thread can access it before it is in the list.
            unsafe { (*link).next = first };
            match CELLS.compare_exchange_weak(first, link, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// Empties all cells of the list, in a forked child.
    fn empty_all() {
        let mut link = CELLS.load(Ordering::Acquire).cast_const();
        // SAFETY: entries of the list are neither freed nor changed.
        while let Some(entry) = unsafe { link.as_ref() } {
            entry.value.store(std::ptr::null_mut(), Ordering::Release);
            link = entry.next;
        }
    }
}

/// A lazily initialized value that lives for ever, except that a forked child abandons it.
pub struct ForkCell<T: 'static> {
    /// A leaked box of a `T`; null while the cell is empty.
    value: AtomicPtr<()>,
    /// Whether the cell is in the list, or need not be because children keep its value.
    is_linked: AtomicBool,
    make: fn() -> T,
}

impl<T: Send> ForkCell<Mutex<T>> {
    /// Locks the value, also if a thread has panicked while it had locked it: the recording goes on.
    #[inline(always)]
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        self.get().lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + Sync> ForkCell<T> {
    /// Creates an empty cell, which a forked child empties again.
    pub const fn new(make: fn() -> T) -> Self {
        Self { value: AtomicPtr::new(std::ptr::null_mut()), is_linked: AtomicBool::new(false), make }
    }

    /// Creates an empty cell whose value forked children keep. The value must contain no lock.
    pub const fn inherited(make: fn() -> T) -> Self {
        Self { is_linked: AtomicBool::new(true), ..Self::new(make) }
    }

    /// Returns the value, which is created on first use. If two threads race, each creates a value and the loser's is
    /// dropped.
    #[inline(always)]
    pub fn get(&'static self) -> &'static T {
        // SAFETY: a pointer in the cell comes from a leaked box of a `T` and is never freed.
        match unsafe { self.value.load(Ordering::Acquire).cast::<T>().as_ref() } {
            Some(value) => value,
            None => self.fill(),
        }
    }

    #[cold]
    fn fill(&'static self) -> &'static T {
        let _inside = crate::reentry::enter();
        let fresh = Box::into_raw(Box::new((self.make)()));
        // Linked before there is a value, so that the cell is in the list whenever a child inherits a value. Threads
        // that race each link it rather than wait for each other: a second entry in the list is harmless.
        if !self.is_linked.load(Ordering::Acquire) {
            Link::register(&self.value);
            self.is_linked.store(true, Ordering::Release);
        }
        let none = std::ptr::null_mut();
        let won = self.value.compare_exchange(none, fresh.cast(), Ordering::AcqRel, Ordering::Acquire);
        match won {
            // SAFETY: the box was just created, and is leaked from here on.
            Ok(_) => unsafe { &*fresh },
            Err(other) => {
                // SAFETY: the exchange failed, so no other thread has a pointer to this box.
                drop(unsafe { Box::from_raw(fresh) });
                // SAFETY: as in `get`.
                unsafe { &*other.cast::<T>() }
            }
        }
    }

    /// Leaks the value; the next `get` creates another.
    pub fn forget(&self) {
        self.value.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Returns whether the cell has a value.
    pub fn is_made(&self) -> bool {
        !self.value.load(Ordering::Acquire).is_null()
    }
}

/// The number of forks between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Returns a number that changes in a forked child: state with another generation belongs to a parent.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Registers the handler that makes children of later forks start with new tables. Called when monitoring starts;
/// further calls have no effect.
pub fn watch() {
    static REGISTERED: std::sync::Once = std::sync::Once::new();
    // SAFETY: the handler is a plain function that stays loaded; it only stores to atomics and thread-locals without
    // destructors, which is allowed between fork and exec.
    REGISTERED.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

extern "C" fn in_child() {
    // Done first, so that functions called from here on know that this is another process.
    GENERATION.fetch_add(1, Ordering::Relaxed);
    Link::empty_all();
    super::same_memory::mark_child();
    // This state is in no cell, because every event reads it and a cell is one more pointer to follow: the states of all
    // threads with the sums that samples compare, the calling thread's thread-locals, and the filter of tracked heap
    // blocks.
    super::threads::reset_after_fork();
    super::current_thread::reset_after_fork();
    crate::host::reset_after_fork();
    super::counted_peak::clear();
    super::hooks::resume_after_fork();
}
