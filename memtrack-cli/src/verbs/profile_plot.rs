//! `memtrack profile-plot`: a snapshot as a page that first shows the categories of memory.

use super::prelude::*;
use crate::page::{PLOT_HELP, PageArgs, write_page};
use memtrack_core::page::View;

/// Show a profile's memory over time by category, as one HTML page (PyTorch's verb)
#[derive(Clone, Debug, Args)]
#[command(alias = "profile_plot", after_help = PLOT_HELP)]
pub(crate) struct ProfilePlotArgs {
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

pub(super) const ANSWER: Answer<WrittenAnswer> = Answer::new("profile-plot", 1);

/// Writes the page for `memtrack profile-plot`, which shows each category's memory over time. PyTorch's command of that
/// name stacks blocks in the colours of their categories; files without recorded categories are shown that way, with
/// inferred categories.
pub(super) fn run(args: &ProfilePlotArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write_page(&args.page, ANSWER, streams, |page| {
        let view = if page.has_categories() { View::Categories } else { View::Timeline };
        page.showing(view)
    })
}
