//! A scan of the running program. It visits the registered values, and all values that can be reached from them, while
//! it holds a strong pointer to each ([`table`]). It then counts the pointers ([`garbage`]), revisits the values that
//! seem to be unreachable ([`confirm`]), and describes the relevant values ([`select`], [`describe`]).
//!
//! No lock is held while the program's code (its `References`, `Debug` and destructors) runs. That code is called
//! inside [`reentry::enter`], except for destructors, because the memory that they free is the program's.

mod confirm;
mod describe;
mod garbage;
mod select;
mod table;

use super::{handles, switch};
use crate::graph::{Graph, UnexplainedHandles};
use crate::watch::frames_of;
use foldhash::HashMap;
use memtrack_model::event::StackId;
use memtrack_model::units::counted;
use memtrack_recorder::recorder::{ForkCell, stacks_so_far, ticks};
use memtrack_recorder::reentry;
use memtrack_recorder::stack::modules::loaded_modules;
use memtrack_symbols::Symbolizer;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use table::{HELD, INCOMPLETE, MEMORY, Table};

/// The default maximum number of visited values. Each value takes about 100 bytes while the scan runs, and each
/// pointer 4.
const DEFAULT_MAX_VALUES: usize = 10_000_000;

/// The options for a scan. [`find`] scans with the defaults.
#[derive(Clone, Debug)]
pub struct Scan {
    live_cycles: bool,
    everything: bool,
    all_handles: bool,
    max_values: usize,
}

impl Default for Scan {
    fn default() -> Self {
        Self::new()
    }
}

/// Finds device memory that unreachable values keep alive. This is [`Scan::find`] with the default options.
///
/// # Errors
///
/// See [`NotScanned`].
pub fn find() -> Result<Report, NotScanned> {
    Scan::new().find()
}

impl Scan {
    /// Creates a scan for unreachable values, and for tracked handles that are unaccounted for.
    pub const fn new() -> Self {
        Self { live_cycles: false, everything: false, all_handles: false, max_values: DEFAULT_MAX_VALUES }
    }

    /// Sets whether the graph also contains cycles that are held from outside, with the device memory that they lead
    /// to. They are not leaks yet, but they become leaks when the outside references are dropped.
    #[must_use]
    pub const fn live_cycles(self, live_cycles: bool) -> Self {
        Self { live_cycles, ..self }
    }

    /// Sets whether the graph contains every visited value.
    #[must_use]
    pub const fn everything(self, everything: bool) -> Self {
        Self { everything, ..self }
    }

    /// Sets whether the scan also reports unaccounted-for tracked handles whose root scope has not ended, or that were
    /// created in no root scope. This includes handles in local variables.
    #[must_use]
    pub const fn all_handles(self, all_handles: bool) -> Self {
        Self { all_handles, ..self }
    }

    /// Sets the maximum number of visited values, which is 10 million by default. Pointers to further values are only
    /// counted.
    #[must_use]
    pub const fn max_values(self, max_values: usize) -> Self {
        Self { max_values, ..self }
    }

    /// Scans the values that this thread has registered, those that threads share, and all values that can be
    /// reached from them.
    ///
    /// While it runs, a scan holds a strong pointer to each value, so `Rc::get_mut` and `Arc::try_unwrap` fail. Between
    /// scans, the registry holds a weak pointer to each registered value, so `Rc::get_mut` still fails. If the program
    /// drops its last pointer to a value during the scan, the value is dropped here, on this thread. A scan never
    /// waits: it skips values that are locked or borrowed for writing.
    ///
    /// A scan takes 20 to 30 ns for each value and pointer if there are up to a million of them, and up to 250 ns if
    /// they do not fit into the processor's caches. Values that threads share and that seem unreachable are visited 8
    /// to 32 times.
    ///
    /// # Errors
    ///
    /// See [`NotScanned`].
    pub fn find(&self) -> Result<Report, NotScanned> {
        if !switch::is_enabled_in_process() {
            return Err(NotScanned::Off);
        }
        // The report's memory is attributed to the caller: to memtrack if the caller is a part of memtrack, and to the
        // program otherwise.
        if reentry::is_inside() {
            self.find_inside()
        } else {
            reentry::clone_for_program(|| self.find_inside())
        }
    }

    fn find_inside(&self) -> Result<Report, NotScanned> {
        let _guard = ScanGuard::begin().ok_or(NotScanned::Busy)?;
        let begin = Instant::now();
        // Distinguishes handles that were created before the scan from later ones.
        let begin_ticks = ticks();
        let mut table = Table::discover(self.max_values.min(u32::MAX as usize - 1));
        let outside = garbage::count_outside_pointers(&table);
        let mut remarks = garbage::describe_overreported(&table, &outside);
        garbage::mark_held(&mut table, &outside);
        let seemed = garbage::find_unreachable(&table).len();
        let mut confirmed = confirm::confirm(&mut table);
        remarks.append(&mut confirmed.remarks);
        let unreachable = garbage::find_unreachable(&table);
        let weak_outside = confirm::count_outside_weak_pointers(&table, &confirmed);
        let forgotten = handles::find_forgotten(&table.handles, begin_ticks, self.all_handles, |address| {
            table.place_of(address).filter(|&place| table.has(place, HELD))
        });
        let keep = select::select(&table, &unreachable, &forgotten, self);
        let (mut graph, kept) = describe::describe(&table, &keep, &outside, &weak_outside);
        let numbers: HashMap<u32, u32> =
            kept.into_iter().enumerate().map(|(number, place)| (place, number as u32)).collect();
        let stacks = table.registered.iter().filter_map(|(place, registered)| {
            let stack = registered.registration.stack;
            (stack != StackId::NONE).then_some((*numbers.get(place)?, stack))
        });
        let stacks = stacks.collect();
        graph.unexplained = forgotten
            .into_iter()
            .map(|each| UnexplainedHandles { node: numbers[&each.place], ..each.description })
            .collect();
        if table.left_out > 0 {
            remarks.push(format!(
                "{} to further values passed over: a scan looks at {} values at most.",
                counted(table.left_out, "pointer"),
                self.max_values
            ));
        }
        if handles::count_untracked() > 0 {
            remarks.push(format!(
                "{} handles were not tracked, because too many are alive: forgotten ones may be among them.",
                handles::count_untracked()
            ));
        }
        graph.remarks.extend(remarks);
        let report = Report {
            values: table.value_count(),
            pointers: table.targets.len() as u64,
            with_memory: garbage::count_flagged(&table, MEMORY),
            incomplete: garbage::count_flagged(&table, INCOMPLETE),
            unreachable: unreachable.len() as u64,
            changed_meanwhile: (seemed - unreachable.len()) as u64,
            visits: confirmed.visits,
            took: begin.elapsed(),
            graph,
            stacks,
        };
        drop((unreachable, keep, outside));
        table.drop_pointers();
        Ok(report)
    }
}

/// The result of a scan.
#[derive(Clone, Debug)]
pub struct Report {
    /// The relevant values: unreachable values from which device memory can be reached, other values that also hold
    /// that memory, values kept alive by tracked handles that are unaccounted for, and values that the options
    /// request.
    pub graph: Graph,
    /// The number of visited values.
    pub values: u64,
    /// The number of strong pointers in the visited values.
    pub pointers: u64,
    /// The number of values that hold device memory directly.
    pub with_memory: u64,
    /// The number of values with a part that was not visited because it was locked or opaque. Values that this part
    /// refers to count as held.
    pub incomplete: u64,
    /// The number of unreachable values, whether or not they lead to device memory.
    pub unreachable: u64,
    /// The number of values that seemed to be unreachable until they were visited again, because threads were changing
    /// them.
    pub changed_meanwhile: u64,
    /// The number of times that the unreachable values were visited, with the same result each time.
    pub visits: u32,
    /// The duration of the scan.
    pub took: Duration,
    /// The stacks of the registrations, each with the index of its node.
    stacks: Vec<(u32, StackId)>,
}

impl Report {
    /// Adds to each value the stack of its registration, if [stacks are kept](super::RegisterOptions::stacks). The
    /// stack has one frame per line, below the place. This reads debug information, which takes a few tenths of a
    /// second the first time.
    pub fn name_stacks(&mut self) {
        let _inside = reentry::enter();
        if self.stacks.is_empty() {
            return;
        }
        let all = stacks_so_far();
        let mut symbols = Symbolizer::new(&loaded_modules());
        for (node, stack) in std::mem::take(&mut self.stacks) {
            let frames = frames_of(all.get(stack), &mut symbols);
            let node = &mut self.graph.nodes[node as usize];
            let place = node.created.map_or("", |created| self.graph.texts.get(created));
            let lines = format!("{place}\n{}", frames.join("\n"));
            node.created = Some(self.graph.texts.intern(&lines));
        }
    }
}

/// The reason why a scan was not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotScanned {
    /// Registration is off, because [`enable`](crate::enable) was not called, or was not called in this forked child.
    Off,
    /// Another scan is running, either on another thread or further up this thread's call stack.
    Busy,
}

impl fmt::Display for NotScanned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "nothing is registered: call `enable` before the values are made (in the child of a fork, too)",
            Self::Busy => "another scan is running",
        })
    }
}

impl std::error::Error for NotScanned {}

/// A guard that makes this the only scan in the process, because another scan's pointers would be mistaken for the
/// program's.
struct ScanGuard(&'static AtomicBool);

static SCANNING: ForkCell<AtomicBool> = ForkCell::new(|| AtomicBool::new(false));

impl ScanGuard {
    fn begin() -> Option<Self> {
        let scanning = SCANNING.get();
        (!scanning.swap(true, Ordering::AcqRel)).then(|| Self(scanning))
    }
}

impl Drop for ScanGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
