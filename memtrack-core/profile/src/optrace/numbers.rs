//! Maps the numbers in a file to indices: the handles of tensors, the ids of records and the numbers of
//! stacks. If lines are out of order, a number may be referred to before the line that describes it.

use foldhash::fast::RandomState;
use std::collections::HashMap;

/// The entry that a number in the file stands for.
#[derive(Clone, Copy)]
pub(super) struct Meaning {
    pub(super) place: u32,
    /// The hash of the line that describes the number; `None` if it was only referred to so far.
    pub(super) described: Option<u64>,
}

/// All numbers of one kind: handles, ids or stack numbers.
#[derive(Default)]
pub(super) struct Numbers {
    pub(super) meanings: HashMap<u64, Meaning, RandomState>,
    /// The number of entries that were referred to and not described so far.
    pub(super) undescribed: usize,
}

/// The result of [`Numbers::describe`].
pub(super) enum Described {
    /// The first description, for the entry at this index. An earlier reference may have created the entry.
    First(u32),
    /// A repetition of the same line.
    Repeated,
}

impl Numbers {
    /// Returns the index of a number that a line refers to. `next` is the index after the last entry; if it
    /// is returned, the caller must create an entry there.
    pub(super) fn index_of(&mut self, number: u64, next: usize) -> u32 {
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
                Ok(Described::First(next as u32))
            }
            Some(meaning) => match meaning.described {
                None => {
                    meaning.described = Some(hash);
                    self.undescribed -= 1;
                    Ok(Described::First(meaning.place))
                }
                Some(before) if before == hash => Ok(Described::Repeated),
                Some(_) => Err(()),
            },
        }
    }

    /// Returns for each of `count` entries whether it was referred to and never described.
    pub(super) fn undescribed(&self, count: usize) -> Vec<bool> {
        let mut empty = vec![false; count];
        let places = self.meanings.values().filter(|meaning| meaning.described.is_none());
        places.for_each(|meaning| empty[meaning.place as usize] = true);
        empty
    }
}
