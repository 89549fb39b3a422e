//! Counted pointers, whichever they are.

use super::{References, Visitor};
use std::rc::{self, Rc};
use std::sync::{self, Arc};

/// A strong counted pointer: [`Rc`] or [`Arc`]. The two are the same to a report.
pub trait Counted {
    /// Where the value lies: what tells one allocation from another.
    fn address(&self) -> usize;
    /// How many strong pointers there are, this one among them.
    fn strong_count(&self) -> usize;
    /// How many weak ones.
    fn weak_count(&self) -> usize;
    /// Whether other threads may hold it, too.
    fn is_shared_by_threads(&self) -> bool;
    /// The value's type.
    fn type_name(&self) -> &'static str;
    /// Reports what the value refers to.
    fn visit(&self, to: &mut Visitor<'_>);
    /// Another strong pointer to it.
    fn another(&self) -> Box<dyn Counted>;
    /// Drops the pointer in `within`, which calls what it is given: if it was the last one, the value is dropped there. The
    /// box, which [`another`](Self::another) made, is freed outside of it.
    #[doc(hidden)]
    fn let_go(self: Box<Self>, within: fn(&mut dyn FnMut()));
}

macro_rules! counted {
    ($pointer:ident, $shared:literal) => {
        impl<T: References + ?Sized + 'static> Counted for $pointer<T> {
            fn address(&self) -> usize {
                $pointer::as_ptr(self).cast::<()>().addr()
            }

            fn strong_count(&self) -> usize {
                $pointer::strong_count(self)
            }

            fn weak_count(&self) -> usize {
                $pointer::weak_count(self)
            }

            fn is_shared_by_threads(&self) -> bool {
                $shared
            }

            fn type_name(&self) -> &'static str {
                (**self).referring_type()
            }

            fn visit(&self, to: &mut Visitor<'_>) {
                (**self).references(to);
            }

            fn another(&self) -> Box<dyn Counted> {
                Box::new($pointer::clone(self))
            }

            fn let_go(self: Box<Self>, within: fn(&mut dyn FnMut())) {
                let mut pointer = Some(*self);
                within(&mut || drop(pointer.take()));
            }
        }
    };
}

counted!(Rc, false);
counted!(Arc, true);

macro_rules! pointers {
    ($($strong:ident, $weak:ty);*) => {$(
        impl<T: References + ?Sized + 'static> References for $strong<T> {
            #[inline]
            fn references(&self, to: &mut Visitor<'_>) {
                to.strong(self);
            }
        }

        /// Keeps nothing alive. Without a value there is nothing to tell.
        impl<T: ?Sized> References for $weak {
            fn references(&self, to: &mut Visitor<'_>) {
                if self.strong_count() > 0 {
                    to.weak(self.as_ptr().cast::<()>().addr());
                }
            }
        }
    )*};
}

pointers!(Rc, rc::Weak<T>; Arc, sync::Weak<T>);
