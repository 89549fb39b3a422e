//! A monitor's finished recording.

use memtrack_model::Snapshot;
use memtrack_model::event::DeviceId;
use std::fmt;
use std::io;
use std::path::Path;

#[cfg(feature = "report")]
use crate::tracker::MemoryTracker;
#[cfg(feature = "report")]
use memtrack_blocks::moment::Moment;
#[cfg(feature = "report")]
use memtrack_frames::framework_operators::Patterns;
#[cfg(feature = "record")]
use memtrack_recorder::{recorder::session, reentry};
#[cfg(feature = "report")]
use memtrack_report::{
    holds::{HoldsQuery, WhoHolds},
    leaks::{LeakOptions, LeakReport, NoSuchInterval, leaks},
    phases::{PhaseReport, phases},
    resident::{ResidentReport, resident},
    tasks::{TasksOptions, TasksReport, tasks},
    top::{By, TopOptions, TopReport, top_with},
};
#[cfg(feature = "report")]
use memtrack_symbols::Symbolizer;

#[cfg(all(feature = "record", not(feature = "report")))]
use crate::plain::Monitor;
#[cfg(all(feature = "record", feature = "report"))]
use crate::tracker::MemoryTracker as Monitor;

/// A monitor's recording: events, live blocks and the tracker's series.
///
/// Numbers that come from sampled blocks are estimates. They are shown with their error (`1.3 GiB ± 4 %`) or as an
/// upper limit (`< 40.0 MiB`). Printing a recording shows the largest holders of memory at its peak, and the top
/// operators and the phases of each device. If neither scopes nor a framework name operators, it shows the top lines of
/// the program's own code instead. The text is as wide as the variable `COLUMNS` requests, or else as the terminal on
/// standard output, or else 120 characters. Long names are shortened; [`Self::top`] has them in full. Without the
/// feature `report`, printing shows only the allocated memory of each device.
#[derive(Default)]
pub struct Recording {
    #[cfg(feature = "report")]
    tracker: MemoryTracker,
    snapshot: Snapshot,
    #[cfg(feature = "report")]
    patterns: Patterns,
}

impl Recording {
    #[cfg(feature = "record")]
    pub(crate) fn of(snapshot: Snapshot, monitor: Monitor) -> Self {
        #[cfg(not(feature = "report"))]
        drop(monitor);
        Self {
            #[cfg(feature = "report")]
            tracker: monitor,
            snapshot,
            #[cfg(feature = "report")]
            patterns: Patterns::default(),
        }
    }

    /// Returns the tracker, which has the operators' series and markers.
    #[cfg(feature = "report")]
    pub fn tracker(&self) -> &MemoryTracker {
        #[cfg(feature = "record")]
        self.tracker.find_peak(&self.snapshot);
        &self.tracker
    }

    /// Returns everything recorded, as column tables.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Writes the recording as a `.memtrack` file, replacing any existing file. Without the feature `record`, it writes
    /// nothing.
    ///
    /// # Errors
    /// Fails when the file cannot be written. The error contains the file's name.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        #[cfg(feature = "record")]
        {
            let _inside = reentry::enter();
            session::with_file_name(path, || session::save(&self.snapshot, path))
        }
        #[cfg(not(feature = "record"))]
        {
            let _ = path;
            Ok(())
        }
    }
}

#[cfg(feature = "page")]
impl Recording {
    /// Writes the recording as a single HTML page for the browser, replacing any existing file. It shows the allocated
    /// memory over time, the allocator's events and flame graphs. The page is self-contained and needs no network.
    ///
    /// Looks up symbols, which takes a moment the first time.
    ///
    /// # Errors
    /// Fails when the file cannot be written. The error contains the file's name.
    pub fn save_page(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let save = || {
            self.find_categories();
            let snapshot = &self.snapshot;
            let program = Path::new(&self.snapshot.meta.program);
            let name = program.file_name().or(path.file_stem()).unwrap_or(path.as_os_str()).to_string_lossy();
            #[cfg(feature = "profile")]
            let page = {
                let inferred = memtrack_profile::reading::inferred(snapshot, &mut Symbolizer::of(snapshot));
                memtrack_page::Page::with_inferred(snapshot, &name, &inferred)
            };
            #[cfg(not(feature = "profile"))]
            let page = memtrack_page::Page::of(snapshot, &name);
            let mut file = memtrack_file::ReplacingFile::create(path)?;
            page.write(io::BufWriter::new(&mut file))?;
            file.commit()
        };
        let save =
            || save().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())));
        #[cfg(feature = "record")]
        let save = || {
            let _inside = reentry::enter();
            save()
        };
        save()
    }
}

#[cfg(feature = "categories")]
impl Recording {
    /// Returns the operators that ran, with their tensors, and the memory that was allocated and freed in the same
    /// period; `None` if operators were not recorded
    /// ([`Options::operators`](memtrack_model::options::Options::operators)). `profile::analysis` determines what the
    /// memory is for.
    pub fn operator_trace(&self) -> Option<memtrack_model::optrace::OperatorTrace> {
        memtrack_profile::recorded::operator_trace(&self.snapshot).map(|recorded| recorded.trace)
    }

    /// Writes the [operator trace](Self::operator_trace) to a file that `memtrack categories`, `memtrack timeline` and
    /// other tools can read (the repository's docs/FILES.md describes it), replacing any existing file. The file is
    /// compressed if its name ends in `.gz` or `.zst`. If the recording has no operators, the trace has none either.
    ///
    /// # Errors
    /// Fails when the file cannot be written. The error contains the file's name.
    pub fn save_operator_trace(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let save = || {
            let trace = self.operator_trace().unwrap_or_default();
            memtrack_profile::optrace::save(&trace, path)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        };
        #[cfg(feature = "record")]
        let save = || {
            let _inside = reentry::enter();
            save()
        };
        save()
    }
}

#[cfg(feature = "report")]
impl Recording {
    /// Determines the categories of the recorded memory, unless this has already been done. Does nothing if the
    /// recording has no operators or this build lacks the feature `categories`.
    fn find_categories(&self) {
        #[cfg(feature = "categories")]
        memtrack_profile::recorded::categories(&self.snapshot);
    }

    /// Adds a pattern for your own operators. An allocation outside all scopes is attributed to a function in its stack
    /// that matches `glob`, such as `my_crate::ops::*`. These patterns are tried before the built-in ones.
    #[must_use]
    pub fn with_pattern(mut self, glob: &str) -> Self {
        self.patterns = self.patterns.clone().with(glob);
        self
    }

    /// Returns the `rows` largest operators, modules, stacks or phases on the first device (an accelerator if one
    /// reported, otherwise the host heap). Looks up symbols, which takes a moment the first time.
    pub fn top(&self, by: By, rows: usize) -> TopReport {
        self.top_of(self.first_device(), by, rows)
    }

    /// Returns where the resident memory of this process was, at the highest and at the last reading: live blocks, free memory
    /// that the allocator keeps, stacks, files, and what is not explained; and the `lines` lines of code that pin most pages. The
    /// rows add up to what the kernel counts. `None` if the host heap was not recorded, or the system does not let the process
    /// read its pages.
    ///
    /// A recording has a reading from its end; one that was [streamed](memtrack_model::options::Options::stream_to) also has
    /// earlier ones.
    ///
    /// ```
    /// # #[global_allocator]
    /// # static ALLOCATOR: memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();
    /// use memtrack_core::recorder::Options;
    ///
    /// memtrack_core::start_monitor_with(&Options::new().exact())?;
    /// let rows: Vec<Vec<u8>> = (0..10_000).map(|_| vec![1; 64]).collect();
    /// let recording = memtrack_core::stop();
    /// if let Some(resident) = recording.resident(10) {
    ///     println!("{resident}");
    /// #   let live = resident.end.rows.iter().find(|row| row.what == memtrack_core::analysis::resident::Resident::LiveHeap);
    /// #   assert!(live.is_some_and(|row| row.bytes >= 640_000), "{resident}");
    /// }
    /// # drop(rows);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn resident(&self, lines: usize) -> Option<ResidentReport> {
        let options = TopOptions::new().patterns(self.patterns.clone()).limit(lines);
        resident(&self.snapshot, &mut Symbolizer::of(&self.snapshot), &options, true)
    }

    /// Returns the same as [`Self::top`], but for a given device.
    pub fn top_of(&self, device: DeviceId, by: By, rows: usize) -> TopReport {
        self.rank(device, None, by, rows)
    }

    /// Returns the holders of the memory that was live at a given moment, largest first. Each row also has its age and
    /// its growth, which distinguish leaks from memory that is meant to stay. The result is for the first device, as in
    /// [`Self::top`].
    ///
    /// ```
    /// use memtrack_core::{By, analysis::moment::Moment};
    ///
    /// # memtrack_core::start_monitor();
    /// # let kept = vec![1u8; 1 << 20];
    /// let recording = memtrack_core::stop();
    /// println!("{}", recording.top_at(Moment::End, By::Line, 10));
    /// # drop(kept);
    /// ```
    pub fn top_at(&self, at: Moment, by: By, rows: usize) -> TopReport {
        self.top_at_of(self.first_device(), at, by, rows)
    }

    /// Returns the same as [`Self::top_at`], but for a given device. [`Moment::last_oom`] and [`Moment::event`] return
    /// other moments on the device.
    pub fn top_at_of(&self, device: DeviceId, at: Moment, by: By, rows: usize) -> TopReport {
        self.rank(device, Some(at), by, rows)
    }

    /// Returns what the program's [tasks](crate::tasks) held at a moment: by the place that makes them, the largest ones, and
    /// those that have run longest. Each list has at most `rows` rows. `None` if the program tracks no tasks.
    pub fn tasks(&self, at: Moment, rows: usize) -> Option<TasksReport> {
        let report = || {
            tasks(&self.snapshot, &mut Symbolizer::of(&self.snapshot), TasksOptions::new().at(at).limit(rows))
        };
        #[cfg(feature = "record")]
        return reentry::clone_for_program(report);
        #[cfg(not(feature = "record"))]
        report()
    }

    fn rank(&self, device: DeviceId, at: Option<Moment>, by: By, rows: usize) -> TopReport {
        self.rank_as(device, at, Some(by), rows)
    }

    /// Ranks by `by`, or by the key that suits the recording if `by` is `None`.
    fn rank_as(&self, device: DeviceId, at: Option<Moment>, by: Option<By>, rows: usize) -> TopReport {
        let top = || {
            self.find_categories();
            let options = TopOptions::new().limit(rows).patterns(self.patterns.clone()).at(at);
            let mut symbols = Symbolizer::of(&self.snapshot);
            let by = by.unwrap_or_else(|| By::default_for(&self.snapshot, &mut symbols, &options));
            top_with(&self.snapshot, &mut symbols, by, device, &options)
        };
        #[cfg(feature = "record")]
        let top = || reentry::clone_for_program(top);
        top()
    }

    /// Finds leaks on all devices: groups of allocations that grew steadily during the recording and were never freed.
    /// Looks up symbols, which takes a moment the first time.
    ///
    /// # Errors
    /// Fails when the options request intervals ([`LeakOptions::per`]) that the recording does not have.
    pub fn leaks(&self, options: &LeakOptions) -> Result<LeakReport, NoSuchInterval> {
        let find_leaks = || {
            let devices = self.snapshot.device_ids();
            leaks(&self.snapshot, &mut Symbolizer::of(&self.snapshot), &devices, options)
        };
        #[cfg(feature = "record")]
        let find_leaks = || reentry::clone_for_program(find_leaks);
        find_leaks()
    }

    /// Returns each phase's allocations, and the phase of the peak, for the first device.
    pub fn phases(&self) -> PhaseReport {
        phases(&self.snapshot, self.first_device())
    }

    /// Returns the largest holders of memory when it last ran out, or at the peak if it never did: lines of your own
    /// code, the cache, memory that memtrack did not see, growth, and the first thing to do. The result describes one
    /// device, which is an accelerator if one reported. Returns `None` if nothing was recorded.
    ///
    /// Looks up symbols, which takes a moment the first time.
    pub fn who_holds(&self) -> Option<WhoHolds> {
        let find = || {
            let symbols = &mut Symbolizer::of(&self.snapshot);
            WhoHolds::of_all(&self.snapshot, symbols, &HoldsQuery::for_ended_run(&self.snapshot, false))
        };
        #[cfg(feature = "record")]
        let find = || reentry::clone_for_program(find);
        find()
    }

    /// Returns the first device. It is an accelerator if there is one, because IDs are sorted and the host's ID is the
    /// largest.
    fn first_device(&self) -> DeviceId {
        self.snapshot.device_ids().first().copied().unwrap_or(DeviceId::HOST)
    }
}

/// Returns the maximum width of a printed recording, in characters.
#[cfg(feature = "report")]
fn report_width() -> Option<usize> {
    // Without the recorder nothing is recorded, so no width is needed.
    #[cfg(feature = "record")]
    return Some(memtrack_report::terminal::width());
    #[cfg(not(feature = "record"))]
    None
}

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.snapshot.device_ids();
        if devices.is_empty() {
            return f.write_str("Nothing was recorded.");
        }
        #[cfg(feature = "report")]
        if let Some(holders) = self.who_holds() {
            writeln!(f, "{}", holders.to_text(report_width()))?;
        }
        for device in devices {
            self.fmt_device(device, f)?;
        }
        Ok(())
    }
}

impl Recording {
    #[cfg(feature = "report")]
    fn fmt_device(&self, device: DeviceId, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.rank_as(device, None, None, 20).to_text(report_width()))?;
        writeln!(f, "{}", phases(&self.snapshot, device))
    }

    #[cfg(not(feature = "report"))]
    fn fmt_device(&self, device: DeviceId, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use memtrack_model::units::{counted, human_bytes};

        let Some(counts) = self.snapshot.exact_counts(device) else { return Ok(()) };
        let live = counts.allocated_bytes.saturating_sub(counts.freed_bytes);
        let name = self.snapshot.device_name(device);
        let allocated = human_bytes(counts.allocated_bytes);
        let blocks = counted(counts.allocations, "block");
        writeln!(f, "{name}: allocated {allocated} in {blocks}; {} not freed", human_bytes(live))
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Recording");
        text.field("events", &self.snapshot.events.len());
        #[cfg(feature = "report")]
        text.field("tracker", &self.tracker);
        text.finish_non_exhaustive()
    }
}

#[cfg(feature = "record")]
impl Drop for Recording {
    /// Drops the snapshot without recording its frees. Its tables were not recorded when they were allocated, so their
    /// frees must not be recorded either.
    fn drop(&mut self) {
        let _inside = reentry::enter();
        self.snapshot = Snapshot::default();
    }
}
