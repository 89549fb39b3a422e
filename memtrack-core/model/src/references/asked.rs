//! Whether a type refers to anything at all, asked of types instead of values: a million numbers are passed over at once.

use super::References;

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
