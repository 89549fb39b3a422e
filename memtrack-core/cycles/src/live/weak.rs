//! The registry's weak pointers. A pointer to a sized value becomes a [`References`] trait object, while a pointer to
//! an unsized value needs a box.

use super::entries::WeakEntry;
use memtrack_model::references::{Counted, References};
use memtrack_recorder::reentry;
use std::rc::{self, Rc};
use std::sync::{self, Arc};

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
