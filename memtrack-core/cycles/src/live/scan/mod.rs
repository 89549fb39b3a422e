//! A scan of the running program: what is registered, and all that can be reached from there, is held by a pointer of the scan's
//! own and looked at ([`table`]); pointers are counted ([`garbage`]), what seems to be held by nothing is looked at again
//! ([`confirm`]), and what matters of it is described ([`select`], [`describe`]).
//!
//! The program's code (its `References`, `Debug` and destructors) runs under no lock. It is called inside memtrack's own work, but
//! for destructors: what those free is the program's.

mod confirm;
mod describe;
mod garbage;
mod select;
mod table;
mod weak;

use super::{handles, switch};
use crate::graph::{Graph, Unexplained};
use crate::watch::frames_of;
use foldhash::HashMap;
use memtrack_model::event::StackId;
use memtrack_model::units::counted;
use memtrack_recorder::recorder::{ForkCell, stacks_so_far};
use memtrack_recorder::reentry;
use memtrack_recorder::stack::modules::loaded_modules;
use memtrack_symbols::Symbolizer;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use table::{HELD, INCOMPLETE, MEMORY, Table};

/// Most values that are looked at, if nothing else is said. Each takes about 100 bytes while the scan runs, and each pointer 4.
const MOST_VALUES: usize = 10_000_000;

/// What a scan looks for; [`find`] is one without any options.
#[derive(Clone, Debug)]
pub struct Scan {
    live_cycles: bool,
    everything: bool,
    all_handles: bool,
    most_values: usize,
}

impl Default for Scan {
    fn default() -> Self {
        Self::new()
    }
}

/// Looks for device memory that is kept by values that nobody can reach: [`Scan::find`] without options.
///
/// # Errors
///
/// See [`NotScanned`].
pub fn find() -> Result<Report, NotScanned> {
    Scan::new().find()
}

impl Scan {
    /// Looks for what nobody can reach, and for tracked handles that nobody accounts for.
    pub const fn new() -> Self {
        Self { live_cycles: false, everything: false, all_handles: false, most_values: MOST_VALUES }
    }

    /// Whether the graph also has cycles that are held from outside, with the device memory they lead to. They are no leak
    /// yet: they will be when the outside lets go.
    #[must_use]
    pub const fn live_cycles(self, live_cycles: bool) -> Self {
        Self { live_cycles, ..self }
    }

    /// Whether the graph has every value that was looked at.
    #[must_use]
    pub const fn everything(self, everything: bool) -> Self {
        Self { everything, ..self }
    }

    /// Whether tracked handles count as unaccounted for also while the root scope that they were made in has not ended, or if there
    /// was none. Handles in local variables are then among them.
    #[must_use]
    pub const fn all_handles(self, all_handles: bool) -> Self {
        Self { all_handles, ..self }
    }

    /// Most values that are looked at: 10 million by default. Pointers to values beyond that are counted.
    #[must_use]
    pub const fn most_values(self, most_values: usize) -> Self {
        Self { most_values, ..self }
    }

    /// Scans the values that this thread has registered, those that threads share, and all that can be reached from them.
    ///
    /// While it runs, it has a strong and, between scans, the registry a weak pointer to each value: `Rc::get_mut` and
    /// `Arc::try_unwrap` fail meanwhile. If the program lets go of its last pointer meanwhile, the value is dropped here, on this thread.
    /// A scan never waits: it skips what is locked or borrowed for writing.
    ///
    /// It takes 20 to 30 ns for each value and pointer up to a million of them, and up to 250 ns where there are more than the
    /// processor's caches hold. Where threads share values that seem unreachable, those are looked at 8 to 32 times.
    ///
    /// # Errors
    ///
    /// See [`NotScanned`].
    pub fn find(&self) -> Result<Report, NotScanned> {
        if !switch::is_on_here() {
            return Err(NotScanned::Off);
        }
        // The report is the caller's, who may be a part of memtrack.
        if reentry::is_inside() {
            self.find_inside()
        } else {
            reentry::clone_for_program(|| self.find_inside())
        }
    }

    fn find_inside(&self) -> Result<Report, NotScanned> {
        let _alone = Alone::begin().ok_or(NotScanned::Busy)?;
        let begin = Instant::now();
        let handles = handles::newest();
        let mut table = Table::discover(self.most_values.min(u32::MAX as usize - 1));
        let outside = garbage::outside(&table);
        let mut remarks = garbage::too_many_reported(&table, &outside);
        garbage::mark_held(&mut table, &outside);
        let seemed = garbage::unheld(&table).len();
        let mut confirmed = confirm::confirm(&mut table);
        remarks.append(&mut confirmed.remarks);
        let unheld = garbage::unheld(&table);
        let weak_outside = weak::outside(&table, &confirmed);
        let forgotten = handles::forgotten(&table.handles, handles, self.all_handles, |address| {
            table.place_of(address).filter(|&place| table.has(place, HELD))
        });
        let keep = select::select(&table, &unheld, &forgotten, self);
        let (mut graph, kept) = describe::describe(&table, &keep, &outside, &weak_outside);
        let numbers: HashMap<u32, u32> =
            kept.into_iter().enumerate().map(|(number, place)| (place, number as u32)).collect();
        let stacks = table.registered.iter().filter_map(|(place, registered)| {
            let stack = registered.origin.stack;
            (stack != StackId::NONE).then_some((*numbers.get(place)?, stack))
        });
        let stacks = stacks.collect();
        graph.unexplained = forgotten
            .into_iter()
            .map(|each| Unexplained { node: numbers[&each.place], ..each.what })
            .collect();
        if table.left_out > 0 {
            remarks.push(format!(
                "{} to further values passed over: a scan looks at {} values at most.",
                counted(table.left_out, "pointer"),
                self.most_values
            ));
        }
        if handles::untracked() > 0 {
            remarks.push(format!(
                "{} handles were not tracked, because too many are alive: forgotten ones may be among them.",
                handles::untracked()
            ));
        }
        graph.remarks.extend(remarks);
        let report = Report {
            values: table.values(),
            pointers: table.targets.len() as u64,
            with_memory: garbage::count(&table, MEMORY),
            incomplete: garbage::count(&table, INCOMPLETE),
            unreachable: unheld.len() as u64,
            doubted: (seemed - unheld.len()) as u64,
            looks: confirmed.looks,
            took: begin.elapsed(),
            graph,
            stacks,
        };
        drop((unheld, keep, outside));
        table.let_go();
        Ok(report)
    }
}

/// What a scan found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The values that matter: unreachable ones from which device memory can be reached, what others hold of that, what
    /// tracked handles hold that nobody accounts for, and what was asked for.
    pub graph: Graph,
    /// Values that were looked at.
    pub values: u64,
    /// Strong pointers in them.
    pub pointers: u64,
    /// Values with device memory of their own.
    pub with_memory: u64,
    /// Values in which something was not looked at, because it was locked or is opaque. What that refers to counts as held.
    pub incomplete: u64,
    /// Values that nothing outside holds, whether they lead to device memory or not.
    pub unreachable: u64,
    /// Values that nothing outside seemed to hold at first, until they were looked at again: threads were changing them.
    pub doubted: u64,
    /// How often what nothing holds was looked at, with the same result.
    pub looks: u32,
    /// The time it took.
    pub took: Duration,
    /// With which stacks values were registered, by their nodes.
    stacks: Vec<(u32, StackId)>,
}

impl Report {
    /// Adds to each value the stack with which it was registered, where [stacks are kept](super::RegisterOptions::stacks): a frame to a
    /// line, below the place. Reads debug information, which takes tenths of a second the first time.
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
            node.created = Some(self.graph.texts.number(&lines));
        }
    }
}

/// Why there was no scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotScanned {
    /// Nothing is registered, because [`enable`](crate::enable) was not called, or not in this child of a fork.
    Off,
    /// Another scan runs, on another thread or around this call.
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

/// The only scan of the process: another one's pointers would pass for the program's.
struct Alone(&'static AtomicBool);

static SCANNING: ForkCell<AtomicBool> = ForkCell::new(|| AtomicBool::new(false));

impl Alone {
    fn begin() -> Option<Self> {
        let scanning = SCANNING.get();
        (!scanning.swap(true, Ordering::AcqRel)).then(|| Self(scanning))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
