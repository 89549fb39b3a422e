//! The state that must be new in the child of a `fork`. Other threads do not exist there, but the locks they held
//! stay locked for ever; so everything behind a lock, and each count that restarts, is in a [`ForkCell`], which links
//! itself into a list that the child traverses. The parent's tables are leaked in the child: copy-on-write pages that
//! are never accessed again. Some of the recorder's own state cannot be in a cell: [`in_child`] lists it, with the
//! reason.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// The cells that the child of a fork empties: a lock-free list.
static CELLS: AtomicPtr<Link> = AtomicPtr::new(std::ptr::null_mut());

/// An entry of the list; it is never freed.
struct Link {
    /// The cell's value, of any type; null for none.
    value: &'static AtomicPtr<()>,
    /// The entry that was made before.
    next: *mut Link,
}

impl Link {
    /// Registers a cell for children to empty.
    fn register(value: &'static AtomicPtr<()>) {
        let link = Box::into_raw(Box::new(Self { value, next: std::ptr::null_mut() }));
        let mut first = CELLS.load(Ordering::Acquire);
        loop {
            // SAFETY: just made, and unknown to other threads before it is in the list.
            unsafe { (*link).next = first };
            match CELLS.compare_exchange_weak(first, link, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// Empties all cells of the list, in the child of a fork.
    fn empty_all() {
        let mut link = CELLS.load(Ordering::Acquire).cast_const();
        // SAFETY: entries of the list are never freed, and no longer changed.
        while let Some(entry) = unsafe { link.as_ref() } {
            entry.value.store(std::ptr::null_mut(), Ordering::Release);
            link = entry.next;
        }
    }
}

/// A lazily made value that lives for ever, or until the process becomes a child, which abandons it.
pub struct ForkCell<T: 'static> {
    /// A leaked box of a `T`; null for none.
    value: AtomicPtr<()>,
    /// Whether the cell is in the list, or stays out of it because a child keeps its value: then nothing locks it.
    is_linked: AtomicBool,
    make: fn() -> T,
}

impl<T: Send + Sync> ForkCell<T> {
    /// Makes an empty cell, which is empty again in a child.
    pub const fn new(make: fn() -> T) -> Self {
        Self { value: AtomicPtr::new(std::ptr::null_mut()), is_linked: AtomicBool::new(false), make }
    }

    /// Makes an empty cell whose value a child keeps.
    pub const fn inherited(make: fn() -> T) -> Self {
        Self { is_linked: AtomicBool::new(true), ..Self::new(make) }
    }

    /// Returns the value, made on first use. Two threads that race each make one; the loser's is dropped.
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
        // Linked before there is a value, so that no child finds a value that is never emptied. Threads that race
        // each link it, and none relies on another that has not finished: a second entry in the list does no harm.
        if !self.is_linked.load(Ordering::Acquire) {
            Link::register(&self.value);
            self.is_linked.store(true, Ordering::Release);
        }
        let none = std::ptr::null_mut();
        let won = self.value.compare_exchange(none, fresh.cast(), Ordering::AcqRel, Ordering::Acquire);
        match won {
            // SAFETY: just made, and leaked from here on.
            Ok(_) => unsafe { &*fresh },
            Err(other) => {
                // SAFETY: the exchange failed, so no other thread has seen this box.
                drop(unsafe { Box::from_raw(fresh) });
                // SAFETY: as in `get`.
                unsafe { &*other.cast::<T>() }
            }
        }
    }

    /// Abandons the value; the next `get` makes another.
    pub fn forget(&self) {
        self.value.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Returns whether the value was made.
    pub fn is_made(&self) -> bool {
        !self.value.load(Ordering::Acquire).is_null()
    }
}

/// The number of forks between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Returns a number that changes in the child of a fork: state with another generation belongs to a parent.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Makes the child of every later fork start with new tables. Called when monitoring starts; once is enough.
pub fn watch() {
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
    // First: functions called from here on see that this is another process.
    GENERATION.fetch_add(1, Ordering::Relaxed);
    Link::empty_all();
    // These are in no cell, because each event reads them and a cell is one more pointer to follow: the states of all
    // threads with the sums that samples compare, the thread's own words, and which blocks of the heap are tracked.
    super::threads::reset_after_fork();
    super::current_thread::reset_after_fork();
    crate::host::reset_after_fork();
}
