//! What categories are kept for: a logical tensor, one lifetime of an address, or one version of it.

use super::identities::{AllocationId, Identities};
use crate::category::Category;

/// Categories at three levels, of which the widest that is known counts.
pub(super) struct Store<'a> {
    identities: &'a Identities,
    /// Where the versions of each lifetime begin in `by_version`.
    starts: Vec<u32>,
    by_tensor: Vec<Option<Category>>,
    by_key: Vec<Option<Category>>,
    by_version: Vec<Option<Category>>,
    /// Keys whose tensor was given a category.
    pub(super) named: Vec<bool>,
}

impl<'a> Store<'a> {
    /// `newest` is the highest version of each lifetime.
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
            // There are no more tensors than lifetimes.
            by_tensor: vec![None; count],
            by_key: vec![None; count],
            by_version: vec![None; start as usize],
            named: vec![false; count],
        }
    }

    /// The place of a version in tables that have one for each.
    pub(super) fn slot(&self, (key, version): (AllocationId, u32)) -> usize {
        (self.starts[key as usize] + version) as usize
    }

    /// How many versions there are of all lifetimes together.
    pub(super) fn slots(&self) -> usize {
        self.by_version.len()
    }

    /// How many versions there are of this lifetime.
    pub(super) fn versions(&self, key: AllocationId) -> u32 {
        self.starts[key as usize + 1] - self.starts[key as usize]
    }

    pub(super) fn get(&self, of: (AllocationId, u32)) -> Option<Category> {
        self.by_tensor[self.identities.tensor(of.0) as usize]
            .or(self.by_key[of.0 as usize])
            .or(self.by_version[self.slot(of)])
    }

    pub(super) fn set_tensor(&mut self, key: AllocationId, category: Category) {
        self.by_tensor[self.identities.tensor(key) as usize] = Some(category);
        self.named[key as usize] = true;
    }

    pub(super) fn set_key(&mut self, key: AllocationId, category: Category) {
        self.by_key[key as usize] = Some(category);
    }

    pub(super) fn set_version_if_none(&mut self, of: (AllocationId, u32), category: Category) {
        let slot = self.slot(of);
        self.by_version[slot].get_or_insert(category);
    }
}
