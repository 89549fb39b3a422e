//! The events of a recording. Each event has an action and describes the memory that the action applies to. The rest of
//! memtrack is written in terms of these types. Data of variable size is interned elsewhere and appears here as an id.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(transparent))]
        pub struct $name(pub u32);

        impl $name {
            /// The id that stands for "none".
            pub const NONE: Self = Self(0);

            /// Returns whether this is [`Self::NONE`].
            pub const fn is_none(self) -> bool {
                self.0 == 0
            }

            /// Returns the id as an index into its table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A stack in the stack table; 0 is the empty stack, which means that none was captured.
    StackId
}
id! {
    /// A scope path in the scope table; 0 is "outside any scope".
    ScopeId
}
id! {
    /// A thread in the thread table; 0 is an unknown thread.
    ThreadId
}

/// A device ordinal. The host heap is also a device: [`DeviceId::HOST`] while recording, and the ordinal after the last
/// accelerator in a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct DeviceId(pub u16);

impl DeviceId {
    /// The heap of the process.
    pub const HOST: Self = Self(u16::MAX);
    /// Host memory that the driver has pinned so that devices can access it. It was either allocated by the driver or
    /// registered with it.
    pub const PINNED: Self = Self(u16::MAX - 1);

    /// Memory that the process mapped itself, not through its heap.
    pub const MAPPED: Self = Self(u16::MAX - 2);

    /// Returns the kind of the memory.
    pub const fn kind(self) -> DeviceKind {
        match self {
            Self::HOST => DeviceKind::Host,
            Self::PINNED => DeviceKind::Pinned,
            Self::MAPPED => DeviceKind::Mapped,
            Self(_) => DeviceKind::Device,
        }
    }

    /// Returns whether this is the host heap.
    pub const fn is_host(self) -> bool {
        self.0 == Self::HOST.0
    }

    /// Returns whether this is a device rather than host memory.
    pub const fn is_accelerator(self) -> bool {
        self.kind().is_accelerator()
    }
}

/// The kind of a device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum DeviceKind {
    /// An accelerator's own memory.
    #[default]
    Device,
    /// Pinned host memory.
    Pinned,
    /// Memory that the process mapped itself, not through its heap.
    Mapped,
    /// The heap of the process or, in an operator trace, the host's memory.
    Host,
}

impl DeviceKind {
    /// All kinds, in the order in which reports list them.
    pub const ALL: [Self; 4] = [Self::Device, Self::Pinned, Self::Mapped, Self::Host];

    /// Returns whether this is an accelerator's memory.
    pub const fn is_accelerator(self) -> bool {
        matches!(self, Self::Device)
    }

    /// Returns whether this is the host heap.
    pub const fn is_host(self) -> bool {
        matches!(self, Self::Host)
    }

    /// Returns whether an allocator takes segments of this memory and cuts blocks from them. Other blocks are whole.
    pub const fn has_segments(self) -> bool {
        matches!(self, Self::Device | Self::Pinned)
    }

    /// Returns the name of the memory in reports; `None` for an accelerator's memory, whose name includes its ordinal.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Device => None,
            Self::Pinned => Some("pinned host memory"),
            Self::Mapped => Some("mapped memory"),
            Self::Host => Some("host heap"),
        }
    }

    /// Returns the kind of the memory with this name in reports.
    pub fn of_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.name() == Some(name)).unwrap_or_default()
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HOST => f.write_str("host"),
            Self::PINNED => f.write_str("pinned host memory"),
            Self::MAPPED => f.write_str("mapped memory"),
            Self(ordinal) => write!(f, "device {ordinal}"),
        }
    }
}

/// A raw stream handle, as returned by the driver; 0 is the default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct StreamId(pub u64);

/// A task of the program, such as a future that serves a request; [`TaskId::NONE`] outside all tasks. An id is never reused in
/// a process. It contains the number of the task's [place](crate::snapshot::TaskPlace), so that the memory of tasks whose rows
/// were dropped still belongs to a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

impl TaskId {
    /// No task.
    pub const NONE: Self = Self(0);
    /// The number of bits that number the tasks of a process: enough for a million tasks a second for twelve days.
    const NUMBER_BITS: u32 = 40;
    /// The exclusive upper bound on the numbers of places.
    pub const PLACES: u32 = 1 << (u64::BITS - Self::NUMBER_BITS);

    /// Returns the id of the task with this number, which begins at 1, at a place, which is below [`Self::PLACES`].
    pub const fn new(place: u32, number: u64) -> Self {
        Self((place as u64) << Self::NUMBER_BITS | number & ((1 << Self::NUMBER_BITS) - 1))
    }

    /// Returns whether this is [`Self::NONE`].
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of the task. Tasks of a process are numbered in the order in which they began.
    pub const fn number(self) -> u64 {
        self.0 & ((1 << Self::NUMBER_BITS) - 1)
    }

    /// Returns the number of the task's place: its row in [`TaskTable::places`](crate::snapshot::TaskTable::places).
    pub const fn place(self) -> usize {
        (self.0 >> Self::NUMBER_BITS) as usize
    }
}

/// The kind of an event. The names are PyTorch's, except for [`Action::Free`], which is memtrack's own. It is a free
/// that completes at once, and it becomes `free_requested` + `free_completed` in PyTorch's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum Action {
    /// A block was allocated.
    Alloc = 0,
    /// A block was freed, and its memory is available at once.
    Free = 1,
    /// A block was freed, but other streams may still use it.
    FreeRequested = 2,
    /// A block whose free was requested earlier became available.
    FreeCompleted = 3,
    /// A segment was allocated from the driver.
    SegmentAlloc = 4,
    /// A segment was returned to the driver.
    SegmentFree = 5,
    /// Pages were mapped into an expandable segment.
    SegmentMap = 6,
    /// Pages were unmapped from an expandable segment.
    SegmentUnmap = 7,
    /// An allocation failed for good. The event's address holds the device's free bytes.
    Oom = 8,
    /// A snapshot was taken.
    Snapshot = 9,
    /// A block was annotated.
    Annotate = 10,
    /// An action that memtrack does not know. Its name in the PyTorch file is kept in
    /// [`PyTorch::events`](crate::snapshot::pytorch::PyTorch::events).
    Other = 11,
}

impl Action {
    /// All actions, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Alloc,
        Self::Free,
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentAlloc,
        Self::SegmentFree,
        Self::SegmentMap,
        Self::SegmentUnmap,
        Self::Oom,
        Self::Snapshot,
        Self::Annotate,
        Self::Other,
    ];

    /// Returns the action with this number, as stored in recordings.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns PyTorch's name for the action (`free` for [`Action::Free`]).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::Free => "free",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Oom => "oom",
            Self::Snapshot => "snapshot",
            Self::Annotate => "annotate",
            Self::Other => "other",
        }
    }
}

/// The flags of an event, one bit each. The upper four bits hold the class of the sampling interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct EventFlags(pub u8);

impl EventFlags {
    /// The block was selected by byte sampling, so it represents [`sampling_weight`] blocks of its size.
    pub const SAMPLED: Self = Self(1);
    /// The event frees a block whose allocation was not recorded, because the block already existed when the recording
    /// started.
    pub const UNKNOWN_BLOCK: Self = Self(2);
    /// The block is a whole driver allocation: a segment in which no pool has reported any blocks.
    pub const WHOLE_SEGMENT: Self = Self(4);
    /// The event is not a free: a pool started to report blocks inside the segment, so the segment no longer counts as a
    /// block.
    /// Readers omit this event and the allocation that it refers to.
    pub const SUPERSEDED: Self = Self(8);

    /// The position of the upper four bits, which hold the class of the sampling interval.
    const CLASS_SHIFT: u32 = 4;

    /// Returns these flags with the interval class of a block that was selected while samples were
    /// [`interval_of_class`] bytes apart on average.
    ///
    /// # Panics
    /// Panics in debug builds when `class` is above 15.
    pub const fn with_interval_class(self, class: u8) -> Self {
        debug_assert!(class < 16);
        Self((self.0 & 0x0f) | class << Self::CLASS_SHIFT)
    }

    /// Returns the class of the sampling interval at which the block was selected, from 1 to 15, or 0 if the recording
    /// has one fixed interval, which its header contains.
    pub const fn interval_class(self) -> u8 {
        self.0 >> Self::CLASS_SHIFT
    }

    /// Returns whether all of `other`'s flags are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of these flags and `other`'s.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One event from the recorder. Its `ticks` define its position in the recording: of two events at the same address, or
/// on the same thread, the later one always has more ticks (see `recorder::order`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    /// The time, in ticks of the recorder's clock; `snapshot::Clock` converts them to time.
    pub ticks: u64,
    /// The address, or the device's free bytes for [`Action::Oom`].
    pub address: u64,
    /// The size in bytes that the client requested.
    pub size_bytes: u64,
    /// The stream that owns the block. In the recorder and in its files, this is the [task](Event::recorded_task) of a block of
    /// the host heap.
    pub stream: StreamId,
    /// The stack, or none if the recorder's context mode keeps no stack for this action.
    pub stack: StackId,
    /// The innermost scope that was open on the thread.
    pub scope: ScopeId,
    /// The thread that performed the action.
    pub thread: ThreadId,
    /// The device.
    pub device: DeviceId,
    /// The action.
    pub action: Action,
    /// Flags, such as whether the block was sampled.
    pub flags: EventFlags,
}

impl Event {
    /// Returns the task that has allocated the block, of an event of the recorder or of its files. Only blocks of the host heap
    /// belong to tasks.
    ///
    /// **Why do streams and tasks share a field?** An event is 48 bytes, which the recorder writes for each block. A host block
    /// has no stream and a device's block has no task, so a field of its own would make every event larger for nothing. Tables
    /// that readers use have a column for each ([`EventTable`](crate::snapshot::EventTable)), so that no report shows a
    /// task as a stream; and in PyTorch's form, the number of the host heap is that of other memory, which has streams.
    pub const fn recorded_task(&self) -> TaskId {
        if self.device.is_host() { TaskId(self.stream.0) } else { TaskId::NONE }
    }

    /// Returns an event of a reader's table as the recorder writes it.
    pub(crate) fn with_task(self, task: TaskId) -> Self {
        if task.is_none() { self } else { Self { stream: StreamId(task.0), ..self } }
    }

    /// An empty event.
    pub const BLANK: Self = Self {
        ticks: 0,
        address: 0,
        size_bytes: 0,
        stream: StreamId(0),
        stack: StackId::NONE,
        scope: ScopeId::NONE,
        thread: ThreadId::NONE,
        device: DeviceId(0),
        action: Action::Other,
        flags: EventFlags(0),
    };
}

/// Returns the mean number of bytes between two samples for an [`EventFlags::interval_class`]. It is 512 B for class 1
/// and doubles with each further class, up to 8 MiB.
pub const fn interval_of_class(class: u8) -> u64 {
    256 << class
}

/// Returns the number of blocks of `size_bytes` that one sampled block represents when bytes are sampled with a mean
/// interval of `mean_bytes`. It is 1 / (1 − e^(−size/mean)), which keeps totals unbiased.
pub fn sampling_weight(size_bytes: u64, mean_bytes: u64) -> f64 {
    if mean_bytes == 0 || size_bytes == 0 {
        return 1.0;
    }
    let ratio = size_bytes as f64 / mean_bytes as f64;
    1.0 / -(-ratio).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_48_bytes() {
        assert_eq!(size_of::<Event>(), 48);
    }

    #[test]
    fn action_numbers_round_trip() {
        for action in Action::ALL {
            assert_eq!(Action::from_number(action as u8), Some(action));
        }
        assert_eq!(Action::from_number(12), None);
    }

    #[test]
    fn interval_class_does_not_change_flags() {
        let flags = EventFlags::SAMPLED.with_interval_class(15);
        assert!(flags.contains(EventFlags::SAMPLED));
        assert_eq!((flags.interval_class(), interval_of_class(15)), (15, 8 << 20));
        assert_eq!(EventFlags::SAMPLED.interval_class(), 0);
    }

    #[test]
    fn weight_is_inverse_of_sampling_probability() {
        assert!((sampling_weight(1, 1000) - 1000.5).abs() < 0.1);
        assert!((sampling_weight(1 << 40, 1000) - 1.0).abs() < 1e-9);
    }
}
