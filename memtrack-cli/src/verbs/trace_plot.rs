//! `memtrack trace-plot`: a snapshot as a page that first shows memory over time.

use super::prelude::*;
use crate::page::{PLOT_HELP, PageArgs, write_page};
use memtrack_core::page::View;

/// Show what was allocated over time, as one HTML page (PyTorch's verb)
#[derive(Clone, Debug, Args)]
#[command(alias = "trace_plot", after_help = PLOT_HELP)]
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

pub(super) const ANSWER: Answer<WrittenAnswer> = Answer::new("trace-plot", 1);

/// Writes the page for `memtrack trace-plot`, which has the same options as PyTorch's command of that name.
pub(super) fn run(args: &TracePlotArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write_page(&args.page, ANSWER, streams, |page| {
        let page = page.showing(if args.segments { View::Segments } else { View::Timeline });
        if args.filter_freed { page.without_freed() } else { page }
    })
}
