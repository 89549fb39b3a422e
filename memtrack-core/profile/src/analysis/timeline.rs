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
use foldhash::fast::RandomState;
use memtrack_model::optrace::{DeviceIndex, OperatorTrace, RecordId, RecordKind};
use std::collections::HashMap;

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

/// Returns the changes to memory on all devices, sorted by time.
pub(super) fn build_timeline(
    trace: &OperatorTrace,
    tree: &Tree,
    identities: &Identities,
    flow: &Flow,
    sizes: &[Option<u64>],
    (present, versions): (&[bool], &[u32]),
    mode: Mode,
) -> Result<Vec<Change>, AnalysisError> {
    let count = identities.lifetimes.len();
    let mut changes = Vec::new();
    let mut created: Vec<Option<RecordId>> = vec![None; count];
    let mut destroyed: Vec<Option<RecordId>> = vec![None; count];
    // Live memory without a tensor, stored as its size and the record that allocated it.
    let mut without_tensor: HashMap<(u64, DeviceIndex), (u64, RecordId), RandomState> = HashMap::default();
    // PyTorch walks the tree, whose order is not chronological if one operator frees another operator's
    // memory.
    let by_time: Vec<RecordId> = (0..trace.records.len() as RecordId).collect();
    let order = if mode == Mode::Tolerant { &by_time } else { &tree.walk };
    for &number in order {
        let record = &trace.records[number as usize];
        let RecordKind::Memory(memory) = &record.what else { continue };
        if identities.ignored[number as usize] {
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
        let time_ns = record.time_ns;
        // An unrecorded free is assumed to happen right before this record, but no earlier than the
        // allocation.
        let unseen_end =
            |allocated_by: RecordId| (time_ns - 1).max(trace.records[allocated_by as usize].time_ns);
        if let Some(key) = identities.key_of_memory(number) {
            let records = if memory.is_free { &mut destroyed } else { &mut created };
            records[key as usize] = Some(number);
            if mode == Mode::Tolerant
                && !memory.is_free
                && let Some((before, allocated_by)) = without_tensor.remove(&place)
            {
                changes.push(change(unseen_end(allocated_by), Action::Destroy, before, Some(allocated_by)));
            }
            continue;
        }
        if memory.is_free {
            let known = without_tensor.remove(&place);
            let allocated_by = known.map(|(_, record)| record);
            // The size at the allocation is used even if the free has a different size.
            let bytes = known.filter(|_| mode == Mode::Tolerant).map_or(memory.bytes, |(before, _)| before);
            changes.push(change(time_ns, Action::Destroy, bytes, allocated_by));
            if known.is_none() {
                changes.push(change(-1, Action::Preexisting, bytes, None));
            }
        } else if let Some(&(before, allocated_by)) = without_tensor.get(&place) {
            if mode == Mode::Tolerant {
                changes.push(change(unseen_end(allocated_by), Action::Destroy, before, Some(allocated_by)));
                changes.push(change(time_ns, Action::Create, memory.bytes, Some(number)));
                without_tensor.insert(place, (memory.bytes, number));
            } else {
                changes.push(change(time_ns, Action::IncrementVersion, memory.bytes, Some(allocated_by)));
            }
        } else {
            without_tensor.insert(place, (memory.bytes, number));
            changes.push(change(time_ns, Action::Create, memory.bytes, Some(number)));
        }
    }
    let of_key = |key: AllocationId, time_ns, action, version, record| {
        let bytes = match sizes[key as usize] {
            Some(bytes) => bytes,
            None if mode == Mode::Compat => return Err(AnalysisError::NoSize),
            None => 0,
        };
        let device = identities.lifetimes[key as usize].device;
        let allocated_by = created[key as usize];
        Ok(Change { time_ns, action, device, storage: Some(key), version, bytes, record, allocated_by })
    };
    let starts = |key: AllocationId| versions[key as usize] as usize;
    let mut keys: Vec<AllocationId> =
        (1..count as AllocationId).filter(|&key| identities.lifetimes[key as usize].has_key()).collect();
    keys.sort_by_key(|&key| (identities.tensor(key), key));
    for &key in &keys {
        if present[starts(key)] && created[key as usize].is_none() {
            changes.push(of_key(key, -1, Action::Preexisting, 0, None)?);
        }
    }
    let newest = |key: AllocationId| {
        let listed = &present[starts(key)..starts(key + 1)];
        listed.iter().rposition(|&present| present).unwrap_or(0) as u32
    };
    let time_of = |record: RecordId| trace.records[record as usize].time_ns;
    // The time at which a storage ended if its free was not recorded but another allocation replaced it.
    let unseen_end = |key: AllocationId| {
        let replaced_by = identities.lifetimes[key as usize].replaced_by;
        let begin = created[key as usize].map_or(i64::MIN, time_of);
        (replaced_by != NONE).then(|| (time_of(replaced_by) - 1).max(begin))
    };
    for node in &flow.nodes {
        for edge in flow.edges(node) {
            let key = edge.key;
            match (edge.input, edge.effect) {
                (None, _) => {
                    let record = created[key as usize];
                    let time_ns =
                        record.map_or(node.time_ns, |record| trace.records[record as usize].time_ns);
                    changes.push(of_key(key, time_ns, Action::Create, 0, record)?);
                }
                (Some(version), Effect::Writes) => {
                    let action = Action::IncrementVersion;
                    let mut time_ns = node.time_ns;
                    if mode == Mode::Tolerant {
                        // The operator may start before another thread allocates the memory, or may still be
                        // running when the memory is freed. In both cases, move the write into the memory's lifetime.
                        let end = destroyed[key as usize].map(time_of).or_else(|| unseen_end(key));
                        time_ns = time_ns.min(end.unwrap_or(i64::MAX));
                        time_ns = time_ns.max(created[key as usize].map_or(i64::MIN, time_of));
                    }
                    changes.push(of_key(key, time_ns, action, version, Some(node.record))?);
                }
                _ => {}
            }
            if edge.effect == Effect::Frees {
                let record = destroyed[key as usize];
                let time_ns = record.map_or(node.time_ns, |record| trace.records[record as usize].time_ns);
                changes.push(of_key(key, time_ns, Action::Destroy, newest(key), record)?);
            }
        }
    }
    for &key in &keys {
        let is_known = present[starts(key)] || created[key as usize].is_some();
        if let Some(time_ns) = unseen_end(key).filter(|_| is_known && destroyed[key as usize].is_none()) {
            changes.push(of_key(key, time_ns, Action::Destroy, newest(key), None)?);
        }
    }
    changes.sort_by_key(|change| (change.time_ns, change.action));
    Ok(changes)
}
