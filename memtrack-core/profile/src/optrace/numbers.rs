//! The meanings of a file's numbers: the handles of tensors, the ids of records, the numbers of stacks. A
//! number may be referred to before the line that describes it, if lines have changed places.

use foldhash::fast::RandomState;
use std::collections::HashMap;

/// The meaning of a number of the file.
#[derive(Clone, Copy)]
pub(super) struct Meaning {
    pub(super) place: u32,
    /// The hash of the line that describes it; `None` while it is only referred to.
    pub(super) described: Option<u64>,
}

/// Numbers of one kind.
#[derive(Default)]
pub(super) struct Numbers {
    pub(super) meanings: HashMap<u64, Meaning, RandomState>,
    /// The number of entries that were only referred to.
    pub(super) undescribed: usize,
}

/// The result of describing a number.
pub(super) enum Described {
    /// Described at this index for the first time; an entry for it may exist.
    Now(u32),
    /// The same line occurred before.
    Before,
}

impl Numbers {
    /// Returns the index of a number that is referred to. `next` is the index after the last entry; if it is
    /// returned, an entry must be created there.
    pub(super) fn mentioned(&mut self, number: u64, next: usize) -> u32 {
        let undescribed = &mut self.undescribed;
        self.meanings
            .entry(number)
            .or_insert_with(|| {
                *undescribed += 1;
                Meaning { place: next as u32, described: None }
            })
            .place
    }

    pub(super) fn is_described(&self, number: u64) -> bool {
        self.meanings.get(&number).is_some_and(|meaning| meaning.described.is_some())
    }

    pub(super) fn describe(&mut self, number: u64, hash: u64, next: usize) -> Result<Described, ()> {
        match self.meanings.get_mut(&number) {
            None => {
                self.meanings.insert(number, Meaning { place: next as u32, described: Some(hash) });
                Ok(Described::Now(next as u32))
            }
            Some(meaning) => match meaning.described {
                None => {
                    meaning.described = Some(hash);
                    self.undescribed -= 1;
                    Ok(Described::Now(meaning.place))
                }
                Some(before) if before == hash => Ok(Described::Before),
                Some(_) => Err(()),
            },
        }
    }

    /// Returns for each entry whether it was only referred to.
    pub(super) fn undescribed(&self, count: usize) -> Vec<bool> {
        let mut empty = vec![false; count];
        let places = self.meanings.values().filter(|meaning| meaning.described.is_none());
        places.for_each(|meaning| empty[meaning.place as usize] = true);
        empty
    }
}
