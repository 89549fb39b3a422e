//! The categories that the passes assign to logical tensors, to lifetimes of addresses, and to single
//! versions.

use super::identities::{AllocationId, Identities};
use crate::category::Category;

/// Categories at three levels. A tensor's category takes precedence over a lifetime's, which in turn takes
/// precedence over a version's.
pub(super) struct CategoryMap<'a> {
    identities: &'a Identities,
    /// For each lifetime, the index of its first version in `by_version`.
    pub(super) starts: Vec<u32>,
    by_tensor: Vec<Option<Category>>,
    by_key: Vec<Option<Category>>,
    by_version: Vec<Option<Category>>,
    /// For each lifetime, whether `set_tensor` was called for it.
    pub(super) has_tensor_category: Vec<bool>,
}

impl<'a> CategoryMap<'a> {
    /// Creates an empty map. `newest` is the highest version of each lifetime.
    pub(super) fn new(identities: &'a Identities, newest: &[u32]) -> Self {
        let mut starts = Vec::with_capacity(newest.len() + 1);
        let mut start = 0;
        for &version in newest {
            starts.push(start);
            start += version + 1;
        }
        starts.push(start);
        let count = identities.lifetimes.len();
        Self {
            identities,
            starts,
            // There are at most as many tensors as there are lifetimes.
            by_tensor: vec![None; count],
            by_key: vec![None; count],
            by_version: vec![None; start as usize],
            has_tensor_category: vec![false; count],
        }
    }

    /// Returns a version's index in tables that have one entry per version.
    pub(super) fn slot(&self, (key, version): (AllocationId, u32)) -> usize {
        (self.starts[key as usize] + version) as usize
    }

    /// Returns the total number of versions across all lifetimes.
    pub(super) fn slot_count(&self) -> usize {
        self.by_version.len()
    }

    /// Returns the number of versions of this lifetime.
    pub(super) fn version_count(&self, key: AllocationId) -> u32 {
        self.starts[key as usize + 1] - self.starts[key as usize]
    }

    pub(super) fn get(&self, of: (AllocationId, u32)) -> Option<Category> {
        self.by_tensor[self.identities.tensor(of.0) as usize]
            .or(self.by_key[of.0 as usize])
            .or(self.by_version[self.slot(of)])
    }

    pub(super) fn set_tensor(&mut self, key: AllocationId, category: Category) {
        self.by_tensor[self.identities.tensor(key) as usize] = Some(category);
        self.has_tensor_category[key as usize] = true;
    }

    pub(super) fn set_key(&mut self, key: AllocationId, category: Category) {
        self.by_key[key as usize] = Some(category);
    }

    pub(super) fn set_version_if_none(&mut self, of: (AllocationId, u32), category: Category) {
        let slot = self.slot(of);
        self.by_version[slot].get_or_insert(category);
    }
}
