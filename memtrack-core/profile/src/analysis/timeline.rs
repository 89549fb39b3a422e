//! Lists the changes to memory in chronological order.
//!
//! **Why is no sum ever negative in tolerant mode?** A free subtracts exactly what was allocated at its
//! address, an allocation at an address that is still in use first frees the earlier memory, and a write is
//! moved into the lifetime of the memory that it changes. A property test checks this on randomly damaged
//! traces.

use super::AnalysisError;
use super::flow::{Effect, Flow};
use super::identities::{AllocationId, Identities, NONE};
use super::tree::Tree;
use crate::optrace::Mode;
use foldhash::HashMap;
use memtrack_model::optrace::{DeviceIndex, OperatorTrace, RecordId, RecordKind};

/// The kind of change to a piece of memory. The values are those of PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The memory existed before the trace began.
    Preexisting = 1,
    /// The memory was allocated.
    Create = 2,
    /// The memory was written to, so one version ended and the next one began.
    IncrementVersion = 3,
    /// The memory was freed.
    Destroy = 4,
}

/// A change to a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The time in ns, or −1 for preexisting memory.
    pub time_ns: i64,
    /// The kind of change.
    pub action: Action,
    /// The device whose memory changed.
    pub device: DeviceIndex,
    /// The storage, as an index into [`Profile::storages`](super::Profile::storages), or `None` for memory in
    /// which no tensor was seen.
    pub storage: Option<AllocationId>,
    /// The version of the storage's contents. This is the version that an allocation creates, the version
    /// that a write ends, or the last version before a free.
    pub version: u32,
    /// The size of the memory in bytes.
    pub bytes: u64,
    /// The record that allocated, freed or wrote to the memory, or `None` if the trace does not contain it.
    pub record: Option<RecordId>,
    /// The record that allocated the memory, or `None` if the trace does not contain it.
    pub allocated_by: Option<RecordId>,
}

/// The versions of each lifetime that the analysis lists.
#[derive(Clone, Copy)]
pub(super) struct Versions<'a> {
    /// For each version of each lifetime, whether it is listed.
    pub(super) present: &'a [bool],
    /// For each lifetime, the index of its first version in `present`.
    pub(super) starts: &'a [u32],
}

impl Versions<'_> {
    fn of(&self, key: AllocationId) -> &[bool] {
        &self.present[self.starts[key as usize] as usize..self.starts[key as usize + 1] as usize]
    }

    fn has_first(&self, key: AllocationId) -> bool {
        self.present[self.starts[key as usize] as usize]
    }

    fn newest(&self, key: AllocationId) -> u32 {
        self.of(key).iter().rposition(|&present| present).unwrap_or(0) as u32
    }
}

/// Returns the changes to memory on all devices, sorted by time.
pub(super) fn build_timeline(
    trace: &OperatorTrace,
    tree: &Tree,
    identities: &Identities,
    flow: &Flow,
    sizes: &[Option<u64>],
    versions: Versions<'_>,
    mode: Mode,
) -> Result<Vec<Change>, AnalysisError> {
    let none = || vec![None; identities.lifetimes.len()];
    let mut timeline =
        Timeline { trace, identities, sizes, mode, changes: Vec::new(), created: none(), destroyed: none() };
    timeline.add_memory_records(tree);
    timeline.add_tensors(flow, versions)?;
    let mut changes = timeline.changes;
    changes.sort_by_key(|change| (change.time_ns, change.action));
    Ok(changes)
}

struct Timeline<'a> {
    trace: &'a OperatorTrace,
    identities: &'a Identities,
    sizes: &'a [Option<u64>],
    mode: Mode,
    changes: Vec<Change>,
    /// The records that allocate and free each lifetime, if the trace has them.
    created: Vec<Option<RecordId>>,
    destroyed: Vec<Option<RecordId>>,
}

impl Timeline<'_> {
    fn time_ns(&self, record: RecordId) -> i64 {
        self.trace.records[record as usize].time_ns
    }

    /// Adds the changes to memory without tensors, and notes the records that allocate and free the other memory.
    fn add_memory_records(&mut self, tree: &Tree) {
        // Live memory without a tensor, stored as its size and the record that allocated it.
        let mut without_tensor: HashMap<(u64, DeviceIndex), (u64, RecordId)> = HashMap::default();
        // PyTorch walks the tree, whose order is not chronological if one operator frees another operator's
        // memory.
        let by_time: Vec<RecordId> = (0..self.trace.records.len() as RecordId).collect();
        let is_tolerant = self.mode == Mode::Tolerant;
        for &number in if is_tolerant { &by_time } else { &tree.walk } {
            let RecordKind::Memory(memory) = &self.trace.records[number as usize].what else { continue };
            if self.identities.ignored[number as usize] {
                continue;
            }
            let place = (memory.address, memory.device);
            let change = |time_ns, action, bytes, allocated_by| Change {
                time_ns,
                action,
                device: memory.device,
                storage: None,
                version: 0,
                bytes,
                record: Some(number),
                allocated_by,
            };
            let time_ns = self.time_ns(number);
            // An unrecorded free is assumed to happen right before this record, but no earlier than the
            // allocation.
            let unseen_free = |timeline: &Self, (bytes, allocated_by)| {
                let time_ns = (time_ns - 1).max(timeline.time_ns(allocated_by));
                change(time_ns, Action::Destroy, bytes, Some(allocated_by))
            };
            if let Some(key) = self.identities.key_of_memory(number) {
                let records = if memory.is_free { &mut self.destroyed } else { &mut self.created };
                records[key as usize] = Some(number);
                if is_tolerant
                    && !memory.is_free
                    && let Some(before) = without_tensor.remove(&place)
                {
                    self.changes.push(unseen_free(self, before));
                }
            } else if memory.is_free {
                let known = without_tensor.remove(&place);
                let allocated_by = known.map(|(_, record)| record);
                // The size at the allocation is used even if the free has a different size.
                let bytes = known.filter(|_| is_tolerant).map_or(memory.bytes, |(before, _)| before);
                self.changes.push(change(time_ns, Action::Destroy, bytes, allocated_by));
                if known.is_none() {
                    self.changes.push(change(-1, Action::Preexisting, bytes, None));
                }
            } else if let Some(&before) = without_tensor.get(&place).filter(|_| !is_tolerant) {
                self.changes.push(change(time_ns, Action::IncrementVersion, memory.bytes, Some(before.1)));
            } else {
                if let Some(before) = without_tensor.insert(place, (memory.bytes, number)) {
                    self.changes.push(unseen_free(self, before));
                }
                self.changes.push(change(time_ns, Action::Create, memory.bytes, Some(number)));
            }
        }
    }

    /// Adds the changes to memory with tensors.
    fn add_tensors(&mut self, flow: &Flow, versions: Versions<'_>) -> Result<(), AnalysisError> {
        let lifetimes = &self.identities.lifetimes;
        let mut keys: Vec<AllocationId> =
            (1..lifetimes.len() as AllocationId).filter(|&key| lifetimes[key as usize].has_key()).collect();
        keys.sort_by_key(|&key| (self.identities.tensor(key), key));
        for &key in &keys {
            if versions.has_first(key) && self.created[key as usize].is_none() {
                self.add(key, -1, Action::Preexisting, 0, None)?;
            }
        }
        for node in &flow.nodes {
            for edge in flow.edges(node) {
                let key = edge.key;
                let (created, destroyed) = (self.created[key as usize], self.destroyed[key as usize]);
                let time_of = |record: Option<RecordId>| {
                    record.map_or(node.time_ns, |record| self.trace.records[record as usize].time_ns)
                };
                match (edge.input, edge.effect) {
                    (None, _) => self.add(key, time_of(created), Action::Create, 0, created)?,
                    (Some(version), Effect::Writes) => {
                        let time_ns = self.time_of_write(key, node.time_ns);
                        self.add(key, time_ns, Action::IncrementVersion, version, Some(node.record))?;
                    }
                    _ => {}
                }
                if edge.effect == Effect::Frees {
                    self.add(key, time_of(destroyed), Action::Destroy, versions.newest(key), destroyed)?;
                }
            }
        }
        for &key in &keys {
            let is_known = versions.has_first(key) || self.created[key as usize].is_some();
            if let Some(time_ns) = self.unseen_end(key)
                && is_known
                && self.destroyed[key as usize].is_none()
            {
                self.add(key, time_ns, Action::Destroy, versions.newest(key), None)?;
            }
        }
        Ok(())
    }

    /// Returns the time at which a storage ended if its free was not recorded but another allocation replaced it.
    fn unseen_end(&self, key: AllocationId) -> Option<i64> {
        let replaced_by = self.identities.lifetimes[key as usize].replaced_by;
        let begin = self.created[key as usize].map_or(i64::MIN, |record| self.time_ns(record));
        (replaced_by != NONE).then(|| (self.time_ns(replaced_by) - 1).max(begin))
    }

    /// Returns the time of a write in a node that starts at `time_ns`. The operator may start before another thread
    /// allocates the memory, or may still be running when the memory is freed. In both cases, tolerant mode moves the
    /// write into the memory's lifetime.
    fn time_of_write(&self, key: AllocationId, time_ns: i64) -> i64 {
        if self.mode == Mode::Compat {
            return time_ns;
        }
        let begin = self.created[key as usize].map_or(i64::MIN, |record| self.time_ns(record));
        let end = self.destroyed[key as usize].map(|record| self.time_ns(record));
        time_ns.min(end.or_else(|| self.unseen_end(key)).unwrap_or(i64::MAX)).max(begin)
    }

    /// Adds a change to the memory of a lifetime with a tensor.
    fn add(
        &mut self,
        key: AllocationId,
        time_ns: i64,
        action: Action,
        version: u32,
        record: Option<RecordId>,
    ) -> Result<(), AnalysisError> {
        let bytes = match self.sizes[key as usize] {
            Some(bytes) => bytes,
            None if self.mode == Mode::Compat => return Err(AnalysisError::NoSize),
            None => 0,
        };
        let device = self.identities.lifetimes[key as usize].device;
        let allocated_by = self.created[key as usize];
        let storage = Some(key);
        self.changes.push(Change { time_ns, action, device, storage, version, bytes, record, allocated_by });
        Ok(())
    }
}
