//! Reference-counted pointers: one trait for both `Rc` and `Arc`.

use super::{References, Visitor};
use std::rc::{self, Rc};
use std::sync::{self, Arc};

/// A strong reference-counted pointer: [`Rc`] or [`Arc`]. Reports treat the two alike.
pub trait Counted {
    /// Returns the address of the value, which identifies the allocation.
    fn address(&self) -> usize;
    /// Returns the number of strong pointers, including this one.
    fn strong_count(&self) -> usize;
    /// Returns the number of weak pointers.
    fn weak_count(&self) -> usize;
    /// Returns whether other threads may also hold the value.
    fn is_shared_by_threads(&self) -> bool;
    /// Returns the name of the value's type.
    fn type_name(&self) -> &'static str;
    /// Reports the references of the value.
    fn visit(&self, to: &mut Visitor<'_>);
    /// Clones the strong pointer.
    fn clone_boxed(&self) -> Box<dyn Counted>;
    /// Passes to `run` a closure that drops the pointer, and the value with it if this was the last pointer. `run` must
    /// call the closure. The box that [`clone_boxed`](Self::clone_boxed) allocated is freed outside `run`.
    #[doc(hidden)]
    fn drop_with(self: Box<Self>, run: fn(&mut dyn FnMut()));
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

            fn clone_boxed(&self) -> Box<dyn Counted> {
                Box::new($pointer::clone(self))
            }

            fn drop_with(self: Box<Self>, run: fn(&mut dyn FnMut())) {
                let mut pointer = Some(*self);
                run(&mut || drop(pointer.take()));
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

        /// A weak pointer keeps nothing alive, and it is not reported once its value is gone.
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
