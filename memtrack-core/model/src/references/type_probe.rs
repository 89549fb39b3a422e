//! Determines from a type alone whether its values can refer to anything, so that a slice of a million numbers can be
//! skipped at once.

use super::References;
use std::fmt;
use std::marker::PhantomData;

/// The maximum number of types that one query visits. A type may contain itself, so a query without a limit might never
/// end.
const MAX_TYPES: u32 = 64;

/// A query that determines whether types can refer to anything. It gives up after a limited number of types and then
/// returns `false` ("not certain"), which is always a valid result.
#[doc(hidden)]
#[derive(Debug)]
pub struct TypeProbe(u32);

impl TypeProbe {
    /// Returns whether it is certain that no value of `T` refers to anything.
    #[inline]
    pub fn never_refers<T: References>(&mut self) -> bool {
        let Some(left) = self.0.checked_sub(1) else { return false };
        self.0 = left;
        T::never_refers(self)
    }
}

/// Returns whether it is certain that no value of `T` refers to anything.
#[inline]
pub(super) fn never_refers<T: References>() -> bool {
    TypeProbe(MAX_TYPES).never_refers::<T>()
}

/// A marker for a type that may be unsized or may not implement [`References`]. The call
/// `(&Type::<T>::new()).probe(probe)` resolves to [`ProbeKnown`] if the type is sized and implements the trait, and
/// otherwise to [`ProbeUnknown`], which needs one more autoref. A type without an implementation already causes a
/// compile error elsewhere, and one error is enough.
#[doc(hidden)]
pub struct Type<T: ?Sized>(PhantomData<T>);

impl<T: ?Sized> Type<T> {
    /// Creates the marker for the type.
    #[expect(clippy::new_without_default, reason = "only the derive's expansion calls it")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: ?Sized> fmt::Debug for Type<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Type")
    }
}

/// The query for sized types that implement [`References`].
#[doc(hidden)]
pub trait ProbeKnown {
    /// Queries the type.
    fn probe(&self, probe: &mut TypeProbe) -> bool;
}

impl<T: References> ProbeKnown for Type<T> {
    fn probe(&self, probe: &mut TypeProbe) -> bool {
        probe.never_refers::<T>()
    }
}

/// The query for all other types.
#[doc(hidden)]
pub trait ProbeUnknown {
    /// Returns `false`, because the type may refer to something.
    fn probe(&self, _probe: &mut TypeProbe) -> bool {
        false
    }
}

impl<T: ?Sized> ProbeUnknown for &Type<T> {}
