//! What the standard library's types refer to: counted pointers to what they point to, containers to what is in them. A lock
//! that is held, and a cell that is borrowed for writing, are reported as not looked at.

use super::{References, Visitor};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::rc::{self, Rc};
use std::sync::atomic;
use std::sync::{self, Arc, Mutex, OnceLock, RwLock, TryLockError};

macro_rules! nothing {
    ($($type:ty),* $(,)?) => {$(
        impl References for $type {
            #[inline]
            fn references(&self, _to: &mut Visitor<'_>) {}

            fn never_refers() -> bool {
                true
            }
        }
    )*};
}

nothing!(
    (),
    bool,
    char,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    f32,
    f64,
    String,
    std::num::NonZeroU8,
    std::num::NonZeroU16,
    std::num::NonZeroU32,
    std::num::NonZeroU64,
    std::num::NonZeroUsize,
    std::num::NonZeroI32,
    std::num::NonZeroI64,
    std::time::Duration,
    std::time::Instant,
    std::time::SystemTime,
    std::path::PathBuf,
    std::ffi::OsString,
    atomic::AtomicBool,
    atomic::AtomicU8,
    atomic::AtomicU16,
    atomic::AtomicU32,
    atomic::AtomicU64,
    atomic::AtomicUsize,
    atomic::AtomicI32,
    atomic::AtomicI64,
    atomic::AtomicIsize,
    std::any::TypeId,
    std::thread::ThreadId,
);

macro_rules! nothing_unsized {
    ($($type:ty),*) => {$(
        impl References for $type {
            fn references(&self, _to: &mut Visitor<'_>) {}
        }
    )*};
}

nothing_unsized!(str, std::path::Path, std::ffi::OsStr);

impl<T: ?Sized> References for PhantomData<T> {
    fn references(&self, _to: &mut Visitor<'_>) {}
}

/// A copy has no counted pointer.
impl<T: Copy> References for Cell<T> {
    fn references(&self, _to: &mut Visitor<'_>) {}
}

impl<T: References + ?Sized + 'static> References for Rc<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        to.strong(self);
    }
}

impl<T: References + ?Sized + 'static> References for Arc<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        to.strong(self);
    }
}

impl<T: ?Sized> References for rc::Weak<T> {
    fn references(&self, to: &mut Visitor<'_>) {
        if self.strong_count() > 0 {
            to.weak(self.as_ptr().cast::<()>().addr());
        }
    }
}

impl<T: ?Sized> References for sync::Weak<T> {
    fn references(&self, to: &mut Visitor<'_>) {
        if self.strong_count() > 0 {
            to.weak(self.as_ptr().cast::<()>().addr());
        }
    }
}

/// What is borrowed is not held.
impl<T: ?Sized> References for &T {
    fn references(&self, _to: &mut Visitor<'_>) {}
}

impl<T: References + ?Sized> References for Box<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        to.owned(&**self);
    }
}

impl<T: References> References for Option<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        if let Some(value) = self {
            value.references(to);
        }
    }

    fn never_refers() -> bool {
        T::never_refers()
    }
}

impl<T: References, E: References> References for Result<T, E> {
    fn references(&self, to: &mut Visitor<'_>) {
        match self {
            Ok(value) => to.variant("Ok", "0", value),
            Err(error) => to.variant("Err", "0", error),
        }
    }
}

/// A million numbers are passed over.
impl<T: References> References for [T] {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        if T::never_refers() {
            return;
        }
        self.iter().enumerate().for_each(|(index, each)| to.index(index, each));
    }
}

impl<T: References, const N: usize> References for [T; N] {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        self[..].references(to);
    }

    fn never_refers() -> bool {
        T::never_refers()
    }
}

impl<T: References> References for Vec<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        self[..].references(to);
    }

    fn never_refers() -> bool {
        T::never_refers()
    }
}

macro_rules! sequences {
    ($($type:ident),*) => {$(
        impl<T: References> References for $type<T> {
            fn references(&self, to: &mut Visitor<'_>) {
                if T::never_refers() {
                    return;
                }
                self.iter().enumerate().for_each(|(index, each)| to.index(index, each));
            }
        }
    )*};
}

sequences!(VecDeque, LinkedList, BinaryHeap);

impl<T: References> References for BTreeSet<T> {
    fn references(&self, to: &mut Visitor<'_>) {
        self.iter().for_each(|each| to.key(each));
    }
}

impl<T: References, S> References for HashSet<T, S> {
    fn references(&self, to: &mut Visitor<'_>) {
        self.iter().for_each(|each| to.key(each));
    }
}

impl<K: References + Debug, V: References> References for BTreeMap<K, V> {
    fn references(&self, to: &mut Visitor<'_>) {
        self.iter().for_each(|(key, value)| to.entry(key, value));
    }
}

impl<K: References + Debug, V: References, S> References for HashMap<K, V, S> {
    fn references(&self, to: &mut Visitor<'_>) {
        self.iter().for_each(|(key, value)| to.entry(key, value));
    }
}

impl<T: References + ?Sized> References for RefCell<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        match self.try_borrow() {
            Ok(value) => value.references(to),
            Err(_) => to.opaque("borrowed for writing"),
        }
    }
}

impl<T: References> References for OnceCell<T> {
    fn references(&self, to: &mut Visitor<'_>) {
        if let Some(value) = self.get() {
            value.references(to);
        }
    }
}

impl<T: References> References for OnceLock<T> {
    fn references(&self, to: &mut Visitor<'_>) {
        if let Some(value) = self.get() {
            value.references(to);
        }
    }
}

impl<T: References + ?Sized> References for Mutex<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        match self.try_lock() {
            Ok(value) => value.references(to),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().references(to),
            Err(TryLockError::WouldBlock) => to.opaque("locked"),
        }
    }
}

impl<T: References + ?Sized> References for RwLock<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        match self.try_read() {
            Ok(value) => value.references(to),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().references(to),
            Err(TryLockError::WouldBlock) => to.opaque("locked for writing"),
        }
    }
}

macro_rules! tuples {
    ($(($($name:ident $number:tt),+))*) => {$(
        impl<$($name: References),+> References for ($($name,)+) {
            fn references(&self, to: &mut Visitor<'_>) {
                $(to.field(stringify!($number), &self.$number);)+
            }
        }
    )*};
}

tuples!(
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
);
