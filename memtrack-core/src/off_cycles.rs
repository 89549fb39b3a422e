//! The part of `cycles` that libraries call, in builds without the feature `cycles`. Every call compiles and does
//! nothing. Programs that search for cycles enable the feature.

use memtrack_model::references::{Counted, References, Visitor};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

/// A reference-counted pointer that can be registered.
pub trait Register: Counted {}

/// A reference-counted pointer to an unsized value that can be registered, such as `Rc<dyn Layer>`.
pub trait RegisterDyn: Counted {}

impl<T: References + 'static> Register for Rc<T> {}
impl<T: References + Send + Sync + 'static> Register for Arc<T> {}
impl<T: References + ?Sized + 'static> RegisterDyn for Rc<T> {}
impl<T: References + Send + Sync + ?Sized + 'static> RegisterDyn for Arc<T> {}

/// Registers a value as a starting point for scans. Does nothing without the feature `cycles`.
#[inline(always)]
pub fn register(_pointer: &impl Register) {}

/// Registers an unsized value as a starting point for scans. Does nothing without the feature `cycles`.
#[inline(always)]
pub fn register_dyn(_pointer: &impl RegisterDyn) {}

/// Declares that a static holds its values on purpose. Does nothing without the feature `cycles`.
#[inline(always)]
pub fn declare_root<T: References + Sync>(_name: &'static str, _value: &'static T) {}

/// A handle to a value. Without the feature `cycles`, it contains only the pointer.
#[derive(Clone)]
pub struct Tracked<P: Counted>(P);

impl<P: Register> Tracked<P> {
    /// Creates a handle to a value.
    #[inline(always)]
    pub fn new(pointer: P) -> Self {
        Self(pointer)
    }
}

impl<P: RegisterDyn> Tracked<P> {
    /// Creates a handle to an unsized value.
    #[inline(always)]
    pub fn new_dyn(pointer: P) -> Self {
        Self(pointer)
    }
}

impl<P: Counted> Tracked<P> {
    /// Returns the pointer.
    pub fn pointer(this: &Self) -> &P {
        &this.0
    }
}

impl<P: Counted + Deref> Deref for Tracked<P> {
    type Target = P::Target;

    fn deref(&self) -> &P::Target {
        &self.0
    }
}

impl<P: Counted> References for Tracked<P> {
    fn references(&self, to: &mut Visitor<'_>) {
        to.strong(&self.0);
    }
}

impl<P: Counted + fmt::Debug> fmt::Debug for Tracked<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
