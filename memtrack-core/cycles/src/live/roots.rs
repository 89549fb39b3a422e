//! Declared roots: statics and caches that the program has declared to hold values on purpose.

use memtrack_model::references::{References, Visitor};
use memtrack_recorder::recorder::ForkCell;
use memtrack_recorder::reentry;
use std::sync::{Mutex, PoisonError};

/// The maximum number of roots. Further roots are ignored.
pub(super) const MAX_ROOTS: usize = 4096;

/// A declared root.
#[derive(Clone, Copy)]
pub(super) struct Root {
    pub(super) name: &'static str,
    value: Option<&'static (dyn References + Sync)>,
}

impl Root {
    /// Returns a root that refers to nothing.
    pub(super) const fn blank() -> Self {
        Self { name: "", value: None }
    }

    pub(super) fn visit(&self, to: &mut Visitor<'_>) {
        if let Some(value) = self.value {
            value.references(to);
        }
    }
}

static ROOTS: ForkCell<Mutex<Vec<Root>>> = ForkCell::new(Mutex::default);

/// Declares that a static holds its values on purpose, so that the handles in it are accounted for. A second
/// declaration with the same name replaces the first, and at most 4,096 names are kept. A forked child must declare its
/// own roots.
///
/// ```
/// # use memtrack_cycles as cycles;
/// use std::sync::{Arc, Mutex};
///
/// static CACHE: Mutex<Vec<Arc<String>>> = Mutex::new(Vec::new());
/// cycles::declare_root("the cache", &CACHE);
/// ```
pub fn declare_root<T: References + Sync>(name: &'static str, value: &'static T) {
    let _inside = reentry::enter();
    let mut roots = ROOTS.get().lock().unwrap_or_else(PoisonError::into_inner);
    let root = Root { name, value: Some(value) };
    match roots.iter().position(|root| root.name == name) {
        Some(place) => roots[place] = root,
        None if roots.len() < MAX_ROOTS => roots.push(root),
        None => {}
    }
}

pub(super) fn declared_roots() -> Vec<Root> {
    if !ROOTS.is_made() {
        return Vec::new();
    }
    ROOTS.get().lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Removes all declared roots.
#[cfg(test)]
pub(super) fn clear() {
    ROOTS.get().lock().unwrap_or_else(PoisonError::into_inner).clear();
}
