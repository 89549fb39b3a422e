//! The column tables of a [`Snapshot`].

use super::pytorch::PyTorch;
use super::{
    AddressSpace, CountedPeak, DeviceStatistics, DriverReading, EventCategories, EventTable, Folded,
    FrameTable, KnownNames, LiveBlock, Marks, NamedStacks, OperatorLog, ResidentReading, Sampling, ScopeSums,
    Segment, StringTable, TaskTable,
};
use crate::event::{EventFlags, ScopeId, StackId, interval_of_class, sampling_weight};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The complete content of one recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The program that made the recording, and the recording mode.
    pub meta: Meta,
    /// The conversion of ticks to time.
    pub clock: Clock,
    /// The binaries that were loaded, which are needed for symbols.
    pub modules: Vec<Module>,
    /// Folders or files in which symbolization looks for the binaries, in addition to their recorded paths. Recordings
    /// do not contain this list.
    pub symbol_folders: Vec<PathBuf>,
    /// All stacks of a recording, as raw return addresses; empty for a PyTorch file.
    pub stacks: StackTable,
    /// The names of the addresses in [`Self::stacks`], if the recording itself contains them instead of
    /// [`Self::modules`].
    pub names: KnownNames,
    /// All stacks of a PyTorch snapshot, as named frames; empty for a recording.
    pub named: NamedStacks,
    /// The frames of [`Self::named`].
    pub frames: FrameTable,
    /// The strings that frames and [`Self::pytorch`] refer to.
    pub strings: StringTable,
    /// All scope paths; row 0 is "outside any scope".
    pub scopes: ScopeTable,
    /// Threads by id; row 0 is the unknown thread.
    pub threads: Vec<Thread>,
    /// The events: sorted by ticks in a recording, and in the order of the traces in a PyTorch file.
    pub events: EventTable,
    /// The moments that the program marked.
    pub marks: Marks,
    /// The tasks that the program tracks.
    pub tasks: TaskTable,
    /// The blocks that were live at the end.
    pub blocks: Vec<LiveBlock>,
    /// The segments that their allocators had not returned to the driver at the end.
    pub segments: Vec<Segment>,
    /// The counts for each device, including events that the ring dropped.
    pub devices: Vec<DeviceStatistics>,
    /// The exact allocations of each scope; `None` if they were not recorded.
    pub scope_sums: Option<ScopeSums>,
    /// The CUDA driver's reports on its devices, by device and moment; empty if the driver was not hooked.
    pub driver: Vec<DriverReading>,
    /// The sampling of small blocks of the host heap; `None` if it is unknown, or if the recording's options allow no
    /// sampling.
    pub sampling: Option<Sampling>,
    /// The peak of the host heap as counted by the recorder; `None` if it recorded every block or did not count.
    pub counted_peak: Option<CountedPeak>,
    /// What the process's address space held beside the recorded blocks; `None` if it is unknown, or if the snapshot contains
    /// several processes.
    pub address_space: Option<AddressSpace>,
    /// Readings of the process's resident memory, in the order of time; empty if none was made, or if the snapshot contains
    /// several processes.
    pub resident: Vec<ResidentReading>,
    /// Counts of items that did not fit into the recorder's tables.
    pub folded: Folded,
    /// The operators that the program reported, with their tensors.
    pub operators: OperatorLog,
    /// The purpose of the events' memory. It is computed on first use (`profile::recorded::categories`), not by the
    /// recorder. It is not stored in files either, because they contain [`Self::operators`].
    pub categories: OnceLock<EventCategories>,
    /// The content that only PyTorch's files have; `None` for a recording.
    pub pytorch: Option<Box<PyTorch>>,
}

impl Snapshot {
    /// Returns whether some events or blocks are samples that represent others.
    pub fn has_samples(&self) -> bool {
        if let Some(pytorch) = self.pytorch.as_deref() {
            return !pytorch.samples.is_empty();
        }
        let is_sampled = |flags: EventFlags| flags.contains(EventFlags::SAMPLED);
        self.events.flags.iter().copied().any(is_sampled)
            || self.blocks.iter().any(|block| is_sampled(block.flags))
    }

    /// Returns whether small blocks of the host heap may be missing. If they may, sums over the recorded blocks are
    /// estimates.
    pub fn may_lack_small_blocks(&self) -> bool {
        match &self.sampling {
            Some(sampling) => sampling.unrecorded_blocks > 0,
            // This is a truncated stream. With a budget, sampling starts when the budget is used up, and from then on
            // there are samples.
            None if self.meta.budget > 0.0 => self.has_samples(),
            None => self.meta.sample_threshold_bytes > 0,
        }
    }
}

/// The program that made the recording, and the recording mode.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Meta {
    /// The program's path.
    pub program: String,
    /// The program's process id.
    pub pid: u32,
    /// memtrack's version.
    pub memtrack_version: String,
    /// The size in bytes below which host blocks are sampled; 0 if every block is exact.
    pub sample_threshold_bytes: u64,
    /// The mean number of bytes between two samples, if it was constant throughout the recording. It is 0 with a
    /// [budget](Self::budget), because the flags of each sample then contain the interval with which it was taken.
    pub sample_mean_bytes: u64,
    /// With a budget, the number of bytes added to the size of each small block when samples are selected.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub sample_block_bytes: u64,
    /// The share of the threads' processor time that recording was allowed to take; 0 if there was no budget.
    pub budget: f64,
    /// The maximum number of events in each device's ring; `u64::MAX` if it is unlimited.
    pub max_entries: u64,
    /// The context mode: `none`, `state`, `alloc` or `all`.
    pub context: String,
    /// Whether the recording was finished (`stop`, exit, panic). If not, it is a truncated stream.
    pub complete: bool,
    /// The number of parts that were removed, because a stream with a maximum size removes its oldest parts. The blocks
    /// that were live when the oldest remaining part started are nevertheless among the events.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub earlier_parts: u64,
}

impl Default for Meta {
    /// Returns the default for a snapshot that does not come from a file, which is always complete.
    fn default() -> Self {
        Self {
            program: String::new(),
            pid: 0,
            memtrack_version: String::new(),
            sample_threshold_bytes: 0,
            sample_mean_bytes: 0,
            sample_block_bytes: 0,
            budget: 0.0,
            max_entries: 0,
            context: String::new(),
            complete: true,
            earlier_parts: 0,
        }
    }
}

#[cfg(feature = "serde")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Meta {
    /// Returns the number of blocks that a block or event of `size_bytes` with these `flags` represents: 1, or more for
    /// a sample. A sample with an interval class has the interval of that class, and [`Self::sample_block_bytes`] is
    /// added to its size. A sample without a class has the interval [`Self::sample_mean_bytes`].
    pub fn weight(&self, flags: EventFlags, size_bytes: u64) -> f64 {
        if !flags.contains(EventFlags::SAMPLED) {
            return 1.0;
        }
        match flags.interval_class() {
            0 => sampling_weight(size_bytes, self.sample_mean_bytes),
            class => {
                sampling_weight(size_bytes.saturating_add(self.sample_block_bytes), interval_of_class(class))
            }
        }
    }
}

/// Two readings of the recorder's clock and the time of day. Other times are interpolated or extrapolated linearly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Clock {
    /// The ticks, and the nanoseconds since the Unix epoch, at the first reading.
    pub first: (u64, u64),
    /// The same at the last reading.
    pub last: (u64, u64),
}

/// A loaded binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Module {
    /// The binary's path at the time of the recording.
    pub path: String,
    /// The load bias, which is the address in memory minus the address in the file's symbols.
    pub bias: u64,
    /// The first address of the mapped code.
    pub start: u64,
    /// One past the last address of the mapped code.
    pub end: u64,
    /// The GNU build id in hex; empty if the binary has none.
    pub build_id: String,
    /// The length and CRC-32 of the binary's code, as `len:crc` in hex. They distinguish a binary without a build id
    /// from a rebuilt one. The string is empty if the code was not read.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "String::is_empty"))]
    pub code_id: String,
}

/// The outermost "address" of a stack whose outer frames were not recorded because the recorder's table of stacks was full.
/// No instruction has it. In a recording of several processes, the bits above it number the process.
pub const OUTER_FRAMES_OMITTED: u64 = (1 << 48) - 1;

/// Returns whether an address of a stack is [`OUTER_FRAMES_OMITTED`].
pub fn is_omission_of_outer_frames(address: u64) -> bool {
    address & OUTER_FRAMES_OMITTED == OUTER_FRAMES_OMITTED
}

/// Stacks as one flat column of return addresses, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackTable {
    /// The frames of stack `id` are at `offsets[id] .. offsets[id + 1]`; stack 0 is empty.
    pub offsets: Vec<u32>,
    /// The return addresses.
    pub addresses: Vec<u64>,
}

impl Default for StackTable {
    fn default() -> Self {
        Self { offsets: vec![0, 0], addresses: Vec::new() }
    }
}

impl StackTable {
    /// Returns the return addresses of `stack`, innermost first. The result is empty if the id is unknown.
    pub fn get(&self, stack: StackId) -> &[u64] {
        match (self.offsets.get(stack.index()), self.offsets.get(stack.index() + 1)) {
            (Some(&from), Some(&to)) => self.addresses.get(from as usize..to as usize).unwrap_or(&[]),
            _ => &[],
        }
    }

    /// Appends a stack and returns its id, which is its row.
    ///
    /// # Panics
    /// Panics when the table would hold more than `u32::MAX` addresses.
    pub fn push(&mut self, addresses: &[u64]) -> StackId {
        self.addresses.extend_from_slice(addresses);
        let end = u32::try_from(self.addresses.len()).expect("more than 4 G stack frames");
        self.offsets.push(end);
        StackId((self.offsets.len() - 2) as u32)
    }

    /// Returns the number of stacks, including the empty one.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns whether there is no stack other than the empty one.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }
}

/// The kind of a scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum ScopeKind {
    /// One operator. MemoryTracker's series have one entry for each.
    #[default]
    Operator = 0,
    /// A module, which is part of the path.
    Module = 1,
    /// The outermost module, which sets the marks `fw_start` and `fw_bw_boundary`. Its name is not part of the path.
    Root = 2,
    /// The backward pass.
    Backward = 3,
    /// The optimizer step.
    Optimizer = 4,
}

impl ScopeKind {
    /// All kinds, each at the index that is its number in recordings.
    pub const ALL: [Self; 5] = [Self::Operator, Self::Module, Self::Root, Self::Backward, Self::Optimizer];

    /// Returns the name of the kind in PyTorch's files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Module => "module",
            Self::Root => "root",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
        }
    }

    /// Returns the kind with this name, or `None` if there is no such kind.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }
}

/// A row in the scope table, which contains a scope and its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Scope {
    /// The enclosing scope, or none at the top level.
    pub parent: ScopeId,
    /// The kind of the scope.
    pub kind: ScopeKind,
    /// The name of the scope, without the path.
    pub name: String,
}

/// All scopes by id. Row 0 is "outside any scope", and rows without events may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeTable {
    /// The scopes, indexed by [`ScopeId`].
    pub rows: Vec<Scope>,
}

impl Default for ScopeTable {
    fn default() -> Self {
        Self { rows: vec![Scope::default()] }
    }
}

impl ScopeTable {
    /// The maximum number of scopes in a [`path`](Self::path).
    const MAX_DEPTH: usize = 256;

    /// Returns a scope and its ancestors, outermost first. If there are more than 256, only the innermost are returned.
    #[doc(hidden)]
    pub fn path(&self, scope: ScopeId) -> Vec<ScopeId> {
        let mut path = Vec::new();
        let mut at = scope;
        while !at.is_none() && at.index() < self.rows.len() && path.len() < Self::MAX_DEPTH {
            path.push(at);
            at = self.rows[at.index()].parent;
        }
        path.reverse();
        path
    }
}

/// A thread that recorded events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Thread {
    /// The thread's name at its first event.
    pub name: String,
    /// The kernel's thread id.
    pub os_id: u64,
}
