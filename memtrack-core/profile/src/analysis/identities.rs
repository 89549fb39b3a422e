//! Identifies references to the same tensor or memory by numbering the lifetimes of addresses and the logical
//! tensors.

use super::tree::Tree;
use crate::optrace::{Mode, Role, for_each_tensor};
use crate::repairs::{Repair, Repairs};
use foldhash::HashMap;
use memtrack_model::optrace::{DeviceIndex, OperatorTrace, RecordId, RecordKind, TensorId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The number of an address's lifetime. Lifetimes are numbered from 1 in order of their first reference.
pub(super) type AllocationId = u32;
/// A placeholder number that means no lifetime, no tensor or no record.
pub(super) const NONE: u32 = u32::MAX;

/// A reference to memory by an operator's argument or result, a registration, or a memory record.
#[derive(Clone, Copy)]
struct Reference {
    /// The tensor, or [`NONE`] for a memory record.
    tensor: TensorId,
    /// The memory record, or [`NONE`] for a tensor.
    memory: RecordId,
}

/// One lifetime of an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    /// The address, or `None` for tensors without storage.
    pub(super) address: Option<u64>,
    pub(super) device: DeviceIndex,
    /// The logical tensor, or [`NONE`] if no tensor was seen in this lifetime.
    pub(super) tensor: u32,
    /// The later allocation at the same address if the free of this lifetime was not recorded, otherwise
    /// [`NONE`].
    pub(super) replaced_by: RecordId,
}

impl Lifetime {
    /// Returns whether the lifetime has a key as PyTorch defines it, i.e. a tensor and an address. The analysis
    /// tracks only lifetimes with a key.
    pub(super) const fn has_key(&self) -> bool {
        self.tensor != NONE && self.address.is_some()
    }
}

/// The lifetimes and logical tensors of a trace.
#[derive(Clone, Debug)]
pub(super) struct Identities {
    /// The lifetimes, indexed by [`AllocationId`]. The first entry is unused.
    pub(super) lifetimes: Vec<Lifetime>,
    /// The lifetime of each reference, grouped by record, or [`NONE`] if the lifetime has no key.
    keys: Vec<AllocationId>,
    /// For each record, the index of its first reference in `keys`.
    starts: Vec<u32>,
    /// For each record, whether it is a free without a matching allocation. Tolerant mode ignores such frees.
    pub(super) ignored: Vec<bool>,
    mode: Mode,
}

impl Identities {
    /// Returns the keys that a record refers to, in the order of [`for_each_tensor`]. References without a key
    /// are [`NONE`].
    pub(super) fn keys_of(&self, record: RecordId) -> &[AllocationId] {
        &self.keys[self.starts[record as usize] as usize..self.starts[record as usize + 1] as usize]
    }

    /// Calls `visit` for each tensor that a record other than a memory record refers to, with its role and its key.
    /// Repeated registrations refer to no tensors.
    pub(super) fn for_each_key(
        &self,
        trace: &OperatorTrace,
        record: RecordId,
        mut visit: impl FnMut(TensorId, Role, AllocationId),
    ) {
        let mut keys = self.keys_of(record).iter();
        if !keys.as_slice().is_empty() {
            for_each_tensor(&trace.records[record as usize].what, |tensor, role| {
                if is_tracked(role, self.mode) {
                    visit(tensor, role, keys.next().copied().unwrap_or(NONE));
                }
            });
        }
    }

    /// Returns the lifetime that a memory record starts or ends, if the lifetime has a key.
    pub(super) fn key_of_memory(&self, record: RecordId) -> Option<AllocationId> {
        self.keys_of(record).first().copied().filter(|&key| key != NONE)
    }

    /// Returns the logical tensor of a lifetime.
    pub(super) fn tensor(&self, key: AllocationId) -> u32 {
        self.lifetimes[key as usize].tensor
    }
}

/// Returns whether tensors with this role are tracked. PyTorch does not track buffers and results, but tolerant mode does.
fn is_tracked(role: Role, mode: Mode) -> bool {
    mode == Mode::Tolerant || !matches!(role, Role::Buffer | Role::Result)
}

/// Assigns numbers to a trace's lifetimes and tensors.
pub(super) fn identify(
    trace: &OperatorTrace,
    tree: &Tree,
    registers_tensors: &[bool],
    mode: Mode,
    repairs: &mut Repairs,
) -> Identities {
    let (references, starts) = references(trace, registers_tensors, mode);
    let mut numbers = Numbering {
        trace,
        mode,
        live: HashMap::default(),
        ended: HashMap::default(),
        lifetimes: vec![Lifetime { address: None, device: DeviceIndex(0), tensor: NONE, replaced_by: NONE }],
        ignored: Vec::new(),
    };
    let mut allocations = vec![NONE; references.len()];
    let mut order = Vec::with_capacity(references.len());
    visit_in_order(trace, tree, mode, &starts, |reference| order.push(reference));
    for &at in &order {
        allocations[at as usize] = numbers.assign_number(references[at as usize], repairs);
    }
    let Numbering { mut lifetimes, ignored, .. } = numbers;
    number_tensors(trace, &references, &order, &allocations, &mut lifetimes);
    let has_key = |allocation: AllocationId| allocation != NONE && lifetimes[allocation as usize].has_key();
    let keys =
        allocations.iter().map(|&allocation| if has_key(allocation) { allocation } else { NONE }).collect();
    let mut is_ignored = vec![false; trace.records.len()];
    ignored.into_iter().for_each(|record| is_ignored[record as usize] = true);
    Identities { lifetimes, keys, starts, ignored: is_ignored, mode }
}

/// Returns all references, grouped by record, along with the index of each record's first reference.
fn references(trace: &OperatorTrace, registers_tensors: &[bool], mode: Mode) -> (Vec<Reference>, Vec<u32>) {
    let mut references = Vec::new();
    let mut starts = Vec::with_capacity(trace.records.len() + 1);
    for (number, record) in (0..).zip(&trace.records) {
        starts.push(references.len() as u32);
        match &record.what {
            RecordKind::Memory(_) => references.push(Reference { tensor: NONE, memory: number }),
            // PyTorch captures a module's tensors only once. Later calls repeat the first values, even if the
            // tensors have changed.
            RecordKind::Module(_) | RecordKind::Optimizer(_) if !registers_tensors[number as usize] => {}
            what => for_each_tensor(what, |tensor, role| {
                if is_tracked(role, mode) {
                    references.push(Reference { tensor, memory: NONE });
                }
            }),
        }
    }
    starts.push(references.len() as u32);
    (references, starts)
}

/// Calls `visit` with the indices of all references in chronological order. An operator's results are visited
/// when the operator ends, and all other references when their record starts.
fn visit_in_order(
    trace: &OperatorTrace,
    tree: &Tree,
    mode: Mode,
    starts: &[u32],
    mut visit: impl FnMut(u32),
) {
    let mut ends: BinaryHeap<Reverse<(i64, Reverse<RecordId>)>> = BinaryHeap::new();
    let outs = |record: RecordId| match &trace.records[record as usize].what {
        RecordKind::Op(op) if mode == Mode::Tolerant => op.outs.len() as u32,
        _ => 0,
    };
    for (number, record) in (0..).zip(&trace.records) {
        while let Some(&Reverse((end_ns, Reverse(ended)))) = ends.peek()
            && (end_ns < record.time_ns || end_ns == record.time_ns && !tree.is_inside(number, ended))
        {
            ends.pop();
            let after = starts[ended as usize + 1];
            (after - outs(ended)..after).for_each(&mut visit);
        }
        let after = starts[number as usize + 1];
        let results = outs(number);
        (starts[number as usize]..after - results).for_each(&mut visit);
        if results > 0 {
            // An operator that never ended yields its results at the end of the trace.
            ends.push(Reverse((record.end_ns.unwrap_or(i64::MAX), Reverse(number))));
        }
    }
    while let Some(Reverse((_, Reverse(ended)))) = ends.pop() {
        let after = starts[ended as usize + 1];
        (after - outs(ended)..after).for_each(&mut visit);
    }
}

struct Numbering<'a> {
    trace: &'a OperatorTrace,
    mode: Mode,
    /// The lifetime that is currently live at each address.
    live: HashMap<(Option<u64>, DeviceIndex), AllocationId>,
    /// The lifetime that was last freed at each address.
    ended: HashMap<(u64, DeviceIndex), AllocationId>,
    lifetimes: Vec<Lifetime>,
    ignored: Vec<RecordId>,
}

impl Numbering<'_> {
    fn assign_number(&mut self, reference: Reference, repairs: &mut Repairs) -> AllocationId {
        let tolerant = self.mode == Mode::Tolerant;
        if reference.memory == NONE {
            let tensor = &self.trace.tensors[reference.tensor as usize];
            if tolerant {
                let Some(address) = tensor.storage else { return NONE };
                let place = (address, tensor.device);
                // The tensor's memory has already been freed, for example because the operator dropped a
                // result before reporting it.
                if !self.live.contains_key(&(tensor.storage, tensor.device))
                    && let Some(&ended) = self.ended.get(&place)
                {
                    return ended;
                }
            }
            return self.lifetime_at(tensor.storage, tensor.device);
        }
        let RecordKind::Memory(memory) = &self.trace.records[reference.memory as usize].what else {
            return NONE;
        };
        let place = (Some(memory.address), memory.device);
        if memory.is_free {
            if tolerant
                && !self.live.contains_key(&place)
                && self.ended.contains_key(&(memory.address, memory.device))
            {
                repairs.add(Repair::IgnoredFrees, 1);
                self.ignored.push(reference.memory);
                return NONE;
            }
            let id = self.lifetime_at(place.0, place.1);
            self.live.remove(&place);
            if tolerant {
                self.ended.insert((memory.address, memory.device), id);
            }
            return id;
        }
        if tolerant && let Some(before) = self.live.remove(&place) {
            self.lifetimes[before as usize].replaced_by = reference.memory;
            repairs.add(Repair::ImpliedFrees, 1);
        }
        self.lifetime_at(place.0, place.1)
    }

    fn lifetime_at(&mut self, address: Option<u64>, device: DeviceIndex) -> AllocationId {
        if let Some(&id) = self.live.get(&(address, device)) {
            return id;
        }
        let id = self.lifetimes.len() as AllocationId;
        self.lifetimes.push(Lifetime { address, device, tensor: NONE, replaced_by: NONE });
        self.live.insert((address, device), id);
        id
    }
}

/// Assigns a logical tensor's number to each lifetime in which a tensor was seen. As in PyTorch, this is not
/// a full union-find, because a tensor's later lifetimes are linked only to its first one, and numbers never
/// change once assigned.
fn number_tensors(
    trace: &OperatorTrace,
    references: &[Reference],
    order: &[u32],
    allocations: &[AllocationId],
    lifetimes: &mut [Lifetime],
) {
    let mut first = vec![NONE; trace.strings.len()];
    let mut pairs = Vec::new();
    for &at in order {
        let (reference, allocation) = (references[at as usize], allocations[at as usize]);
        if reference.tensor == NONE || allocation == NONE {
            continue;
        }
        let slot = &mut first[trace.tensors[reference.tensor as usize].identity.index()];
        if *slot == NONE {
            *slot = allocation;
        }
        pairs.push(((*slot).min(allocation), (*slot).max(allocation)));
    }
    pairs.sort_unstable();
    pairs.dedup();
    let mut next = 0;
    for (first, second) in pairs {
        let first = &mut lifetimes[first as usize].tensor;
        if *first == NONE {
            *first = next;
            next += 1;
        }
        let number = *first;
        let second = &mut lifetimes[second as usize].tensor;
        if *second == NONE {
            *second = number;
        }
    }
}
