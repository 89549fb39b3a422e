//! The column tables of a [`Snapshot`].

use super::pytorch::PyTorch;
use super::{
    CountedPeak, DeviceStatistics, DriverReading, EventCategories, EventTable, Folded, FrameTable,
    KnownNames, LiveBlock, Marks, NamedStacks, OperatorLog, Sampling, ScopeSums, Segment, StringTable,
};
use crate::event::{EventFlags, ScopeId, StackId, interval_of_class, sampling_weight};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The complete content of one recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The recording program, and the mode of the recording.
    pub meta: Meta,
    /// The conversion of ticks to time.
    pub clock: Clock,
    /// The binaries that were loaded, for symbols.
    pub modules: Vec<Module>,
    /// Folders or files in which symbolization looks for the binaries, besides their recorded paths. Recordings do not
    /// contain this list.
    pub symbol_folders: Vec<PathBuf>,
    /// All stacks of a recording, as raw return addresses; empty for a PyTorch file.
    pub stacks: StackTable,
    /// The names of [`Self::stacks`]' addresses, where the recording itself contains them instead of
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
    /// The events, in merge order.
    pub events: EventTable,
    /// The moments that the program marked.
    pub marks: Marks,
    /// The blocks that were live at the end.
    pub blocks: Vec<LiveBlock>,
    /// Segments held at the end.
    pub segments: Vec<Segment>,
    /// Counts per device, including events that the ring dropped.
    pub devices: Vec<DeviceStatistics>,
    /// The exact allocations of each scope; `None` where they were not recorded.
    pub scope_sums: Option<ScopeSums>,
    /// The CUDA driver's reports about its devices, by device and moment; empty where it was not hooked.
    pub driver: Vec<DriverReading>,
    /// The sampling of small blocks of the host heap; `None` where it is unknown, or impossible.
    pub sampling: Option<Sampling>,
    /// The peak of the host heap, as the recorder counted it; `None` where it recorded every block, or did not count.
    pub counted_peak: Option<CountedPeak>,
    /// Counts of items that did not fit into the recorder's tables.
    pub folded: Folded,
    /// The operators that the program reported, with their tensors.
    pub operators: OperatorLog,
    /// The purpose of the events' memory. Computed on first use (`profile::recorded::categories`), not by the
    /// recorder, and not stored in files: files contain [`Self::operators`].
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

    /// Returns whether small blocks of the host heap may be missing, so that sums over the recorded ones are
    /// estimates.
    pub fn may_lack_small_blocks(&self) -> bool {
        match &self.sampling {
            Some(sampling) => sampling.unrecorded_blocks > 0,
            // A truncated stream. With a budget, sampling begins when the budget is used up, and then there are
            // samples.
            None if self.meta.budget > 0.0 => self.has_samples(),
            None => self.meta.sample_threshold_bytes > 0,
        }
    }
}

/// The recording program, and the mode of the recording.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Meta {
    /// The program's path.
    pub program: String,
    /// Its process id.
    pub pid: u32,
    /// memtrack's version.
    pub memtrack_version: String,
    /// The size in bytes below which host blocks are sampled; 0: every block is exact.
    pub sample_threshold_bytes: u64,
    /// The mean interval in bytes between two samples, if it was fixed; 0 with a [budget](Self::budget), where each
    /// sample contains its own.
    pub sample_mean_bytes: u64,
    /// With a budget: the bytes that are added to the size of each small block when samples are selected.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub sample_block_bytes: u64,
    /// The share of the threads' processor time that recording was allowed to take; 0: there was no budget.
    pub budget: f64,
    /// The maximum number of events in the ring per device; `u64::MAX`: unlimited.
    pub max_entries: u64,
    /// The context mode: `none`, `state`, `alloc` or `all`.
    pub context: String,
    /// Whether the recording was finished (`stop`, exit, panic); otherwise it is a truncated stream.
    pub complete: bool,
    /// The number of removed parts: a stream with a maximum size removes its oldest parts. The blocks that were live when
    /// the oldest remaining part began are nevertheless among the events.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_zero"))]
    pub earlier_parts: u64,
}

impl Default for Meta {
    /// Returns the default for snapshots that are not from a file: they are complete.
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
    /// Returns the number of blocks that a block or event of `size_bytes` with these `flags` represents: 1, or more
    /// for a sample. A sample's interval is that of its class, with [`Self::sample_block_bytes`], or
    /// [`Self::sample_mean_bytes`] if it has no class.
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

/// Two readings of the recorder's clock and the time of day; other times are interpolated or extrapolated linearly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Clock {
    /// Ticks and nanoseconds since the Unix epoch at the first reading.
    pub first: (u64, u64),
    /// The same at the last reading.
    pub last: (u64, u64),
}

/// A loaded binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Module {
    /// Its path at the time of the recording.
    pub path: String,
    /// Load bias: the address in memory minus the address in the file's symbols.
    pub bias: u64,
    /// First address of the mapped code.
    pub start: u64,
    /// One past the last address of the mapped code.
    pub end: u64,
    /// GNU build id in hex; empty when the binary has none.
    pub build_id: String,
    /// The length and CRC-32 of its code, as `len:crc` in hex, which distinguish a binary without a build id from a
    /// rebuilt one; empty when the code was not read.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "String::is_empty"))]
    pub code_id: String,
}

/// Stacks as one flat column of return addresses, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackTable {
    /// `offsets[id] .. offsets[id + 1]` are the frames of stack `id`; stack 0 is empty.
    pub offsets: Vec<u32>,
    /// Return addresses.
    pub addresses: Vec<u64>,
}

impl Default for StackTable {
    fn default() -> Self {
        Self { offsets: vec![0, 0], addresses: Vec::new() }
    }
}

impl StackTable {
    /// Returns the return addresses of `stack`, innermost first; empty for an unknown id.
    pub fn get(&self, stack: StackId) -> &[u64] {
        match (self.offsets.get(stack.index()), self.offsets.get(stack.index() + 1)) {
            (Some(&from), Some(&to)) => self.addresses.get(from as usize..to as usize).unwrap_or(&[]),
            _ => &[],
        }
    }

    /// Appends a stack; its id is its row.
    ///
    /// # Panics
    /// Panics when the table would hold more than `u32::MAX` addresses.
    pub fn push(&mut self, addresses: &[u64]) -> StackId {
        self.addresses.extend_from_slice(addresses);
        let end = u32::try_from(self.addresses.len()).expect("more than 4 G stack frames");
        self.offsets.push(end);
        StackId((self.offsets.len() - 2) as u32)
    }

    /// Returns the number of stacks, the empty one included.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns whether there is no stack but the empty one.
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
    /// One operator: the unit of the tracker's series.
    #[default]
    Operator = 0,
    /// A module: part of the path.
    Module = 1,
    /// The outermost module: marks `fw_start` and `fw_bw_boundary`; its name is not part of the path.
    Root = 2,
    /// The backward pass.
    Backward = 3,
    /// The optimizer step.
    Optimizer = 4,
}

/// A row of the scope table: a scope and its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Scope {
    /// The enclosing scope; none at the top level.
    pub parent: ScopeId,
    /// Its kind.
    pub kind: ScopeKind,
    /// Its name, without the path.
    pub name: String,
}

/// All scopes by id; row 0 is "outside any scope", and rows without events may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeTable {
    /// The rows.
    pub rows: Vec<Scope>,
}

impl Default for ScopeTable {
    fn default() -> Self {
        Self { rows: vec![Scope::default()] }
    }
}

/// A thread that recorded events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Thread {
    /// Its name at its first event.
    pub name: String,
    /// The kernel's thread id.
    pub os_id: u64,
}
