//! The structures in shared memory. Both sides are built from the same sources; [`ABI`] detects if they were not.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// The size of a page, in bytes.
pub(super) const PAGE_BYTES: usize = 4096;
/// The number of pages in an extent.
pub(super) const EXTENT_PAGES: usize = 16;
/// The size of an extent, in bytes.
pub(super) const EXTENT_BYTES: usize = EXTENT_PAGES * PAGE_BYTES;
/// The maximum number of extents in a region: 256 MiB.
pub(super) const MAX_EXTENTS: usize = 4096;

/// The first bytes of a region.
pub(super) const MAGIC: [u8; 8] = *b"MTSHARED";
/// The version of the layout, which changes with every change to the structures in this file or to the records in the
/// log.
pub(super) const ABI: u32 = 5;

/// The value of an extent in [`RegionHeader::owners`] if a process may take the extent. The value is 0 if the extent is
/// not reserved yet.
pub(super) const FREE: u32 = 1;
/// The value of the first extent in [`RegionHeader::owners`], because that extent belongs to the command.
pub(super) const COMMAND: u32 = 2;
/// The number that is added to a process id to get the number of an owner.
const OWNER_OFFSET: u32 = 16;

/// Returns the number of an extent's owner for a process id.
pub(super) fn owner_of(pid: u32) -> u32 {
    pid.saturating_add(OWNER_OFFSET)
}

/// Returns the process id for an owner's number; `None` if the owner is not a process.
pub(super) fn pid_of(owner: u32) -> Option<u32> {
    owner.checked_sub(OWNER_OFFSET)
}

/// The beginning of a region.
#[repr(C)]
pub(super) struct RegionHeader {
    pub(super) magic: [u8; 8],
    pub(super) abi: u32,
    /// 1 once the command no longer writes. Hooks then turn themselves off.
    pub(super) is_closed: AtomicU32,
    /// Increases while the command runs.
    pub(super) heartbeat: AtomicU64,
    /// Increases whenever pages or extents were freed.
    pub(super) freed: AtomicU64,
    /// The process id of the command.
    pub(super) command: AtomicU32,
    /// The process id of the collector; 0 until it runs.
    pub(super) collector: AtomicU32,
    /// The command's PID namespace (`pid_namespace`).
    pub(super) pid_namespace: AtomicU64,
    /// The maximum number of programs that are recorded besides the one that the command starts.
    pub(super) max_programs: AtomicU64,
    /// The number of programs besides the one that the command starts, including those beyond the limit.
    pub(super) programs: AtomicU64,
    /// The number of forked processes that wanted to be recorded, including those beyond the limit.
    pub(super) forks: AtomicU64,
    /// 1 if programs beyond the limit are recorded with the smallest budget; 0 if they are not recorded.
    pub(super) samples_beyond_limit: AtomicU32,
    /// The number of started programs into which no library can be preloaded.
    pub(super) refused: AtomicU64,
    /// The number of programs that were started without the library in their environment.
    pub(super) without_library: AtomicU64,
    /// The number of processes for which no extent was free.
    pub(super) without_memory: AtomicU64,
    /// The number of processes in other PID namespaces.
    pub(super) in_other_namespaces: AtomicU64,
    /// Whether the processor's counter is steady, as `clock::counter_kind` returns it.
    pub(super) counter_kind: AtomicU32,
    /// The number of extents that can be taken.
    pub(super) free_extents: AtomicU32,
    /// The owner of each extent.
    pub(super) owners: [AtomicU32; MAX_EXTENTS],
}

/// The first page of an extent.
#[repr(C)]
pub(super) struct ExtentHeader {
    /// The number of the extent that begins with the process's [`ProcessHeader`]; 0 until it is set.
    pub(super) process: AtomicU32,
    /// The number of free pages, approximately: 0 only if there are none.
    pub(super) free_pages: AtomicU32,
    /// The state of each page (`protocol`).
    pub(super) pages: [AtomicU32; EXTENT_PAGES],
    /// The process's data. Used only in the first extent of a process.
    pub(super) header: ProcessHeader,
}

/// The data that a process reports about itself, apart from the log.
#[repr(C)]
pub(super) struct ProcessHeader {
    /// 1 when the other fields are set, and events may follow.
    pub(super) is_begun: AtomicU32,
    pub(super) pid: AtomicU32,
    /// The process id of the parent.
    pub(super) parent: AtomicU32,
    /// 1 in a child that was forked from a recorded process.
    pub(super) is_forked: AtomicU32,
    /// 1 if the process is recorded with the smallest budget, because there are too many programs.
    pub(super) is_beyond_limit: AtomicU32,
    /// A number that is different after each `exec`.
    pub(super) image: AtomicU64,
    /// The first reading of the clock: ticks, and nanoseconds since the Unix epoch.
    pub(super) clock: [AtomicU64; 2],
    /// The first stamp of the recording.
    pub(super) start_ticks: AtomicU64,
    /// The number of pages that the process has taken so far. The next two fields count the pages that are full or
    /// finished, and those that the command has freed.
    pub(super) pages_taken: AtomicU64,
    pub(super) pages_completed: AtomicU64,
    pub(super) pages_freed: AtomicU64,
    /// See [`Counter`].
    pub(super) counters: [AtomicU64; COUNTERS],
    /// 1 if driver calls bypass the hook, and the driver is loaded.
    pub(super) bypass: AtomicU32,
    /// The counted peak of the heap: 1 once some blocks may only have been counted, and the numbers of
    /// [`CountedPeak`](memtrack_model::snapshot::CountedPeak) in their order.
    pub(super) peak: [AtomicU64; 6],
}

/// The counters of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Stacks that did not fit into the table.
    OmittedStacks,
    /// Threads that did not fit into the table.
    UnnamedThreads,
    /// Blocks that did not fit into the live table.
    UntrackedBlocks,
    /// Allocations of the driver that did not fit into their table.
    OmittedDriverAllocations,
    /// The bytes of these allocations.
    OmittedDriverBytes,
    /// The processor time of the recorded threads, in nanoseconds.
    CpuNs,
    /// The part of this time during which every block was recorded.
    ExactNs,
    /// The processor time that recording took.
    SpentNs,
    /// The largest mean number of bytes between two samples that has been used so far.
    WidestIntervalBytes,
    /// Entries into scopes that did not fit into the set of scopes.
    FoldedScopes,
    /// Threads whose sums are not in shared memory, because there was no page for them.
    ThreadsWithoutSums,
    /// The addresses that are reserved now without being memory, in bytes.
    ReservedAddressBytes,
    /// The highest value of [`Self::ReservedAddressBytes`].
    MaxReservedAddressBytes,
    /// The bytes of files that are mapped now without being the program's memory.
    MappedFileBytes,
    /// The highest value of [`Self::MappedFileBytes`].
    MaxMappedFileBytes,
    /// Python frames that are recorded without a name, because their lines did not fit into the table.
    OmittedPythonFrames,
}

/// The number of [`Counter`]s.
pub(super) const COUNTERS: usize = Counter::OmittedPythonFrames as usize + 1;

/// The use of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PageKind {
    /// Nothing: the page is free, or a process is preparing it.
    None = 0,
    /// Events of one thread and device.
    Events = 1,
    /// A part of the log.
    Log = 2,
    /// The sums of a thread, for each device.
    Sums = 3,
    /// The sums of scopes.
    ScopeSums = 4,
}

/// The beginning of a page that is not the first of its extent.
#[repr(C, align(64))]
pub(crate) struct PageHeader {
    /// The number of events, or of bytes of the log, that are complete.
    pub(crate) len: AtomicU32,
    /// A [`PageKind`]. It is set once the rest of the header is set.
    pub(super) kind: AtomicU32,
    /// For a page of the log, the page's position in the log. For a page of sums of scopes, the number of the page's
    /// first row.
    pub(super) number: AtomicU64,
    /// 1 if nothing will be added to this page of the log.
    pub(super) is_finished: AtomicU32,
}

/// The size of a page's header, in bytes.
pub(super) const PAGE_HEADER_BYTES: usize = size_of::<PageHeader>();
/// The size of a page's content, which follows the header, in bytes.
pub(crate) const PAGE_CONTENT_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;
/// The number of events that a page holds.
pub const EVENTS_PER_PAGE: usize = PAGE_CONTENT_BYTES / size_of::<memtrack_model::event::Event>();

const _: () = assert!(size_of::<RegionHeader>() <= EXTENT_BYTES && size_of::<ExtentHeader>() <= PAGE_BYTES);
const _: () = assert!(PAGE_HEADER_BYTES == 64);

/// Returns the address of a page's content, which follows the header.
pub(crate) fn page_content(page: *const PageHeader) -> *mut u8 {
    page.cast_mut().cast::<u8>().wrapping_add(PAGE_HEADER_BYTES)
}
