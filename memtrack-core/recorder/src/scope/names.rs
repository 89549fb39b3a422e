//! The names of scopes, which are interned and numbered because nodes and the tracker compare names by number. The set
//! is bounded. If a program puts data (such as a request's id) into names, the set fills up, and later names are
//! replaced with one common name.

use super::set::Set;
use crate::events::ForkCell;
use crate::reentry;
use memtrack_model::text::cut;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// An interned name, which is never freed. Two names have the same text if and only if they are the same object.
pub(crate) struct Name {
    /// The name's number, which is small and valid only in this process.
    pub(crate) id: u32,
    /// The text, which has at most [`MAX_NAME_BYTES`].
    pub(crate) text: &'static str,
}

/// The maximum length of a name in bytes. Longer names are truncated.
const MAX_NAME_BYTES: usize = 1 << 10;
/// The maximum number of names, and their maximum total size in bytes. Further names are not stored.
const MAX_NAMES: u32 = 1 << 15;
const MAX_TOTAL_BYTES: usize = 4 << 20;

/// The maximum number of bytes that the names take up.
#[cfg(test)]
pub(super) const MAX_BYTES: usize =
    MAX_TOTAL_BYTES + MAX_NAMES as usize * (size_of::<Name>() + 2 * size_of::<usize>());

/// The set is never emptied, because nodes keep their names in a forked child.
static NAMES: ForkCell<Set<Name>> = ForkCell::inherited(|| Set::new(2 * MAX_NAMES as usize));
static NEXT: AtomicU32 = AtomicU32::new(1);
static BYTES: AtomicUsize = AtomicUsize::new(0);

impl Name {
    /// The common name for scopes whose own names did not fit.
    pub(super) const OTHER: Self = Self { id: 0, text: "(other)" };

    /// Returns the name for `text`, truncated to 1 KiB, or `None` if it is new and there is no room.
    pub(super) fn of(text: &str) -> Option<&'static Self> {
        let text = cut(text, MAX_NAME_BYTES);
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        hasher.write(text.as_bytes());
        let is = |name: &Self| name.text == text;
        match NAMES.get().find(hasher.finish(), is) {
            Ok(name) => Some(name),
            Err(vacant) => {
                let name = Self::store(text)?;
                Some(NAMES.get().insert(vacant, name, is))
            }
        }
    }

    #[cold]
    fn store(text: &str) -> Option<&'static Self> {
        let _inside = reentry::enter();
        add_bounded(&BYTES, text.len(), MAX_TOTAL_BYTES)?;
        let next = |id| (id < MAX_NAMES).then_some(id + 1);
        let id = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        crate::internal_bytes::add_inherited(text.len() + size_of::<Self>());
        let text = Box::leak(Box::<str>::from(text));
        Some(Box::leak(Box::new(Self { id, text })))
    }
}

/// Returns the interned copy of `text`, truncated to 1 KiB, or the common name if there is no room for it.
pub(crate) fn intern_name(text: &str) -> &'static str {
    Name::of(text).map_or(Name::OTHER.text, |name| name.text)
}

/// Adds `more` to a sum, unless the result would exceed `max`. Returns the previous sum if `more` was added.
fn add_bounded(sum: &AtomicUsize, more: usize, max: usize) -> Option<usize> {
    let next = |current: usize| (current + more <= max).then_some(current + more);
    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
}
