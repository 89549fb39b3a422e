//! [`References`] for the standard library's cells and locks. A lock that is held and a cell that is borrowed for
//! writing are reported as not inspected.

use super::{References, TypeProbe, Visitor};
use std::cell::{OnceCell, RefCell};
use std::sync::{Mutex, OnceLock, RwLock, TryLockError};

impl<T: References + ?Sized> References for RefCell<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        match self.try_borrow() {
            Ok(value) => value.references(to),
            Err(_) => to.opaque("borrowed for writing"),
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

macro_rules! once_cells {
    ($($type:ident),*) => {$(
        impl<T: References> References for $type<T> {
            #[inline]
            fn references(&self, to: &mut Visitor<'_>) {
                if let Some(value) = self.get() {
                    value.references(to);
                }
            }

            fn never_refers(probe: &mut TypeProbe) -> bool {
                probe.never_refers::<T>()
            }
        }
    )*};
}

once_cells!(OnceCell, OnceLock);
