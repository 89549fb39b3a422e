//! The registry's weak pointers, and the lists of them. A pointer to a sized value becomes a [`References`] trait object,
//! while a pointer to an unsized value needs a box.
//!
//! A list is not notified when a value is dropped, and a weak pointer to the value keeps its
//! memory block allocated. The list is therefore pruned whenever its length has doubled. It never has more than twice as
//! many entries as were alive when it was last pruned, plus [`MIN_PRUNED_ENTRIES`], and the amortized cost of adding an
//! entry does not depend on the length of the list.

use memtrack_model::references::{Counted, References};
use memtrack_recorder::{internal_bytes, recorder, reentry};
use std::rc::{self, Rc};
use std::sync::{self, Arc};

/// The number of entries below which pruning is not worthwhile.
pub(super) const MIN_PRUNED_ENTRIES: usize = 256;

/// An entry whose value may have been dropped.
pub(super) trait WeakEntry {
    /// Returns whether the value has been dropped.
    fn is_dead(&self) -> bool;
    /// Drops the entry. Memory of the program is freed outside [`reentry::enter`], so that it counts as the program's.
    /// The caller must have called [`reentry::enter`].
    fn drop_entry(self);
}

/// A list that drops its dead entries.
pub(super) struct Entries<E: WeakEntry> {
    entries: Vec<E>,
    /// The number of entries at which the list is pruned.
    prune_at: usize,
    /// The process in which the list's memory was last accounted for, and the number of bytes that were accounted for.
    accounted: (u32, usize),
}

impl<E: WeakEntry> Entries<E> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), prune_at: MIN_PRUNED_ENTRIES, accounted: (0, 0) }
    }

    #[inline]
    pub(super) fn push(&mut self, entry: E) {
        let _inside = reentry::enter();
        if self.entries.len() >= self.prune_at {
            self.prune();
        }
        if self.entries.len() == self.entries.capacity() {
            self.grow();
        }
        self.entries.push(entry);
    }

    #[cold]
    fn grow(&mut self) {
        self.entries.reserve(MIN_PRUNED_ENTRIES);
        self.account_memory();
    }

    /// Drops dead entries. The caller must have called [`reentry::enter`].
    #[cold]
    pub(super) fn prune(&mut self) {
        self.entries.extract_if(.., |entry| entry.is_dead()).for_each(WeakEntry::drop_entry);
        self.prune_at = 2 * self.entries.len() + MIN_PRUNED_ENTRIES;
        if self.entries.capacity() > 2 * self.prune_at {
            self.entries.shrink_to(self.prune_at);
        }
        self.account_memory();
    }

    /// Takes all entries out temporarily. The caller must pass them to [`Self::restore`].
    pub(super) fn take(&mut self) -> Vec<E> {
        std::mem::take(&mut self.entries)
    }

    /// Puts back the taken entries, from which the caller has removed the dead ones. Entries that were added in the
    /// meantime stay.
    pub(super) fn restore(&mut self, mut taken: Vec<E>) {
        taken.append(&mut self.entries);
        self.entries = taken;
        self.prune_at = 2 * self.entries.len() + MIN_PRUNED_ENTRIES;
        self.account_memory();
    }

    /// Drops all entries. The caller must have called [`reentry::enter`].
    pub(super) fn clear(&mut self) {
        std::mem::take(&mut self.entries).into_iter().for_each(WeakEntry::drop_entry);
        self.prune_at = MIN_PRUNED_ENTRIES;
        self.account_memory();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Accounts for the list's memory as memtrack's own.
    fn account_memory(&mut self) {
        let now = (recorder::generation(), self.entries.capacity() * size_of::<E>());
        // A forked child does not inherit its parent's accounting, so it has nothing to subtract yet.
        if self.accounted.0 == now.0 {
            internal_bytes::subtract(self.accounted.1);
        }
        internal_bytes::add(now.1);
        self.accounted = now;
    }
}

impl<E: WeakEntry> Drop for Entries<E> {
    fn drop(&mut self) {
        let _inside = reentry::enter();
        self.clear();
    }
}

/// A weak pointer to a value of any type.
pub(super) trait WeakPointer {
    /// Returns whether the value is alive.
    fn is_alive(&self) -> bool;
    /// Returns a strong pointer, if the value is alive.
    fn upgrade(&self) -> Option<Box<dyn Counted>>;
    /// Drops the pointer on behalf of the program, because this may free the value's memory block, and drops the box on
    /// behalf of memtrack.
    fn drop_boxed(self: Box<Self>);
}

macro_rules! weak_pointer {
    ($weak:ty) => {
        impl<T: References + ?Sized + 'static> WeakPointer for $weak {
            fn is_alive(&self) -> bool {
                self.strong_count() > 0
            }

            fn upgrade(&self) -> Option<Box<dyn Counted>> {
                Some(Box::new(<$weak>::upgrade(self)?))
            }

            fn drop_boxed(self: Box<Self>) {
                let weak = *self;
                reentry::outside(|| drop(weak));
            }
        }
    };
}

weak_pointer!(rc::Weak<T>);
weak_pointer!(sync::Weak<T>);

/// A weak pointer to a value of this thread.
pub(super) enum LocalWeak {
    Plain(rc::Weak<dyn References>),
    Boxed(Box<dyn WeakPointer>),
}

/// A weak pointer to a value that threads share.
pub(super) enum SharedWeak {
    Plain(sync::Weak<dyn References + Send + Sync>),
    Boxed(Box<dyn WeakPointer + Send + Sync>),
}

macro_rules! weak_entry {
    ($name:ident) => {
        impl $name {
            /// Returns a strong pointer, if the value is alive.
            pub(super) fn upgrade(&self) -> Option<Box<dyn Counted>> {
                match self {
                    Self::Plain(weak) => Some(Box::new(weak.upgrade()?)),
                    Self::Boxed(weak) => weak.upgrade(),
                }
            }
        }

        impl WeakEntry for $name {
            fn is_dead(&self) -> bool {
                match self {
                    Self::Plain(weak) => weak.strong_count() == 0,
                    Self::Boxed(weak) => !weak.is_alive(),
                }
            }

            fn drop_entry(self) {
                match self {
                    Self::Plain(weak) => reentry::outside(|| drop(weak)),
                    Self::Boxed(weak) => weak.drop_boxed(),
                }
            }
        }
    };
}

weak_entry!(LocalWeak);
weak_entry!(SharedWeak);

impl LocalWeak {
    /// Creates a pointer to a value whose size is known at compile time.
    #[inline]
    pub(super) fn new_sized<T: References + 'static>(pointer: &Rc<T>) -> Self {
        let weak: rc::Weak<T> = Rc::downgrade(pointer);
        Self::Plain(weak)
    }

    /// Creates a pointer to a value whose size is not known at compile time.
    pub(super) fn new_unsized<T: References + ?Sized + 'static>(pointer: &Rc<T>) -> Self {
        let _inside = reentry::enter();
        Self::Boxed(Box::new(Rc::downgrade(pointer)))
    }
}

impl SharedWeak {
    /// Creates a pointer to a value whose size is known at compile time.
    #[inline]
    pub(super) fn new_sized<T: References + Send + Sync + 'static>(pointer: &Arc<T>) -> Self {
        let weak: sync::Weak<T> = Arc::downgrade(pointer);
        Self::Plain(weak)
    }

    /// Creates a pointer to a value whose size is not known at compile time.
    pub(super) fn new_unsized<T: References + Send + Sync + ?Sized + 'static>(pointer: &Arc<T>) -> Self {
        let _inside = reentry::enter();
        Self::Boxed(Box::new(Arc::downgrade(pointer)))
    }
}
