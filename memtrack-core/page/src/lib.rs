//! Turns a snapshot into a page, which is one HTML file that shows offline what pytorch.org/memory_viz shows.
//! [`Page::of`] turns a snapshot into tables from which a browser can draw directly. `viewer/` contains the code that
//! runs in the browser, and `viewer/README.md` describes the interface between the two.
//!
//! The modules:
//!
//! - `blocks` and `pieces` determine the lifetimes of blocks and of reserved memory by undoing the events from the end.
//!   `bands` determines the scopes and profiler ranges that were open.
//! - `first` writes the summary's sentences. `device`, with `held` and `inferred`, builds a device's tables.
//! - `texts`, `columns` and `head` encode these for the page, and `html` writes the page around them. `ranks` presents
//!   the ranks of a job as one page.
//!
//! **Why not in memtrack-report?** The page uses that package's `summary`, and programs that only print tables need not
//! compile the page.

mod bands;
mod blocks;
mod columns;
mod device;
mod first;
mod head;
mod held;
mod html;
mod inferred;
mod pieces;
#[cfg(feature = "ranks")]
pub mod ranks;
mod texts;
mod trace;

use columns::Section;
use head::Head;
use memtrack_model::snapshot::{InferredCategories, Snapshot};
use std::io::{self, Write};

/// The view that a page shows first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum View {
    /// The live blocks over time, stacked.
    #[default]
    Timeline,
    /// The live bytes over time by category (the purpose of the memory), for snapshots that contain categories
    /// ([`Page::has_categories`]).
    Categories,
    /// The live blocks over time, with an envelope for each private pool.
    Pools,
    /// The allocator's events, and the segments and blocks after any of them.
    State,
    /// Segments over time, stacked.
    Segments,
    /// The live blocks, by stack.
    Flame,
    /// The allocator's settings.
    Settings,
}

impl View {
    /// All views.
    pub const ALL: [Self; 7] = [
        Self::Timeline,
        Self::Categories,
        Self::Pools,
        Self::State,
        Self::Segments,
        Self::Flame,
        Self::Settings,
    ];

    /// Returns the view's name in lower case, as it appears in a page's address.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeline => "timeline",
            Self::Categories => "categories",
            Self::Pools => "pools",
            Self::State => "state",
            Self::Segments => "segments",
            Self::Flame => "flame",
            Self::Settings => "settings",
        }
    }
}

/// Returns the number of the machine's cores.
fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A snapshot, ready for a browser.
#[derive(Debug)]
pub struct Page {
    head: Head,
    sections: Vec<Section>,
}

impl Page {
    /// Creates a page for a snapshot, titled `name`. The stacks of a recording are symbolized.
    ///
    /// This takes time and memory in proportion to the number of events, with about 100 bytes per event.
    pub fn of(snapshot: &Snapshot, name: &str) -> Self {
        device::build_page(snapshot, name, None, all_threads())
    }

    /// Creates a page like [`Self::of`], but on the calling thread alone, for a snapshot of the running program: the
    /// recording that goes on would contain the memory of helper threads.
    pub fn of_running(snapshot: &Snapshot, name: &str) -> Self {
        device::build_page(snapshot, name, None, 1)
    }

    /// Creates a page with inferred categories for the devices that have none in the snapshot. The page states that the
    /// categories were inferred.
    pub fn with_inferred(snapshot: &Snapshot, name: &str, categories: &InferredCategories) -> Self {
        device::build_page(snapshot, name, Some(categories), all_threads())
    }

    /// Adds the process to the names of the page's devices, as in `host heap of process 12 (worker)`.
    #[must_use]
    pub fn of_process(mut self, process: &str) -> Self {
        for device in &mut self.head.devices {
            device.name = format!("{} of {process}", device.name);
        }
        self
    }

    /// Adds the devices of another process of the same run. Their times are relative to the start of that process. No
    /// two devices on the page may have the same name: see [`Self::of_process`].
    #[must_use]
    pub fn with_process(mut self, other: Self) -> Self {
        let offset = self.sections.len();
        self.head.devices.extend(other.head.devices.into_iter().map(|mut device| {
            device.sections.move_by(offset);
            device
        }));
        self.sections.extend(other.sections);
        self.head.has_time |= other.head.has_time;
        self
    }

    /// Returns whether the snapshot contains the category of at least one block, as PyTorch's memory profiles do.
    pub fn has_categories(&self) -> bool {
        self.head.devices.iter().any(|device| !device.categories.is_empty() && !device.inferred)
    }

    /// Returns the same page, showing `view` first.
    #[must_use]
    pub fn showing(mut self, view: View) -> Self {
        self.head.view = view.name();
        self
    }

    /// Returns the same page, but initially without the blocks that are freed in the trace, as with PyTorch's
    /// `trace_plot --filter_freed`.
    #[must_use]
    pub fn without_freed(mut self) -> Self {
        self.head.kept = true;
        self
    }

    /// Writes the page as one self-contained HTML file.
    ///
    /// # Errors
    /// Fails if `out` cannot be written to.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        html::write(self, out)
    }

    /// Writes the page without its tables, for a server. The page requests them at `section/0`, `section/1` and so on,
    /// relative to its own address, and the server answers with [`Self::section`].
    ///
    /// # Errors
    /// Fails if `out` cannot be written to.
    pub fn write_served(&self, out: impl Write) -> io::Result<()> {
        html::write_served(self, out)
    }

    /// Returns the page's table with this number as raw deflate data, or `None` if there is no such table.
    pub fn section(&self, number: usize) -> Option<&[u8]> {
        self.sections.get(number).map(Section::packed)
    }
}
