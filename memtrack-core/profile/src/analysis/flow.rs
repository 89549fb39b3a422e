//! The data-flow graph, which shows which nodes read, write, allocate and free each tensor.

use super::AnalysisError;
use super::identities::{AllocationId, Identities, NONE};
use super::tree::Tree;
use crate::optrace::{Mode, Role};
use crate::repairs::{Repair, Repairs};
use memtrack_model::optrace::{Op, OpKind, OperatorTrace, RecordId, RecordKind};

/// An edge between a node and a tensor's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) key: AllocationId,
    /// The version that the node receives, or `None` if the node allocates the memory.
    pub(super) input: Option<u32>,
    pub(super) effect: Effect,
}

/// A node's effect on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Writes,
    Frees,
}

impl Edge {
    /// Returns the version that the node produces, if any.
    pub(super) const fn output(&self) -> Option<u32> {
        match (self.input, self.effect) {
            (Some(version), Effect::Writes) => Some(version + 1),
            (None, Effect::Reads | Effect::Writes) => Some(0),
            _ => None,
        }
    }

    /// Returns whether the node both allocates and frees the memory.
    pub(super) const fn is_intermediate(&self) -> bool {
        self.input.is_none() && matches!(self.effect, Effect::Frees)
    }
}

/// An operator that is treated as a unit, or an allocation or free that is outside all operators.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) record: RecordId,
    pub(super) time_ns: i64,
    pub(super) is_backward: bool,
    /// The node's range in `Flow::edges`. The edges are sorted by logical tensor, then by key.
    edges: std::ops::Range<u32>,
}

/// The data-flow graph.
pub(super) struct Flow {
    /// The nodes, in chronological order.
    pub(super) nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// The highest version of each lifetime.
    pub(super) newest: Vec<u32>,
}

impl Flow {
    pub(super) fn edges(&self, node: &Node) -> &[Edge] {
        &self.edges[node.edges.start as usize..node.edges.end as usize]
    }

    pub(super) fn inputs(&self, node: &Node) -> impl Iterator<Item = (AllocationId, u32)> + '_ {
        self.edges(node).iter().filter_map(|edge| Some((edge.key, edge.input?)))
    }

    pub(super) fn outputs(&self, node: &Node) -> impl Iterator<Item = (AllocationId, u32)> + '_ {
        self.edges(node).iter().filter_map(|edge| Some((edge.key, edge.output()?)))
    }
}

/// The bits of [`KeyUse::access`], which records how an operator and its inner operators access a key.
const READS: u8 = 1;
const WRITES: u8 = 2;
const UNKNOWN: u8 = 4;

/// The way in which one node uses a key.
#[derive(Clone, Copy, Default)]
struct KeyUse {
    access: u8,
    allocated: bool,
    freed: bool,
}

/// Builds the data-flow graph.
pub(super) fn build_flow(
    trace: &OperatorTrace,
    tree: &Tree,
    identities: &Identities,
    mode: Mode,
    repairs: &mut Repairs,
) -> Result<Flow, AnalysisError> {
    let mut nodes = find_leaf_records(trace, tree);
    nodes.sort_by_key(|&leaf| trace.records[leaf as usize].time_ns);
    let mut flow = Flow {
        nodes: Vec::with_capacity(nodes.len()),
        edges: Vec::new(),
        newest: vec![0; identities.lifetimes.len()],
    };
    // One entry per lifetime, reset after each node.
    let mut collected = vec![KeyUse::default(); identities.lifetimes.len()];
    let mut keys: Vec<AllocationId> = Vec::new();
    let order = |key: &AllocationId| (identities.tensor(*key), *key);
    let mut checks = PytorchChecks::new(identities.lifetimes.len());
    for leaf in nodes {
        keys.clear();
        collect_uses(trace, tree, identities, leaf, (&mut collected, &mut keys), mode, repairs)?;
        keys.sort_unstable_by_key(order);
        let start = flow.edges.len() as u32;
        for &key in &keys {
            let KeyUse { access, allocated, freed } = std::mem::take(&mut collected[key as usize]);
            let effect = match access {
                _ if freed => Effect::Frees,
                access if access & WRITES != 0 || access == UNKNOWN => Effect::Writes,
                _ => Effect::Reads,
            };
            let version = &mut flow.newest[key as usize];
            let input = (!allocated).then_some(*version);
            if effect == Effect::Writes && !allocated {
                *version += 1;
            }
            let edge = Edge { key, input, effect };
            if edge.output().is_some_and(|output| output != *version) {
                if mode == Mode::Compat {
                    return Err(AnalysisError::Versions);
                }
                repairs.add(Repair::Versions, 1);
            }
            flow.edges.push(edge);
        }
        let record = &trace.records[leaf as usize];
        let node = Node {
            record: leaf,
            time_ns: record.time_ns,
            is_backward: is_backward(&record.what),
            edges: start..flow.edges.len() as u32,
        };
        if mode == Mode::Compat {
            checks.check(flow.edges(&node))?;
        }
        flow.nodes.push(node);
    }
    Ok(flow)
}

fn is_backward(what: &RecordKind) -> bool {
    matches!(what, RecordKind::Op(Op { kind: OpKind::Backward, .. }))
}

/// Returns the records that become nodes: memory records, operators with a known schema, and autograd nodes.
/// Records inside another node are skipped.
fn find_leaf_records(trace: &OperatorTrace, tree: &Tree) -> Vec<RecordId> {
    let mut leaves = Vec::new();
    let mut place = 0;
    while let Some(&record) = tree.walk.get(place) {
        let is_leaf = match &trace.records[record as usize].what {
            RecordKind::Memory(_) => true,
            RecordKind::Op(op) => op.known || op.kind == OpKind::Backward,
            _ => false,
        };
        if is_leaf {
            leaves.push(record);
        }
        place = if is_leaf { tree.subtree_end[place] as usize } else { place + 1 };
    }
    leaves
}

/// Collects the effects of a leaf and all records inside it on each key.
fn collect_uses(
    trace: &OperatorTrace,
    tree: &Tree,
    identities: &Identities,
    leaf: RecordId,
    (collected, keys): (&mut [KeyUse], &mut Vec<AllocationId>),
    mode: Mode,
    repairs: &mut Repairs,
) -> Result<(), AnalysisError> {
    let mut of = |key: AllocationId, change: &mut dyn FnMut(&mut KeyUse)| {
        let entry = &mut collected[key as usize];
        let is_new = entry.access == 0 && !entry.allocated && !entry.freed;
        change(entry);
        if is_new {
            keys.push(key);
        }
    };
    for &record in tree.subtree(leaf) {
        match &trace.records[record as usize].what {
            RecordKind::Op(_) => identities.for_each_key(trace, record, |_, role, key| {
                let access = match role {
                    Role::Argument(Some(true)) => WRITES,
                    Role::Argument(Some(false)) => READS,
                    Role::Argument(None) => UNKNOWN,
                    _ => return,
                };
                if key != NONE {
                    of(key, &mut |entry| entry.access |= access);
                }
            }),
            RecordKind::Memory(memory) => {
                let Some(key) = identities.key_of_memory(record) else { continue };
                let mut is_double = false;
                of(key, &mut |entry| {
                    if memory.is_free {
                        is_double = entry.freed;
                        entry.freed = true;
                    } else {
                        entry.allocated = true;
                    }
                });
                if is_double {
                    if mode == Mode::Compat {
                        return Err(AnalysisError::DoubleDelete);
                    }
                    repairs.add(Repair::IgnoredFrees, 1);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// PyTorch's consistency checks of the graph.
struct PytorchChecks {
    /// The current version of each lifetime.
    current: Vec<u32>,
    /// The last version of each lifetime that was produced by a node.
    made: Vec<Option<u32>>,
}

impl PytorchChecks {
    fn new(lifetimes: usize) -> Self {
        Self { current: vec![0; lifetimes], made: vec![None; lifetimes] }
    }

    fn check(&mut self, edges: &[Edge]) -> Result<(), AnalysisError> {
        for edge in edges {
            if edge.input.is_some_and(|input| input != self.current[edge.key as usize]) {
                return Err(AnalysisError::Versions);
            }
        }
        for edge in edges {
            let Some(output) = edge.output() else { continue };
            let made = &mut self.made[edge.key as usize];
            // Versions only increase, so a duplicate always directly follows its original.
            if *made == Some(output) {
                return Err(AnalysisError::DuplicateOutputs);
            }
            *made = Some(output);
            let current = &mut self.current[edge.key as usize];
            if output < *current {
                return Err(AnalysisError::Versions);
            }
            *current = output;
        }
        Ok(())
    }
}
