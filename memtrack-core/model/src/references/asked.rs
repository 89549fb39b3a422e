//! Whether a type refers to anything at all, asked of types instead of values: a million numbers are passed over at once.

use super::References;
use std::fmt;
use std::marker::PhantomData;

/// Most types that one question leads to. A type may consist of itself, so that asking its parts would never end.
const MOST: u32 = 64;

/// Who asks types whether they refer to anything, and gives up after some: "maybe" is a right answer.
#[doc(hidden)]
#[derive(Debug)]
pub struct Asked(u32);

impl Asked {
    /// Whether no value of `T` refers to anything, as far as is known.
    #[inline]
    pub fn never_refers<T: References>(&mut self) -> bool {
        let Some(left) = self.0.checked_sub(1) else { return false };
        self.0 = left;
        T::never_refers(self)
    }
}

/// Whether no value of `T` refers to anything, as far as is known.
#[inline]
pub(super) fn never_refers<T: References>() -> bool {
    Asked(MOST).never_refers::<T>()
}

/// A type of which nobody knows here whether it has a size, or is known to memtrack: `(&Type::<T>::new()).ask(asked)` finds
/// [`AskKnown`] where it has and is, and [`AskUnknown`] where not, which is one reference further away. What is not known is
/// an error elsewhere, and one is enough.
#[doc(hidden)]
pub struct Type<T: ?Sized>(PhantomData<T>);

impl<T: ?Sized> Type<T> {
    /// The type.
    #[expect(clippy::new_without_default, reason = "for the expansion alone")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: ?Sized> fmt::Debug for Type<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Type")
    }
}

/// Of what implements the trait.
#[doc(hidden)]
pub trait AskKnown {
    /// Asks it.
    fn ask(&self, asked: &mut Asked) -> bool;
}

impl<T: References> AskKnown for Type<T> {
    fn ask(&self, asked: &mut Asked) -> bool {
        asked.never_refers::<T>()
    }
}

/// Of anything else.
#[doc(hidden)]
pub trait AskUnknown {
    /// Maybe it does.
    fn ask(&self, _asked: &mut Asked) -> bool {
        false
    }
}

impl<T: ?Sized> AskUnknown for &Type<T> {}
