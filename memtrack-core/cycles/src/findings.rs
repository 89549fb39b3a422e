//! What is found in a graph: its cycles, worst first, with what each holds and how to end it.

/// How sure it is that nobody can use the values of a cycle any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proof {
    /// Nothing outside refers to them: proved by counting. Their memory is gone until the program ends.
    Proved,
    /// Held only by themselves, but weak handles exist, with which the program may still reach them.
    WeakHandles,
    /// Still held from outside: a cycle that will keep its memory when the outside lets go. No leak yet.
    HeldOutside,
}

/// A number of bytes of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bytes {
    /// What is known, each storage once.
    pub known_bytes: u64,
    /// Storages.
    pub storages: u64,
    /// Those among them whose size is not known.
    pub unknown: u64,
}

/// A reference whose change into a weak one ends a cycle. A suggestion: the program's author knows which of two owns the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The edge, as a place in the graph's edges.
    pub edge: u32,
    /// Whether the values of this cycle form no cycle any more without it.
    pub ends_it: bool,
    /// Whether it leads from a younger value to an older one, as references back to a parent or an owner do.
    pub leads_back: bool,
}

/// A cycle: values each of which leads to each of the others.
#[derive(Clone, Debug)]
pub struct Cycle {
    /// How sure it is.
    pub proof: Proof,
    /// How many cycles of the same types and fields there are; this one is the first of them, and all its numbers but
    /// [`all_bytes`](Self::all_bytes) are its own.
    pub instances: u64,
    /// Its values.
    pub nodes: Vec<u32>,
    /// A shortest way around through one of them, as places in the graph's edges.
    pub around: Vec<u32>,
    /// The shortest way from it to device memory, from a value of the cycle; empty if that value has some itself.
    pub to_memory: Vec<u32>,
    /// The value with device memory at the end of that way.
    pub memory_node: Option<u32>,
    /// Device memory that it leads to and that nobody else outside can use: it stays until the cycle is ended.
    pub leaked: Bytes,
    /// Of that, what would be freed if only this cycle were gone.
    pub exclusive: Bytes,
    /// Device memory that it leads to and that is also held from outside: it will stay when the outside lets go.
    pub pinned: Bytes,
    /// What leaks with all instances together, each storage once.
    pub all_leaked: Bytes,
    /// Strong pointers from outside into it (where it is [`Proof::HeldOutside`]).
    pub held_by: u64,
    /// Weak pointers to its values from outside.
    pub weak_outside: u64,
    /// Other cycles that lead to it, as places in [`Findings::cycles`]: they must be ended, too.
    pub behind: Vec<u32>,
    /// What to make weak, best first.
    pub cuts: Vec<Cut>,
}

/// All that is found in a graph.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Cycles from which device memory can be reached, proved ones first, and most bytes first among each.
    pub cycles: Vec<Cycle>,
    /// All device memory that is unreachable, each storage once.
    pub leaked: Bytes,
    /// What each of [`Graph::unexplained`](crate::Graph::unexplained) leads to.
    pub unexplained: Vec<Bytes>,
    /// Cycles that lead to no device memory, which are not listed.
    pub without_memory: u64,
    /// Cycles that were not looked into because there are too many.
    pub not_measured: u64,
}
