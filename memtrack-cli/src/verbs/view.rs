//! `memtrack view`: a snapshot as one HTML page.

use super::prelude::*;
use crate::page::{PageArgs, load_page, write_page};
use crate::serve::Server;
use memtrack_core::page::View;

/// View a snapshot or recording in the browser: one HTML page that needs no network
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
pub(crate) struct ViewArgs {
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// What the page shows first
    #[arg(long, value_parser = named(VIEWS), value_name = "VIEW", default_value = "timeline")]
    pub(crate) show: View,
    /// Write nothing; serve the page on a loopback address, for files too big for one page
    #[arg(long, conflicts_with_all = ["output", "force", "json"])]
    pub(crate) serve: bool,
    /// With --serve: the port; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 0, requires = "serve")]
    pub(crate) port: u16,
}

pub(super) const ANSWER: Answer<WrittenAnswer> = Answer::new("view", 1);

/// The names of the views, their help, and the views.
const VIEWS: [(&str, &str, View); 7] = [
    ("timeline", "What was allocated over time, stacked", View::Timeline),
    ("categories", "The same by category: parameters, activations, gradients …", View::Categories),
    ("pools", "What was allocated over time, with an envelope for each private pool", View::Pools),
    ("state", "The allocator's events, with the segments and blocks at any of them", View::State),
    ("segments", "Segments over time, stacked", View::Segments),
    ("flame", "What is live, as a flame graph", View::Flame),
    ("settings", "The allocator's settings", View::Settings),
];

/// Writes the page for `memtrack view`, or serves it until the process is stopped.
pub(super) fn run(args: &ViewArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    if !args.serve {
        return write_page(&args.page, ANSWER, streams, |page| page.showing(args.show));
    }
    let page = load_page(&args.page, streams)?.showing(args.show);
    let server = Server::new(page, args.port)?;
    writeln!(streams.stdout, "{}", server.url())?;
    streams.stdout.flush()?;
    streams.note(format_args!("serving to this machine only; press Ctrl-C to end"));
    server.run()?;
    Ok(Exit::Success)
}
