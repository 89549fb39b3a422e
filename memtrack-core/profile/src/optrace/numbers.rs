//! Maps the numbers used in a file to indices. The numbers are tensor handles, record ids and stack numbers.
//! If lines are out of order, a number may be referenced before the line that describes it.

use foldhash::HashMap;

/// The entry that a number in the file refers to.
#[derive(Clone, Copy)]
pub(super) struct IdEntry {
    pub(super) place: u32,
    /// The hash of the line that describes the number, or `None` if the number has only been referenced so
    /// far.
    pub(super) line_hash: Option<u64>,
}

/// All numbers of one kind, i.e. all handles, ids or stack numbers.
#[derive(Default)]
pub(super) struct IdTable {
    pub(super) entries: HashMap<u64, IdEntry>,
    /// The number of entries that have been referenced but not yet described.
    pub(super) undescribed: usize,
}

/// The result of [`IdTable::describe`].
pub(super) enum Described {
    /// This is the first description of the entry at this index. An earlier reference may have created the
    /// entry.
    First(u32),
    /// The same line has been seen before.
    Repeated,
}

impl IdTable {
    /// Returns the index for a number that a line refers to. `next` is the index past the last entry; if it
    /// is returned, the caller must create an entry there.
    pub(super) fn index_of(&mut self, number: u64, next: usize) -> u32 {
        let undescribed = &mut self.undescribed;
        self.entries
            .entry(number)
            .or_insert_with(|| {
                *undescribed += 1;
                IdEntry { place: next as u32, line_hash: None }
            })
            .place
    }

    pub(super) fn is_described(&self, number: u64) -> bool {
        self.entries.get(&number).is_some_and(|entry| entry.line_hash.is_some())
    }

    pub(super) fn describe(&mut self, number: u64, hash: u64, next: usize) -> Result<Described, ()> {
        match self.entries.get_mut(&number) {
            None => {
                self.entries.insert(number, IdEntry { place: next as u32, line_hash: Some(hash) });
                Ok(Described::First(next as u32))
            }
            Some(entry) => match entry.line_hash {
                None => {
                    entry.line_hash = Some(hash);
                    self.undescribed -= 1;
                    Ok(Described::First(entry.place))
                }
                Some(before) if before == hash => Ok(Described::Repeated),
                Some(_) => Err(()),
            },
        }
    }

    /// Returns, for each of `count` entries, whether it was referenced but never described.
    pub(super) fn undescribed(&self, count: usize) -> Vec<bool> {
        let mut empty = vec![false; count];
        let places = self.entries.values().filter(|entry| entry.line_hash.is_none());
        places.for_each(|entry| empty[entry.place as usize] = true);
        empty
    }
}
