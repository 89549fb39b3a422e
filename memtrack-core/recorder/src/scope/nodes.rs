//! The set of all scopes ever entered. Each is a leaked node under its parent, interned by (parent, kind, name). Guards
//! and futures look scopes up here, and the recorder reads them all at the end. The set only grows and is lock-free, so
//! it can be used in a forked child no matter what the parent's other threads were doing.
//!
//! The set is bounded. New scopes beyond [`MAX_SCOPES`], and scopes whose names do not fit into `names`, are folded
//! into one scope "(other)" per parent and kind. Beyond [`MAX_DEPTH`] levels, a new scope becomes a sibling of the
//! innermost one. An operator directly inside itself is a single scope. Entries into folded scopes are counted, and the
//! memory of folded scopes is attributed only to the "(other)" scopes.

use super::link::{Link, empty_links};
use super::names::Name;
use super::set::{Set, Vacant};
use crate::events::ForkCell;
use crate::reentry;
use crate::zeroed::Zeroed;
use memtrack_model::event::ScopeId;
use memtrack_model::snapshot::{Scope, ScopeKind, ScopeTable};
use memtrack_model::{ScopePosition, ScopeStep};
use std::hash::{BuildHasher, Hasher};
use std::iter;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// One scope inside its parent. Two references refer to the same scope if and only if they point to the same node.
pub struct ScopeNode {
    /// The scope's id. Ids start at 1, and each is greater than the parent's unless the parent is one of `OTHERS`.
    pub id: ScopeId,
    /// The enclosing scope.
    pub(crate) parent: Option<&'static ScopeNode>,
    /// The kind of scope.
    pub kind: ScopeKind,
    name: &'static Name,
    /// The number of enclosing scopes.
    depth: u16,
    /// Whether the scope is the outermost module or is inside it.
    in_root: bool,
    /// Whether the scope stands in for all scopes that did not fit here.
    is_other: bool,
}

/// The exclusive upper bound on scope ids.
pub const SCOPE_IDS: usize = 1 << 16;
/// The maximum number of distinct scopes, which take about 10 MiB with their names.
const MAX_SCOPES: u32 = SCOPE_IDS as u32 - RESERVED - OTHERS.len() as u32;
/// The number of ids reserved for scopes that stand in for others.
const RESERVED: u32 = 4096;
/// The maximum depth of nested scopes.
const MAX_DEPTH: u16 = 128;

/// All scopes. The set is never emptied, because scopes keep their ids in a forked child.
static NODES: ForkCell<Nodes> =
    ForkCell::inherited(|| Nodes { set: Set::new(2 * SCOPE_IDS), by_id: empty_links(SCOPE_IDS) });
/// The next id. A thread that loses a race wastes an id, so a scope may have several ids.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

/// The maximum number of bytes that the scopes and their names take up.
#[cfg(test)]
pub(crate) const MAX_BYTES: usize = SCOPE_IDS * size_of::<ScopeNode>()
    + 3 * SCOPE_IDS * size_of::<Link<ScopeNode>>()
    + super::names::MAX_BYTES;

struct Nodes {
    set: Set<ScopeNode>,
    by_id: Zeroed<Link<ScopeNode>>,
}

/// The replacements that are used when no other scope fits, one of each kind and without a parent.
static OTHERS: [ScopeNode; 5] = [
    replacement(0, ScopeKind::Operator),
    replacement(1, ScopeKind::Module),
    replacement(2, ScopeKind::Root),
    replacement(3, ScopeKind::Backward),
    replacement(4, ScopeKind::Optimizer),
];
static OTHERS_USED: [AtomicBool; 5] = [const { AtomicBool::new(false) }; 5];
static OTHER_NAME: Name = Name::OTHER;

const fn replacement(place: u32, kind: ScopeKind) -> ScopeNode {
    ScopeNode {
        id: ScopeId(SCOPE_IDS as u32 - 5 + place),
        parent: None,
        kind,
        name: &OTHER_NAME,
        depth: 0,
        in_root: matches!(kind, ScopeKind::Root),
        is_other: true,
    }
}

/// The number of entries into scopes that did not fit. It starts at 0 in a forked child.
static FOLDED: ForkCell<AtomicU64> = ForkCell::new(AtomicU64::default);

impl ScopeNode {
    /// Returns the child of `parent` with this kind and name, and creates it if it is new. A root inside a root is not
    /// the outermost module, so it becomes a module. This costs two hashes and two look-ups however many scopes there
    /// are, and allocates only for new scopes.
    pub fn child(parent: Option<&'static Self>, kind: ScopeKind, name: &str) -> &'static Self {
        let kind = match kind {
            ScopeKind::Root if parent.is_some_and(|parent| parent.in_root) => ScopeKind::Module,
            kind => kind,
        };
        let parent = shallow_parent(parent);
        let Some(name) = Name::of(name) else { return replace(parent, kind) };
        match parent {
            // Further levels of recursion carry no information, because they all have the same position.
            Some(same) if kind == ScopeKind::Operator && same.is(same.parent, kind, name) => return same,
            Some(folded) if folded.is_other => return replace(parent, kind),
            _ => {}
        }
        let nodes = NODES.get();
        match nodes.set.find(hash(parent, kind, name), |node| node.is(parent, kind, name)) {
            Ok(node) => node,
            Err(vacant) => {
                nodes.insert(vacant, parent, kind, name, false).unwrap_or_else(|| replace(parent, kind))
            }
        }
    }

    /// Returns the scope's own name, not its path.
    #[inline]
    pub fn name(&self) -> &'static str {
        self.name.text
    }

    /// Returns the number of the scope's name.
    #[inline]
    pub fn name_id(&self) -> u32 {
        self.name.id
    }

    /// Returns the scope's position, which consists of modules, phase and operator.
    pub fn place(&'static self) -> ScopePosition<'static> {
        ScopePosition::of(outwards(Some(self)).map(|node| ScopeStep { kind: node.kind, name: node.name() }))
    }

    /// Returns the scope's row in a table.
    pub(crate) fn row(&self) -> Scope {
        Scope { parent: id_of(self.parent), kind: self.kind, name: self.name().to_owned() }
    }

    /// Reports the scope to the command, if recording goes to shared memory.
    fn log(&self) {
        if crate::shared_memory::is_connected() {
            let _inside = reentry::enter();
            crate::shared_memory::append(&crate::shared_memory::log::Record::Scope(self.id, self.row()));
        }
    }

    /// Returns whether a scope entered inside this one may be folded, so that each entry must be counted.
    pub(super) fn may_fold(&self) -> bool {
        self.is_other || self.depth >= MAX_DEPTH
    }

    #[inline]
    fn is(&self, parent: Option<&'static Self>, kind: ScopeKind, name: &'static Name) -> bool {
        self.kind == kind && ptr::eq(self.name, name) && is_same(self.parent, parent)
    }
}

/// Returns the parent for a new scope, which is `parent`, or an enclosing scope if `parent` is too deep. In the latter
/// case, the new scope becomes a sibling of the innermost one, so that the innermost scope is always the one that the
/// program entered. A phase is dropped only if phases alone are nested that deep.
#[inline]
fn shallow_parent(parent: Option<&'static ScopeNode>) -> Option<&'static ScopeNode> {
    let is_shallow =
        |node: &ScopeNode| node.depth < MAX_DEPTH || (keeps_phase(node.kind) && node.depth < 2 * MAX_DEPTH);
    match parent {
        Some(deep) if !is_shallow(deep) => {
            count_folded();
            outwards(parent).find(|node| is_shallow(node))
        }
        near => near,
    }
}

/// Returns whether scopes of this kind determine the phase or the root of the scopes inside them.
fn keeps_phase(kind: ScopeKind) -> bool {
    matches!(kind, ScopeKind::Root | ScopeKind::Backward | ScopeKind::Optimizer)
}

/// Returns the scope that stands in for scopes of this kind in `parent` that did not fit.
#[cold]
fn replace(parent: Option<&'static ScopeNode>, kind: ScopeKind) -> &'static ScopeNode {
    count_folded();
    // Scopes that stand in for others are not nested, except to preserve the phase.
    let parent = outwards(parent).find(|node| !node.is_other || keeps_phase(node.kind));
    if let Some(same) = parent.filter(|parent| parent.is_other && parent.kind == kind) {
        return same;
    }
    let nodes = NODES.get();
    let is = |node: &ScopeNode| node.is(parent, kind, &OTHER_NAME);
    let found = match nodes.set.find(hash(parent, kind, &OTHER_NAME), is) {
        Ok(node) => Some(node),
        Err(vacant) => nodes.insert(vacant, parent, kind, &OTHER_NAME, true),
    };
    found.unwrap_or_else(|| {
        let place = kind as usize;
        if !OTHERS_USED[place].swap(true, Ordering::Relaxed) {
            OTHERS[place].log();
        }
        &OTHERS[place]
    })
}

/// Returns `node` and its enclosing scopes, innermost first.
pub fn outwards(node: Option<&'static ScopeNode>) -> impl Iterator<Item = &'static ScopeNode> {
    iter::successors(node, |node| node.parent)
}

/// Returns the scope with this id.
pub fn node_of(id: ScopeId) -> Option<&'static ScopeNode> {
    let other = || OTHERS.iter().find(|node| node.id == id);
    let by_id = if NODES.is_made() { &NODES.get().by_id[..] } else { &[] };
    by_id.get(id.index()).filter(|_| !id.is_none()).and_then(Link::get).or_else(other)
}

/// Returns all scopes entered so far whose ids are greater than `after`, ordered by id. A scope may occur twice, with
/// two ids.
pub fn nodes_after(after: usize) -> impl Iterator<Item = &'static ScopeNode> {
    let end = NEXT_ID.load(Ordering::Acquire) as usize;
    let by_id = if NODES.is_made() { &NODES.get().by_id[..end.min(SCOPE_IDS)] } else { &[] };
    let nodes = by_id.get(after + 1..).unwrap_or(&[]).iter().filter_map(Link::get);
    let used = OTHERS.iter().zip(&OTHERS_USED).filter(|(_, used)| used.load(Ordering::Relaxed));
    nodes.chain(used.map(|(node, _)| node))
}

/// Reports all scopes so far to the command, if recording goes to shared memory.
pub(crate) fn log_all() {
    nodes_after(0).for_each(ScopeNode::log);
}

/// Returns every id that an event may contain at present.
pub fn ids() -> impl Iterator<Item = ScopeId> {
    let end = NEXT_ID.load(Ordering::Acquire);
    (0..end).map(ScopeId).chain(OTHERS.iter().map(|node| node.id))
}

/// Returns all scopes entered so far as a table, in which unused ids are empty rows.
pub fn table() -> ScopeTable {
    let mut table = ScopeTable::default();
    for node in nodes_after(0) {
        if table.rows.len() <= node.id.index() {
            table.rows.resize_with(node.id.index() + 1, Scope::default);
        }
        table.rows[node.id.index()] = node.row();
    }
    table
}

fn count_folded() {
    FOLDED.get().fetch_add(1, Ordering::Relaxed);
    crate::shared_memory::count(crate::shared_memory::Counter::FoldedScopes, 1);
}

/// Returns the number of entries since [`reset_folded`] into scopes that did not fit and were folded into others.
pub fn folded() -> u64 {
    FOLDED.get().load(Ordering::Relaxed)
}

/// Resets the count of entries into folded scopes.
pub fn reset_folded() {
    FOLDED.get().store(0, Ordering::Relaxed);
}

/// Returns the id of a scope, or [`ScopeId::NONE`] for `None`.
#[inline]
pub(crate) fn id_of(node: Option<&'static ScopeNode>) -> ScopeId {
    node.map_or(ScopeId::NONE, |node| node.id)
}

#[inline]
fn hash(parent: Option<&'static ScopeNode>, kind: ScopeKind, name: &Name) -> u64 {
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write_u64(u64::from(id_of(parent).0) << 32 | u64::from(name.id));
    hasher.write_u8(kind as u8);
    hasher.finish()
}

impl Nodes {
    /// Adds a node in a vacant slot and returns it, or returns the equal node that another thread added first. Returns
    /// `None` if there are too many nodes.
    #[cold]
    fn insert(
        &self,
        vacant: Vacant,
        parent: Option<&'static ScopeNode>,
        kind: ScopeKind,
        name: &'static Name,
        is_other: bool,
    ) -> Option<&'static ScopeNode> {
        let end = if is_other { MAX_SCOPES + RESERVED } else { MAX_SCOPES };
        let next = |id| (id < end).then_some(id + 1);
        let id = ScopeId(NEXT_ID.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next).ok()?);
        let node: &'static ScopeNode = {
            let _inside = reentry::enter();
            let depth = parent.map_or(0, |parent| parent.depth + 1);
            let in_root = kind == ScopeKind::Root || parent.is_some_and(|parent| parent.in_root);
            crate::internal_bytes::add_inherited(size_of::<ScopeNode>());
            Box::leak(Box::new(ScopeNode { id, parent, kind, name, depth, in_root, is_other }))
        };
        // Store the node under its id before another thread can enter it, so that a collector finds the scope of every
        // event. A node that loses the race stays there as a second row for the same scope, which no event uses.
        let _ = self.by_id[id.index()].fill(node);
        node.log();
        Some(self.set.insert(vacant, node, |other| other.is(parent, kind, name)))
    }
}

/// Returns whether two optional scopes are the same.
#[inline]
pub(super) fn is_same(one: Option<&'static ScopeNode>, other: Option<&'static ScopeNode>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => ptr::eq(one, other),
        (None, None) => true,
        _ => false,
    }
}
