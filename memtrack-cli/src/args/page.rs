//! Arguments for the verbs that write a page.

use super::{FileArgs, ScrubArgs, WrittenArgs};
use clap::{Args, ValueEnum};
use memtrack_core::page::View;
use std::path::PathBuf;

/// The text at the end of `memtrack help trace-plot` and of similar help pages.
pub(super) const PLOT_HELP: &str = "\
Examples:
  memtrack trace-plot snapshot.pickle                    writes output.html: what was allocated over time
  memtrack trace-plot snapshot.pickle --segments         segments instead of blocks
  memtrack segment-plot snapshot.pickle -o state.html    segments and blocks at every event
  memtrack profile-plot profile.pickle -o profile.html   what was allocated over time, by category

The page holds everything, needs no network, and shows what `memtrack view` shows: these verbs differ in what it shows first.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.";

/// Arguments for `memtrack profile-plot` and `memtrack segment-plot`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PageArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) target: PageTarget,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

/// The page to write.
#[derive(Clone, Debug, Args)]
pub(crate) struct PageTarget {
    /// The page to write; `-` is standard output
    #[arg(short, long, value_name = "FILE.html", default_value = "output.html")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) written: WrittenArgs,
    /// Replace the page if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments for `memtrack trace-plot`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TracePlotArgs {
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// Show segments instead of blocks
    #[arg(short, long)]
    pub(crate) segments: bool,
    /// Initially hide blocks that were freed, and show only those live at the end
    #[arg(short, long, alias = "filter_freed")]
    pub(crate) filter_freed: bool,
}

/// Arguments for `memtrack view`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack view snapshot.pickle                      writes output.html; open it in a browser
  memtrack view train.memtrack -o train.html         of a recording: host heap and devices, scopes as bands
  memtrack view oom.pickle --show state --force      begin with the allocator's state
  memtrack view profile.pickle --show categories     of a memory profile: parameters, activations, gradients
  memtrack view huge.pickle --serve                  no file: open the address that it prints; Ctrl-C ends it

The page is one file that holds everything and needs no network. With --serve the browser loads parts of it when
it shows them, from an address that only this machine can reach.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct ViewPageArgs {
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// What the page shows first
    #[arg(long, value_enum, value_name = "VIEW", default_value = "timeline")]
    pub(crate) show: Shown,
    /// Write nothing; serve the page on a loopback address, for files too big for one page
    #[arg(long, conflicts_with_all = ["output", "force", "json"])]
    pub(crate) serve: bool,
    /// With --serve: the port; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 0, requires = "serve")]
    pub(crate) port: u16,
}

/// The views of a page.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shown {
    /// What was allocated over time, stacked
    Timeline,
    /// The same by category: parameters, activations, gradients …
    Categories,
    /// What was allocated over time, with an envelope for each private pool
    Pools,
    /// The allocator's events, with the segments and blocks at any of them
    State,
    /// Segments over time, stacked
    Segments,
    /// What is live, as a flame graph
    Flame,
    /// The allocator's settings
    Settings,
}

impl From<Shown> for View {
    fn from(shown: Shown) -> Self {
        match shown {
            Shown::Timeline => Self::Timeline,
            Shown::Categories => Self::Categories,
            Shown::Pools => Self::Pools,
            Shown::State => Self::State,
            Shown::Segments => Self::Segments,
            Shown::Flame => Self::Flame,
            Shown::Settings => Self::Settings,
        }
    }
}
