//! Standard library types whose values cannot be inspected. Such a value is reported as not inspected, and the values
//! that it points to count as held from outside the inspected values.

use super::{References, TypeProbe, Visitor};
use std::any::Any;
use std::cell::{Cell, LazyCell};
use std::error::Error;
use std::mem::needs_drop;
use std::sync::{LazyLock, mpsc};
use std::{io, rc, sync, task, thread};

/// A type with nothing to drop contains no counted pointer, so it is not reported.
macro_rules! opaque_if_droppable {
    ($($type:ty: $why:literal),* $(,)?) => {$(
        impl<T> References for $type {
            #[inline]
            fn references(&self, to: &mut Visitor<'_>) {
                if needs_drop::<T>() {
                    to.opaque($why);
                }
            }

            #[inline]
            fn never_refers(_probe: &mut TypeProbe) -> bool {
                !needs_drop::<T>()
            }
        }
    )*};
}

opaque_if_droppable!(
    Cell<T>: "the value of a Cell cannot be borrowed (a RefCell's can)",
    mpsc::Sender<T>: "a channel",
    mpsc::SyncSender<T>: "a channel",
    mpsc::Receiver<T>: "a channel",
);

macro_rules! opaque {
    ($([$($generic:tt)*] $type:ty: $why:literal),* $(,)?) => {$(
        impl<$($generic)*> References for $type {
            fn references(&self, to: &mut Visitor<'_>) {
                to.opaque($why);
            }
        }
    )*};
}

// The oldest supported compiler has no stable function that returns whether a lazy value is initialised.
opaque!(
    [T, F] LazyCell<T, F>: "initialised on first use, and reading it would do that",
    [T, F] LazyLock<T, F>: "initialised on first use, and reading it would do that",
    [T] thread::JoinHandle<T>: "the values of a thread",
    [T] thread::ScopedJoinHandle<'_, T>: "the values of a thread",
    [] task::Waker: "a waker of a task",
    [] dyn Any: "a value of any type",
    [] dyn Any + Send: "a value of any type",
    [] dyn Any + Send + Sync: "a value of any type",
    [] dyn Error: "an error of any type",
    [] dyn Error + Send: "an error of any type",
    [] dyn Error + Send + Sync: "an error of any type",
);

/// Only an error that wraps another error can refer to anything.
impl References for io::Error {
    fn references(&self, to: &mut Visitor<'_>) {
        if self.get_ref().is_some() {
            to.opaque("an error of any type");
        }
    }
}

macro_rules! pinned {
    ($($pointer:ty),*) => {$(
        impl<T: ?Sized> References for std::pin::Pin<$pointer> {
            fn references(&self, to: &mut Visitor<'_>) {
                to.opaque("a pinned counted pointer");
            }
        }
    )*};
}

pinned!(rc::Rc<T>, sync::Arc<T>);
