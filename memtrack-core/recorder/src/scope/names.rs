//! The names of scopes, each kept once and numbered: nodes compare and the tracker counts by number. Bounded: a program
//! that puts data into names (a request's id) fills the set and no more, and what comes then has no name of its own.

use super::set::Set;
use crate::recorder::ForkCell;
use crate::reentry;
use memtrack_model::text::cut;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A name that lives forever. Two are the same text exactly when they are the same object.
pub(crate) struct Name {
    /// Its number: small, and of this process.
    pub(crate) id: u32,
    /// The text, of [`MAX_BYTES`] at most.
    pub(crate) text: &'static str,
}

/// The longest name in bytes: what a recording keeps of one.
const MAX_BYTES: usize = 1 << 10;
/// Names beyond these numbers and bytes are not kept.
const MAX_NAMES: u32 = 1 << 15;
const MAX_BYTES_IN_ALL: usize = 4 << 20;

/// What names may take.
#[cfg(test)]
pub(super) const MOST_BYTES: usize =
    MAX_BYTES_IN_ALL + MAX_NAMES as usize * (size_of::<Name>() + 2 * size_of::<usize>());

/// Never emptied: nodes keep their names in a forked child.
static NAMES: ForkCell<Set<Name>> = ForkCell::kept(|| Set::new(2 * MAX_NAMES as usize));
static NEXT: AtomicU32 = AtomicU32::new(1);
static BYTES: AtomicUsize = AtomicUsize::new(0);

impl Name {
    /// What scopes are called that did not fit.
    pub(super) const OTHER: Self = Self { id: 0, text: "(other)" };

    /// The name with that text, cut to 1 KiB; none when it is new and there are too many.
    pub(super) fn of(text: &str) -> Option<&'static Self> {
        let text = cut(text, MAX_BYTES);
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
        let _own = reentry::enter();
        take(&BYTES, text.len(), MAX_BYTES_IN_ALL)?;
        let next = |id| (id < MAX_NAMES).then_some(id + 1);
        let id = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        crate::own::keep(text.len() + size_of::<Self>());
        let text = Box::leak(Box::<str>::from(text));
        Some(Box::leak(Box::new(Self { id, text })))
    }
}

/// The text of a name that lives as long as the process: `text` itself, cut to 1 KiB, or what stands for names that no
/// longer fit.
pub(crate) fn kept_name(text: &str) -> &'static str {
    Name::of(text).map_or(Name::OTHER.text, |name| name.text)
}

/// Adds to a sum unless it would exceed `most`.
fn take(sum: &AtomicUsize, more: usize, most: usize) -> Option<usize> {
    let next = |taken: usize| (taken + more <= most).then_some(taken + more);
    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
}
