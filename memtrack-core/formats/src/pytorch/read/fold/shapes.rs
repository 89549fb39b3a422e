//! Shapes of dictionaries. Most dictionaries have the same keys as the previous one, so the previous shape is tried
//! first.

use crate::pytorch::read::machine::cell::Cell;
use memtrack_model::snapshot::Value;
use memtrack_model::snapshot::pytorch::{Records, Shape};
use std::collections::{HashMap, HashSet};

/// A table of records and an index of its shapes.
#[derive(Debug, Default)]
pub(crate) struct RecordTable {
    pub(crate) records: Records,
    /// The keys of each shape, as cells.
    keys: Vec<Box<[Cell]>>,
    index: HashMap<Box<[Cell]>, u32, foldhash::fast::FixedState>,
    /// The shape of the previous dictionary.
    last: usize,
}

impl RecordTable {
    /// Returns the shape of the previous dictionary if this one has the same shape and none of the keys in `barred`.
    #[inline]
    pub(crate) fn last_shape(&self, items: &[Cell], barred: u64) -> Option<u32> {
        let keys = self.keys.get(self.last)?;
        let same = keys.len() * 2 == items.len()
            && keys.iter().zip(items.as_chunks::<2>().0).all(|(known, pair)| *known == pair[0]);
        (same && !self.records.shapes[self.last].has_any(barred)).then_some(self.last as u32)
    }

    /// Returns the shape of the previous dictionary if these are its keys.
    pub(crate) fn last_shape_if(&self, keys: &[Cell]) -> Option<u32> {
        (*self.keys.get(self.last)?.as_ref() == *keys).then_some(self.last as u32)
    }

    /// Returns the shape of a dictionary that is given as alternating keys and values in `items`.
    #[inline]
    pub(crate) fn find(&mut self, items: &[Cell]) -> Option<u32> {
        if let Some(shape) = self.last_shape(items, 0) {
            return Some(shape);
        }
        let keys: Box<[Cell]> = items.iter().step_by(2).copied().collect();
        let found = *self.index.get(&keys)?;
        self.last = found as usize;
        Some(found)
    }

    /// Adds a shape. `keys` are its keys as values.
    pub(crate) fn add(&mut self, items: &[Cell], keys: Vec<Value>) -> u32 {
        let cells: Box<[Cell]> = items.iter().step_by(2).copied().collect();
        let number = self.records.shapes.len();
        self.records.shapes.push(Shape::new(keys));
        self.keys.push(cells.clone());
        self.index.insert(cells, number as u32);
        self.last = number;
        number as u32
    }
}

/// Removes repeated keys from a dictionary. As in Python, a key keeps its first position and its last value.
pub(crate) fn remove_duplicates(items: &[Cell]) -> Vec<Cell> {
    let pairs = items.as_chunks::<2>().0;
    let mut seen = HashSet::with_capacity(pairs.len());
    if pairs.iter().all(|pair| seen.insert(pair[0])) {
        return items.to_vec();
    }
    let mut positions: HashMap<Cell, usize> = HashMap::new();
    let mut kept: Vec<Cell> = Vec::with_capacity(items.len());
    for &[key, value] in pairs {
        match positions.get(&key) {
            Some(&position) => kept[position + 1] = value,
            None => {
                positions.insert(key, kept.len());
                kept.extend([key, value]);
            }
        }
    }
    kept
}
