//! The parameters of a recording: those of PyTorch's `_record_memory_history` (`enabled`, `context`, `max_entries` and
//! `skip_actions`, with the semantics of PyTorch 2.15), the sampling of the host heap, and the recording's destination.
//!
//! **Why do the defaults differ from PyTorch's?** The context is `alloc` instead of `all`, so that a free has its
//! allocation's stack and no further stack is captured. The ring has 1 Mi events per device (48 MB) instead of being
//! unlimited, so that a program's memory is bounded.

use crate::event::Action;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The amount of history that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enabled {
    /// Nothing is recorded, and the recorded data is dropped.
    None,
    /// Only live blocks, with their stacks, and the newest event are kept (PyTorch's ring of one entry).
    State,
    /// Events are kept as well, up to `max_entries` per device.
    #[default]
    All,
}

/// The stacks that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Context {
    /// No stacks.
    None,
    /// The stacks of live blocks. Events have none.
    State,
    /// The stacks of live blocks and of events, where a free has the stack of its allocation. This is memtrack's
    /// default. Unlike PyTorch's default, it captures no stack at a free.
    #[default]
    Alloc,
    /// Like `Alloc`, but a free has its own stack. This is PyTorch's default.
    All,
}

/// The error for an option text that is not a known value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOption(String);

impl fmt::Display for UnknownOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnknownOption {}

impl FromStr for Enabled {
    type Err = UnknownOption;

    /// Parses PyTorch's names `none`, `state` and `all`.
    fn from_str(text: &str) -> Result<Self, UnknownOption> {
        match text {
            "none" => Ok(Self::None),
            "state" => Ok(Self::State),
            "all" => Ok(Self::All),
            _ => Err(UnknownOption(format!("expected enabled to be 'none', 'state' or 'all', not '{text}'"))),
        }
    }
}

impl Context {
    /// Returns PyTorch's name for the context mode.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::State => "state",
            Self::Alloc => "alloc",
            Self::All => "all",
        }
    }
}

impl FromStr for Context {
    type Err = UnknownOption;

    /// Parses PyTorch's names `none`, `state`, `alloc` and `all`.
    fn from_str(text: &str) -> Result<Self, UnknownOption> {
        [Self::None, Self::State, Self::Alloc, Self::All]
            .into_iter()
            .find(|context| context.name() == text)
            .ok_or_else(|| {
                UnknownOption(format!(
                    "expected context to be 'none', 'state', 'alloc' or 'all', not '{text}'"
                ))
            })
    }
}

/// The minimum size, in bytes, of the host blocks that are always recorded when there is a budget.
const SMALL_BYTES: u64 = 64 << 10;

/// The parameters of a recording. The defaults suit both a training run and a service: events are recorded with
/// allocation stacks, up to 1 Mi per device. Every host block is recorded while that takes less than 3 % of the
/// threads' time; otherwise, blocks below 64 KiB are sampled. Nothing is written to disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    #[doc(hidden)]
    pub enabled: Enabled,
    #[doc(hidden)]
    pub context: Context,
    #[doc(hidden)]
    pub max_entries: u64,
    #[doc(hidden)]
    pub skip_actions: u32,
    #[doc(hidden)]
    pub sample_threshold_bytes: u64,
    #[doc(hidden)]
    pub sample_mean_bytes: u64,
    /// The budget in millionths of the threads' processor time; 0 means a fixed rate instead of a budget.
    #[doc(hidden)]
    pub budget_millionths: u32,
    #[doc(hidden)]
    pub live_blocks: Option<u64>,
    #[doc(hidden)]
    pub tracker_entries: u64,
    #[doc(hidden)]
    pub host_heap: bool,
    #[doc(hidden)]
    pub output: Option<PathBuf>,
    #[doc(hidden)]
    pub stream: bool,
    #[doc(hidden)]
    pub max_bytes: Option<u64>,
    #[doc(hidden)]
    pub dump_on_oom: Option<PathBuf>,
    #[doc(hidden)]
    pub report_on_oom: bool,
    #[doc(hidden)]
    pub operators: bool,
    /// Whether the recorder's tables have an eighth or a quarter of their usual bounds.
    #[doc(hidden)]
    pub small_tables: bool,
    /// Whether `memtrack run` set these options, in which case a stream to which nothing is written leaves no file.
    #[doc(hidden)]
    pub under_run: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enabled: Enabled::All,
            context: Context::Alloc,
            max_entries: 1 << 20,
            skip_actions: 0,
            sample_threshold_bytes: SMALL_BYTES,
            sample_mean_bytes: 0,
            budget_millionths: 30_000,
            live_blocks: None,
            tracker_entries: 1 << 18,
            host_heap: true,
            output: None,
            stream: false,
            max_bytes: None,
            dump_on_oom: None,
            report_on_oom: false,
            operators: false,
            small_tables: false,
            under_run: false,
        }
    }
}

impl Options {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the options for a service that records as long as it runs: recording blocks takes at most 1 % of the processor
    /// time of its threads (counting the others comes on top, about 2 ns for each), and memtrack's own memory stays within
    /// 64 MiB (16 MiB more for each further device), whatever the service does.
    ///
    /// These options keep fewer events (65,536 per device), live blocks (32,768 tracked individually), operators of a
    /// tracker, distinct stacks (65,536; later ones are shortened, then counted), copied unwind tables, and threads with
    /// state of their own (512; further ones share eight). Sums of bytes stay exact, and what is left out is counted, as
    /// with the default options. The bounds of tables hold in a process that has not recorded with other options before.
    ///
    /// Files are limited separately: [`stream_to`](Self::stream_to) with [`max_bytes`](Self::max_bytes) for a stream that
    /// replaces its oldest parts. A stream adds up to 12 MiB if its disk is slow; a snapshot or dump takes about twice what
    /// the tables hold while it is made.
    ///
    /// ```
    /// use memtrack_model::options::Options;
    ///
    /// let options = Options::service().stream_to("service.memtrack").max_bytes(256 << 20);
    /// ```
    pub fn service() -> Self {
        let small = Self { small_tables: true, ..Self::default() };
        small.budget(0.01).max_entries(1 << 16).live_blocks(1 << 15).tracker_entries(1 << 12)
    }

    /// Sets the amount of history that is kept.
    pub fn enabled(mut self, enabled: Enabled) -> Self {
        self.enabled = enabled;
        self
    }

    /// Sets which stacks are kept.
    pub fn context(mut self, context: Context) -> Self {
        self.context = context;
        self
    }

    /// Sets the number of newest events that are kept per device. As in PyTorch, the number is at least 1. An event takes
    /// 48 bytes.
    pub fn max_entries(mut self, max_entries: u64) -> Self {
        self.max_entries = max_entries.max(1);
        self
    }

    /// Sets the actions that are not kept as events. Live blocks are still tracked. [`Action::Free`] stands for both of
    /// PyTorch's actions, `free_requested` and `free_completed`.
    pub fn skip_actions(mut self, actions: impl IntoIterator<Item = Action>) -> Self {
        self.skip_actions = actions.into_iter().fold(0, |bits, action| bits | 1 << action as u8);
        self
    }

    /// Records every host block while that takes less than `share` of the processor time that the program's threads use
    /// (0.03 means 3 %, which is the default). A thread that would exceed this share samples its blocks below 64 KiB at
    /// a rate that follows its load. Larger blocks and device blocks are always recorded. Each sample is recorded with
    /// its weight, so that reports can state how accurate their numbers are. A `share` outside the range from 0 to 1 is
    /// clamped.
    pub fn budget(mut self, share: f64) -> Self {
        self.sample_threshold_bytes = SMALL_BYTES;
        self.sample_mean_bytes = 0;
        // The minimum is 1, because 0 would mean "no budget".
        self.budget_millionths = ((share * 1e6) as u32).clamp(1, 1_000_000);
        self
    }

    /// Sets the maximum number of live blocks that are tracked individually (at least 1,024). Each device besides the
    /// host adds a sixteenth of this number. Each block takes up to 130 bytes, so the default of 262,144 stays within
    /// 33 MiB. With [`exact`](Self::exact) and at [fixed rates](Self::sample), there is no limit by default.
    ///
    /// With a [budget](Self::budget), small blocks of the heap are sampled more and more sparsely once three quarters
    /// of the limit are in use. At the limit, further small blocks are only counted. Large blocks and device blocks
    /// still have their events, so sums and peaks stay exact. However, once the ring has dropped the event of such an
    /// allocation, its scope and stack are unknown. Allocations that only the CUDA driver hook sees are then left out
    /// of all sums. The recording contains the number of blocks that were not tracked and the number of driver
    /// allocations that were left out ([`Folded`](crate::snapshot::Folded)), and `memtrack summary` reports both.
    pub fn live_blocks(mut self, max: u64) -> Self {
        self.live_blocks = Some(max.max(1024));
        self
    }

    #[doc(hidden)]
    pub fn max_live_blocks(&self) -> u64 {
        /// The default limit if there is a budget.
        const DEFAULT: u64 = 256 << 10;
        self.live_blocks.unwrap_or(if self.budget_millionths > 0 { DEFAULT } else { u64::MAX })
    }

    /// Records every host block of any size, at any cost: a few hundred nanoseconds per block, and up to 130 bytes per
    /// live block.
    pub fn exact(mut self) -> Self {
        self.sample_threshold_bytes = 0;
        self.budget_millionths = 0;
        self
    }

    /// Records host blocks of at least `threshold_bytes` exactly, and samples smaller blocks with a mean interval of
    /// `mean_bytes` (at least 1), which keeps totals unbiased.
    pub fn sample(mut self, threshold_bytes: u64, mean_bytes: u64) -> Self {
        self.sample_threshold_bytes = threshold_bytes;
        self.sample_mean_bytes = mean_bytes.max(1);
        self.budget_millionths = 0;
        self
    }

    /// Sets the smallest budget, so that recording takes hardly any time: sums are exact, but few small blocks are
    /// recorded. `memtrack run` uses this for programs that are started after its maximum number of programs has been
    /// reached.
    #[doc(hidden)]
    pub fn smallest_budget(self) -> Self {
        self.budget(1e-6)
    }

    /// Sets the number of newest operators that a tracker keeps individually. The number is at least 1, and the tracker
    /// may keep up to 8,192 more. Each operator takes 48 bytes, so the default of 262,144 takes 12 MiB at most. For
    /// older operators, the tracker keeps their number, their peaks and the 1,000 with the most growth. Each tracker
    /// has its own option for this.
    pub fn tracker_entries(mut self, tracker_entries: u64) -> Self {
        self.tracker_entries = tracker_entries.max(1);
        self
    }

    /// Excludes the host heap, so that only blocks that allocators report through `recorder` are recorded.
    pub fn without_host_heap(mut self) -> Self {
        self.host_heap = false;
        self
    }

    /// Also records operators: their start and end, and their input and output tensors, as far as the program reports
    /// them (`operators`, `#[track_memory]`), so that reports can show the purpose of memory. This is off by default. A
    /// call with four tensors takes about 130 bytes. At most 64 MiB are kept; later calls are counted and left out.
    ///
    /// A stream contains the operators only if it is finished, because they are written at its end. With
    /// [`max_bytes`](Self::max_bytes), operators are not recorded, because the first parts, which describe the
    /// parameters, would be removed.
    pub fn operators(mut self) -> Self {
        self.operators = true;
        self
    }

    /// Returns whether operators are recorded.
    #[doc(hidden)]
    pub fn wants_operators(&self) -> bool {
        self.operators && self.max_bytes.is_none()
    }

    /// Returns the same options with absolute paths, which stay valid when the program changes its working directory.
    #[doc(hidden)]
    pub fn with_absolute_paths(mut self) -> std::io::Result<Self> {
        for path in [&mut self.output, &mut self.dump_on_oom].into_iter().flatten() {
            *path = std::path::absolute(&*path)?;
        }
        Ok(self)
    }

    /// Returns whether the host heap is recorded.
    #[doc(hidden)]
    pub fn wants_host_heap(&self) -> bool {
        self.host_heap
    }

    /// Returns whether small blocks of the host heap may be sampled.
    #[doc(hidden)]
    pub fn samples_host_heap(&self) -> bool {
        self.host_heap && self.sample_threshold_bytes > 0
    }

    /// Writes the recording to `path` when monitoring stops, when the program exits, and when it panics. After panics
    /// that may be caught, it is written only if this takes less than a fiftieth of the program's running time. The
    /// file is replaced atomically. A forked child writes to `path.PID`. Only the first 100 children do so, and the
    /// number of further children is reported on stderr at the end.
    pub fn output(mut self, path: impl Into<PathBuf>) -> Self {
        self.output = Some(path.into());
        self.stream = false;
        self
    }

    /// Appends the recording to `path` while the program runs, so that even a program that is killed loses less than
    /// the last half second. A memtrack thread writes the file. If the machine or the disk is so overloaded that this
    /// thread falls behind, a killed program can lose more, but at most 64 full chunks of 4,096 events (with
    /// `max_bytes`, one for each MiB if that is fewer), one more per thread, and the chunks that its threads are
    /// filling, one per device. `max_entries` limits the memory, and [`max_bytes`](Self::max_bytes) limits the file.
    ///
    /// A finished recording at `path` is replaced. An unfinished one, from a run that was killed or is still running,
    /// is never touched. Instead, the stream goes to `NAME.2.SUFFIX` beside it, or to the next free number up to 17,
    /// and this is reported on stderr. If the file can no longer be written, or the program has closed its descriptor,
    /// the stream ends, this is reported on stderr, and the program goes on.
    ///
    /// A forked child streams to `path.PID`, from its first full chunk on. If it is killed, it loses up to two full
    /// chunks, one more per thread, and the chunks that its threads are filling. Only the first 100 children do so, and
    /// the number of further children is reported on stderr at the end.
    pub fn stream_to(mut self, path: impl Into<PathBuf>) -> Self {
        self.output = Some(path.into());
        self.stream = true;
        self
    }

    /// Limits the output of [`stream_to`](Self::stream_to) to `max_bytes` (at least 1 MiB). The recording continues in
    /// a new part whenever a part has reached an eighth of the limit, and the oldest parts are removed. The newest part
    /// is at the stream's own path, and the others are beside it as `PATH.part-NUMBER`. Opening `PATH` reads them all
    /// as one recording, which starts with the oldest remaining part and the blocks that were live then.
    ///
    /// Each part starts with all stacks, scopes and live blocks. If these alone exceed the limit, the stream ends. The
    /// same limit applies separately to the stream of each forked child.
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = Some(max_bytes.max(1 << 20));
        self
    }

    /// Dumps everything recorded so far to `path` when an allocator reports that memory ran out (`record_oom`), as
    /// `dump_snapshot` does, before observers are called. The suffix selects the format. A `.memtrack` file is the
    /// quickest, because its stacks are named later.
    ///
    /// When memory runs out again, the files are `NAME.1.SUFFIX` to `NAME.7.SUFFIX`, and then `NAME.1.SUFFIX` again, so
    /// the first dump and the newest seven are kept. From the ninth dump on, a dump is made only if dumping takes less
    /// than a fiftieth of the program's running time. Existing files are replaced, and a dump that fails is reported on
    /// stderr. A forked child dumps to `NAME.PID.SUFFIX`.
    pub fn dump_on_oom(mut self, path: impl Into<PathBuf>) -> Self {
        self.dump_on_oom = Some(path.into());
        self
    }

    /// Reports on stderr which code holds the memory when it runs out, on a device or in the host heap, and when a
    /// snapshot is dumped. The report is one paragraph of at most nine lines, printed before anything else happens.
    /// [`Self::dump_on_oom`] includes it.
    ///
    /// The first three times that memory runs out are reported, and later ones are reported as long as that takes less
    /// than a fiftieth of the program's running time. Naming the functions takes half a second at most.
    #[must_use]
    pub fn report_on_oom(mut self) -> Self {
        self.report_on_oom = true;
        self
    }

    /// Does the same as [`Self::report_on_oom`].
    #[deprecated(note = "renamed to `report_on_oom`")]
    #[must_use]
    pub fn tell_who_holds(self) -> Self {
        self.report_on_oom()
    }

    /// Returns whether the code that holds the memory is reported when memory runs out.
    #[doc(hidden)]
    pub fn reports_on_oom(&self) -> bool {
        self.report_on_oom || self.dump_on_oom.is_some()
    }

    /// Describes for the user, in one line, which of these options have no effect because a session with the options
    /// `running` has already started. Returns `None` if nothing important is lost. `heap_is_reported` states whether
    /// the program uses the allocator that reports its heap.
    #[doc(hidden)]
    pub fn describe_ignored(&self, running: &Self, heap_is_reported: bool) -> Option<String> {
        if *self == (Self { tracker_entries: self.tracker_entries, ..running.clone() }) {
            return None;
        }
        if !running.under_run {
            let lost = "monitoring is already running; the options of the first monitor hold";
            let default = Self { tracker_entries: self.tracker_entries, ..Self::default() };
            return (*self != default).then(|| lost.to_owned());
        }
        let files = [&self.output, &self.dump_on_oom].into_iter().flatten();
        let mut lost: Vec<String> = files.map(|file| format!("{} is not written", file.display())).collect();
        if self.host_heap && !running.host_heap && heap_is_reported {
            lost.push("its host heap is not recorded".to_owned());
        }
        let what = lost.join(", and ");
        (!lost.is_empty()).then(|| format!("`memtrack run` records this program; {what}"))
    }

    /// Returns the share of the threads' processor time that recording may take, or 0 if there is no budget.
    #[doc(hidden)]
    pub fn budget_share(&self) -> f64 {
        f64::from(self.budget_millionths) / 1e6
    }

    /// Returns the maximum number of events in the ring, which is one in state mode.
    #[doc(hidden)]
    pub fn ring_entries(&self) -> u64 {
        if self.enabled == Enabled::State { 1 } else { self.max_entries }
    }
}

/// Parses PyTorch's action names for [`Options::skip_actions`].
///
/// # Errors
/// Fails with PyTorch's message if an action does not exist.
pub fn parse_actions<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<Action>, UnknownOption> {
    let find = |name: &str| {
        let found = Action::ALL.into_iter().find(|&action| action != Action::Other && action.name() == name);
        found.ok_or_else(|| UnknownOption(format!("Unknown TraceEntry action: {name}")))
    };
    names.into_iter().map(find).collect()
}
