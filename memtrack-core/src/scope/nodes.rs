//! The set of all scopes ever entered: each a leaked node under its parent, interned by (parent, kind, name). Guards
//! and futures look scopes up here, the recorder reads them all at the end. The set only grows and nobody ever waits
//! in it, so it stays usable in a forked child whatever the other threads were doing.

use super::link::Link;
use super::path::{Place, ScopeStep};
use crate::event::ScopeId;
use crate::reentry;
use crate::snapshot::{Scope, ScopeKind, ScopeTable};
use std::hash::{BuildHasher, Hasher};
use std::iter;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// One scope inside its parent. Two nodes are the same scope exactly when they are the same node.
pub(crate) struct ScopeNode {
    /// Its id, from 1; always above its parent's.
    pub(crate) id: ScopeId,
    /// The scope around it.
    pub(crate) parent: Option<&'static ScopeNode>,
    /// What it stands for.
    pub(crate) kind: ScopeKind,
    /// Its own name, not the path.
    pub(crate) name: &'static str,
    /// The next node of its bucket.
    next: Link,
}

/// Programs have dozens to thousands of scopes: chains stay short.
const BUCKETS: usize = 1024;

static HEADS: [Link; BUCKETS] = [const { Link::empty() }; BUCKETS];
/// Losing a race wastes an id, so ids have holes.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl ScopeNode {
    /// The child of `parent` with that kind and name, made when it is new. A root inside a root is not the outermost
    /// module, so it becomes a module. Costs a hash and a walk of a chain; allocates (twice) only for a new scope.
    pub(crate) fn child(parent: Option<&'static Self>, kind: ScopeKind, name: &str) -> &'static Self {
        let kind = match kind {
            ScopeKind::Root if outwards(parent).any(|node| node.kind == ScopeKind::Root) => ScopeKind::Module,
            kind => kind,
        };
        let head = &HEADS[bucket(parent, kind, name)];
        let first = head.get();
        find(first, None, parent, kind, name).unwrap_or_else(|| insert(head, first, parent, kind, name))
    }

    /// Where this scope lies: modules, phase and operator.
    pub(crate) fn place(&'static self) -> Place<'static> {
        Place::of(outwards(Some(self)).map(|node| ScopeStep { kind: node.kind, name: node.name }))
    }
}

/// `node` and the scopes around it, innermost first.
pub(crate) fn outwards(node: Option<&'static ScopeNode>) -> impl Iterator<Item = &'static ScopeNode> {
    iter::successors(node, |node| node.parent)
}

/// All scopes entered so far, in no order.
pub(crate) fn all_nodes() -> impl Iterator<Item = &'static ScopeNode> {
    HEADS.iter().flat_map(|head| iter::successors(head.get(), |node| node.next.get()))
}

/// All scopes entered so far as a table; ids nobody got are empty rows.
pub(crate) fn table() -> ScopeTable {
    let mut table = ScopeTable::default();
    for node in all_nodes() {
        if table.rows.len() <= node.id.index() {
            table.rows.resize_with(node.id.index() + 1, Scope::default);
        }
        table.rows[node.id.index()] =
            Scope { parent: id_of(node.parent), kind: node.kind, name: node.name.to_owned() };
    }
    table
}

/// The id of an optional scope.
#[inline]
pub(crate) fn id_of(node: Option<&'static ScopeNode>) -> ScopeId {
    node.map_or(ScopeId::NONE, |node| node.id)
}

fn bucket(parent: Option<&'static ScopeNode>, kind: ScopeKind, name: &str) -> usize {
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write_u32(id_of(parent).0);
    hasher.write_u8(kind as u8);
    hasher.write(name.as_bytes());
    hasher.finish() as usize % BUCKETS
}

/// The node with that content in the chain from `first` up to, not including, `end`.
fn find(
    first: Option<&'static ScopeNode>,
    end: Option<&'static ScopeNode>,
    parent: Option<&'static ScopeNode>,
    kind: ScopeKind,
    name: &str,
) -> Option<&'static ScopeNode> {
    iter::successors(first, |node| node.next.get())
        .take_while(|node| !is_same(Some(node), end))
        .find(|node| node.kind == kind && is_same(node.parent, parent) && node.name == name)
}

/// Adds a node in front of a chain that was searched from `seen` on, unless another thread adds it first.
#[cold]
fn insert(
    head: &Link,
    mut seen: Option<&'static ScopeNode>,
    parent: Option<&'static ScopeNode>,
    kind: ScopeKind,
    name: &str,
) -> &'static ScopeNode {
    let node: &'static ScopeNode = {
        let _own = reentry::enter();
        let name = Box::leak(Box::<str>::from(name));
        let id = ScopeId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        Box::leak(Box::new(ScopeNode { id, parent, kind, name, next: Link::to(seen) }))
    };
    while !head.replace(seen, node) {
        let first = head.get();
        if let Some(winner) = find(first, seen, parent, kind, name) {
            return winner;
        }
        node.next.set(first);
        seen = first;
    }
    node
}

/// Whether both are the same scope.
#[inline]
pub(super) fn is_same(one: Option<&'static ScopeNode>, other: Option<&'static ScopeNode>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => ptr::eq(one, other),
        (None, None) => true,
        _ => false,
    }
}
