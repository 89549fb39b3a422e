//! [`References`] for the standard library's containers, which visit each element or entry under its index or key.
//! Containers of numbers are skipped.

use super::{References, TypeProbe, Visitor, never_refers};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::fmt::Debug;
use std::mem::ManuallyDrop;
use std::num::{Saturating, Wrapping};
use std::ops::{Bound, ControlFlow, Range, RangeFrom, RangeInclusive, RangeTo, RangeToInclusive};
use std::pin::Pin;
use std::task::Poll;

impl<T: References + ?Sized> References for Box<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        to.owned(&**self);
    }
}

impl<T: References + ?Sized> References for Pin<Box<T>> {
    fn references(&self, to: &mut Visitor<'_>) {
        to.owned(&**self);
    }
}

macro_rules! pinned_borrow {
    ($($pointer:ty),*) => {$(
        impl<T: ?Sized> References for Pin<$pointer> {
            fn references(&self, _to: &mut Visitor<'_>) {}
        }
    )*};
}

pinned_borrow!(&T, &mut T);

impl<T: References> References for Option<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        if let Some(value) = self {
            value.references(to);
        }
    }

    fn never_refers(probe: &mut TypeProbe) -> bool {
        probe.never_refers::<T>()
    }
}

macro_rules! two_variants {
    ($($type:ident<$first:ident, $second:ident> { $one:ident, $other:ident }),*) => {$(
        impl<$first: References, $second: References> References for $type<$first, $second> {
            fn references(&self, to: &mut Visitor<'_>) {
                match self {
                    Self::$one(value) => to.variant(stringify!($one), "0", value),
                    Self::$other(value) => to.variant(stringify!($other), "0", value),
                }
            }

            fn never_refers(probe: &mut TypeProbe) -> bool {
                probe.never_refers::<$first>() && probe.never_refers::<$second>()
            }
        }
    )*};
}

two_variants!(Result<T, E> { Ok, Err }, ControlFlow<B, C> { Break, Continue });

impl<T: References> References for Poll<T> {
    fn references(&self, to: &mut Visitor<'_>) {
        if let Self::Ready(value) = self {
            to.variant("Ready", "0", value);
        }
    }

    fn never_refers(probe: &mut TypeProbe) -> bool {
        probe.never_refers::<T>()
    }
}

impl<T: References> References for Bound<T> {
    fn references(&self, to: &mut Visitor<'_>) {
        match self {
            Self::Included(value) => to.variant("Included", "0", value),
            Self::Excluded(value) => to.variant("Excluded", "0", value),
            Self::Unbounded => {}
        }
    }

    fn never_refers(probe: &mut TypeProbe) -> bool {
        probe.never_refers::<T>()
    }
}

/// A borrowed value is not owned by the `Cow`, so it is not visited.
impl<B: ToOwned<Owned: References> + ?Sized> References for Cow<'_, B> {
    fn references(&self, to: &mut Visitor<'_>) {
        if let Cow::Owned(value) = self {
            value.references(to);
        }
    }

    fn never_refers(probe: &mut TypeProbe) -> bool {
        probe.never_refers::<B::Owned>()
    }
}

/// The value is never dropped automatically, but its pointers are strong nevertheless.
impl<T: References + ?Sized> References for ManuallyDrop<T> {
    fn references(&self, to: &mut Visitor<'_>) {
        (**self).references(to);
    }
}

macro_rules! wrappers {
    ($($type:ident),*) => {$(
        impl<T: References> References for $type<T> {
            #[inline]
            fn references(&self, to: &mut Visitor<'_>) {
                self.0.references(to);
            }

            fn never_refers(probe: &mut TypeProbe) -> bool {
                probe.never_refers::<T>()
            }
        }
    )*};
}

wrappers!(Reverse, Saturating, Wrapping);

macro_rules! ranges {
    ($($type:ident { $($name:literal $get:tt),* })*) => {$(
        impl<T: References> References for $type<T> {
            fn references(&self, to: &mut Visitor<'_>) {
                $(to.field($name, ranges!(@ self $get));)*
            }

            fn never_refers(probe: &mut TypeProbe) -> bool {
                probe.never_refers::<T>()
            }
        }
    )*};
    (@ $self:ident ($method:ident)) => { $self.$method() };
    (@ $self:ident $field:ident) => { &$self.$field };
}

ranges!(
    Range { "start" start, "end" end }
    RangeFrom { "start" start }
    RangeTo { "end" end }
    RangeToInclusive { "end" end }
    RangeInclusive { "start" (start), "end" (end) }
);

/// Skips elements that cannot refer to anything, such as a million numbers.
impl<T: References> References for [T] {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        if never_refers::<T>() {
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

    fn never_refers(probe: &mut TypeProbe) -> bool {
        N == 0 || probe.never_refers::<T>()
    }
}

impl<T: References> References for Vec<T> {
    #[inline]
    fn references(&self, to: &mut Visitor<'_>) {
        self[..].references(to);
    }

    fn never_refers(probe: &mut TypeProbe) -> bool {
        probe.never_refers::<T>()
    }
}

macro_rules! sequences {
    ($($type:ident),*) => {$(
        impl<T: References> References for $type<T> {
            fn references(&self, to: &mut Visitor<'_>) {
                if never_refers::<T>() {
                    return;
                }
                self.iter().enumerate().for_each(|(index, each)| to.index(index, each));
            }

            fn never_refers(probe: &mut TypeProbe) -> bool {
                probe.never_refers::<T>()
            }
        }
    )*};
}

sequences!(VecDeque, LinkedList, BinaryHeap);

macro_rules! sets {
    ($($type:ident [$($hasher:ident)?]),*) => {$(
        impl<T: References $(, $hasher)?> References for $type<T $(, $hasher)?> {
            fn references(&self, to: &mut Visitor<'_>) {
                if never_refers::<T>() {
                    return;
                }
                self.iter().for_each(|each| to.key(each));
            }

            fn never_refers(probe: &mut TypeProbe) -> bool {
                probe.never_refers::<T>()
            }
        }
    )*};
}

sets!(BTreeSet [], HashSet [S]);

macro_rules! maps {
    ($($type:ident [$($hasher:ident)?]),*) => {$(
        impl<K: References + Debug, V: References $(, $hasher)?> References for $type<K, V $(, $hasher)?> {
            fn references(&self, to: &mut Visitor<'_>) {
                if never_refers::<(K, V)>() {
                    return;
                }
                self.iter().for_each(|(key, value)| to.entry(key, value));
            }

            fn never_refers(probe: &mut TypeProbe) -> bool {
                probe.never_refers::<K>() && probe.never_refers::<V>()
            }
        }
    )*};
}

maps!(BTreeMap [], HashMap [S]);

macro_rules! tuples {
    ($(($($name:ident $number:tt),+))*) => {$(
        impl<$($name: References),+> References for ($($name,)+) {
            fn references(&self, to: &mut Visitor<'_>) {
                $(to.field(stringify!($number), &self.$number);)+
            }

            fn never_refers(probe: &mut TypeProbe) -> bool {
                $(probe.never_refers::<$name>())&&+
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
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11)
);
