//! Counted pointers, whichever they are.

use super::{References, Visitor};
use std::rc::Rc;
use std::sync::Arc;

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
                (**self).type_name()
            }

            fn visit(&self, to: &mut Visitor<'_>) {
                (**self).references(to);
            }

            fn another(&self) -> Box<dyn Counted> {
                Box::new($pointer::clone(self))
            }
        }
    };
}

counted!(Rc, false);
counted!(Arc, true);
