//! `memtrack segment-plot`: a snapshot as a page that first shows the state of the allocator.

use super::prelude::*;
use crate::page::{PLOT_HELP, PageArgs, write_page};
use memtrack_core::page::View;

/// Show the allocator's events, segments and blocks, as one HTML page (PyTorch's verb)
#[derive(Clone, Debug, Args)]
#[command(alias = "segment_plot", after_help = PLOT_HELP)]
pub(crate) struct SegmentPlotArgs {
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

pub(super) const ANSWER: Answer<WrittenAnswer> = Answer::new("segment-plot", 1);

/// Writes the page for `memtrack segment-plot`.
pub(super) fn run(args: &SegmentPlotArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write_page(&args.page, ANSWER, streams, |page| page.showing(View::State))
}
