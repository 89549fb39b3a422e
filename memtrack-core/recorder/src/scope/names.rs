//! The names of scopes, each stored once and numbered: nodes and the tracker compare names by number. Bounded: a
//! program that puts data into names (a request's id) fills the set and no more, and later names are replaced by one
//! common name.

use super::set::Set;
use crate::events::ForkCell;
use crate::reentry;
use memtrack_model::text::cut;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A name that lives for ever. Two are the same text exactly if they are the same object.
pub(crate) struct Name {
    /// Its number: small, and only valid in this process.
    pub(crate) id: u32,
    /// The text, of at most [`MAX_NAME_BYTES`].
    pub(crate) text: &'static str,
}

/// The longest name in bytes: the part that a recording keeps.
const MAX_NAME_BYTES: usize = 1 << 10;
/// Names beyond this number and these bytes are not stored.
const MAX_NAMES: u32 = 1 << 15;
const MAX_TOTAL_BYTES: usize = 4 << 20;

/// The most memory that names can take.
#[cfg(test)]
pub(super) const MAX_BYTES: usize =
    MAX_TOTAL_BYTES + MAX_NAMES as usize * (size_of::<Name>() + 2 * size_of::<usize>());

/// Never emptied: nodes keep their names in a forked child.
static NAMES: ForkCell<Set<Name>> = ForkCell::inherited(|| Set::new(2 * MAX_NAMES as usize));
static NEXT: AtomicU32 = AtomicU32::new(1);
static BYTES: AtomicUsize = AtomicUsize::new(0);

impl Name {
    /// The name of scopes that did not fit.
    pub(super) const OTHER: Self = Self { id: 0, text: "(other)" };

    /// Returns the name with that text, truncated to 1 KiB; `None` if it is new and there are too many.
    pub(super) fn of(text: &str) -> Option<&'static Self> {
        let text = cut(text, MAX_NAME_BYTES);
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        hasher.write(text.as_bytes());
        let is = |name: &Self| name.text == text;
        match NAMES.get().find(hasher.finish(), is) {
            Ok(name) => Some(name),
            Err(vacant) => {
                let name = Self::make(text)?;
                Some(NAMES.get().insert(vacant, name, is))
            }
        }
    }

    #[cold]
    fn make(text: &str) -> Option<&'static Self> {
        let _inside = reentry::enter();
        take(&BYTES, text.len(), MAX_TOTAL_BYTES)?;
        let next = |id| (id < MAX_NAMES).then_some(id + 1);
        let id = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        crate::internal_bytes::add_inherited(text.len() + size_of::<Self>());
        let text = Box::leak(Box::<str>::from(text));
        Some(Box::leak(Box::new(Self { id, text })))
    }
}

/// Returns the text of a name that lives as long as the process: `text` itself, truncated to 1 KiB, or the
/// replacement for names that no longer fit.
pub(crate) fn kept_name(text: &str) -> &'static str {
    Name::of(text).map_or(Name::OTHER.text, |name| name.text)
}

/// Adds to a sum unless it would exceed `most`.
fn take(sum: &AtomicUsize, more: usize, most: usize) -> Option<usize> {
    let next = |taken: usize| (taken + more <= most).then_some(taken + more);
    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
}
