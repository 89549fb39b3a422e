//! Adds up device memory, counting each storage once, however many values hold it.

use crate::graph::{Graph, Reachability};
use foldhash::{HashMap, HashMapExt};
use serde::Serialize;

/// An amount of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Bytes {
    /// The total of the known sizes, with each storage counted once.
    pub known_bytes: u64,
    /// The number of storages.
    pub storages: u64,
    /// The number of storages whose size is unknown.
    pub unknown: u64,
}

/// Device memory, with each storage counted once.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct BytesAnswer {
    /// The total size in bytes; null if the size of any storage is unknown.
    size_bytes: Option<u64>,
    /// The number of storages.
    storages: u64,
    /// The number of storages whose size is unknown.
    storages_of_unknown_size: u64,
}

memtrack_model::serialize_as!(Bytes => BytesAnswer: |bytes| BytesAnswer {
    size_bytes: (bytes.unknown == 0).then_some(bytes.known_bytes),
    storages: bytes.storages,
    storages_of_unknown_size: bytes.unknown,
});

/// The storages in a graph.
#[derive(Debug)]
pub(super) struct Storages {
    /// For each entry in [`Graph::memory`], the index of its storage in `storages`.
    of_entry: Vec<u32>,
    storages: Vec<Storage>,
}

#[derive(Clone, Copy, Debug)]
struct Storage {
    size_bytes: Option<u64>,
    /// The number of values that hold the storage.
    holders: u32,
    /// Whether one of these values can be reached from outside.
    is_live: bool,
}

impl Storages {
    pub(super) fn of(graph: &Graph) -> Self {
        let mut numbers = HashMap::new();
        let mut storages = Vec::<Storage>::new();
        let of_entry = graph.memory.iter().map(|memory| {
            let number = *numbers.entry((memory.device, memory.storage)).or_insert_with(|| {
                storages.push(Storage { size_bytes: None, holders: 0, is_live: false });
                storages.len() as u32 - 1
            });
            let storage = &mut storages[number as usize];
            storage.size_bytes = storage.size_bytes.max(memory.size_bytes);
            storage.holders += 1;
            storage.is_live |= graph.nodes[memory.node as usize].held != Reachability::Unreachable;
            number
        });
        let of_entry = of_entry.collect();
        Self { of_entry, storages }
    }

    /// Returns the number of storages.
    pub(super) fn count(&self) -> usize {
        self.storages.len()
    }
}

/// A sum over storages that counts each one once. It is created once per graph and reused, because
/// [`begin`](Self::begin) costs nothing.
#[derive(Debug)]
pub(super) struct Sum<'a> {
    graph: &'a Graph,
    storages: &'a Storages,
    /// For each storage, the number of the last sum that included it, and the number of its holders in that sum.
    seen: Vec<(u32, u32)>,
    sum: u32,
    lost: Bytes,
    live: Bytes,
    freed: Bytes,
}

impl<'a> Sum<'a> {
    pub(super) fn new(graph: &'a Graph, storages: &'a Storages) -> Self {
        let seen = vec![(0, 0); storages.count()];
        Self {
            graph,
            storages,
            seen,
            sum: 0,
            lost: Bytes::default(),
            live: Bytes::default(),
            freed: Bytes::default(),
        }
    }

    /// Resets the sum to zero.
    pub(super) fn begin(&mut self) {
        self.sum += 1;
        (self.lost, self.live, self.freed) = Default::default();
    }

    /// Adds a node's memory. A node may be added only once.
    pub(super) fn add(&mut self, node: u32) {
        let begin = self.graph.memory.partition_point(|memory| memory.node < node);
        let own = self.graph.memory[begin..].iter().take_while(|memory| memory.node == node);
        for at in begin..begin + own.count() {
            let number = self.storages.of_entry[at] as usize;
            let storage = &self.storages.storages[number];
            let (sum, holders) = &mut self.seen[number];
            if *sum != self.sum {
                (*sum, *holders) = (self.sum, 0);
                let to = if storage.is_live { &mut self.live } else { &mut self.lost };
                to.add(storage.size_bytes);
            }
            *holders += 1;
            if *holders == storage.holders {
                self.freed.add(storage.size_bytes);
            }
        }
    }

    /// Returns the memory that cannot be used from outside.
    pub(super) fn lost(&self) -> Bytes {
        self.lost
    }

    /// Returns the memory that is also held from outside.
    pub(super) fn live(&self) -> Bytes {
        self.live
    }

    /// Returns the memory that only the added nodes hold.
    pub(super) fn freed(&self) -> Bytes {
        self.freed
    }
}

impl Bytes {
    fn add(&mut self, size_bytes: Option<u64>) {
        self.storages += 1;
        match size_bytes {
            Some(bytes) => self.known_bytes = self.known_bytes.saturating_add(bytes),
            None => self.unknown += 1,
        }
    }

    /// Returns the sum of two amounts, which must have no storage in common.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            known_bytes: self.known_bytes.saturating_add(other.known_bytes),
            storages: self.storages + other.storages,
            unknown: self.unknown + other.unknown,
        }
    }

    /// Returns the amount that remains without `part`.
    pub(super) fn without(self, part: Self) -> Self {
        Self {
            known_bytes: self.known_bytes - part.known_bytes,
            storages: self.storages - part.storages,
            unknown: self.unknown - part.unknown,
        }
    }

    /// Returns whether there is no storage.
    pub fn is_none(self) -> bool {
        self.storages == 0
    }
}
