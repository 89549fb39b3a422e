//! `memtrack rss`: where the resident memory of a program is.

use super::prelude::*;
use memtrack_core::analysis::resident::{ResidentReport, resident};
use memtrack_core::analysis::top::TopOptions;
use memtrack_core::snapshot::Since;

/// Show where the resident memory is: live blocks, free memory that the allocator keeps, stacks, files, and what is not explained
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack run --host -o run.memtrack -- ./service   the command reads which pages are in memory, while the program runs
  memtrack rss run.memtrack                          what they hold, at the highest reading and at the last one
  memtrack rss run.memtrack --over-time              … and at up to 60 readings
  memtrack rss run.memtrack --process worker         another process of the run
  memtrack rss run.memtrack --json                   the same as JSON

The rows add up to what the kernel counts as resident. A page is live or free as the recording's blocks say. Free pages are kept by
the allocator, which may return them to the system; memory beside live blocks returns only when these are freed. The second table
has the lines whose blocks are on pages of which at most a quarter is live: pins, the bytes of these pages; alone, those on which
no other line has a block. Where small blocks were sampled, free memory is not divided; --exact records all of them.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input, or one without readings.")]
pub(crate) struct RssArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Show the rows of up to 60 readings
    #[arg(long)]
    pub(crate) over_time: bool,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    /// Do not shorten names; by default, lines are as wide as COLUMNS, else the terminal, else 120 characters
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
}

pub(super) const ANSWER: Answer<ResidentReport> = Answer::new("rss", 1);

/// Loads the file and prints where its process's resident memory was.
pub(super) fn run(args: &RssArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let any_device = DeviceArgs { device: None };
    let (context, rules) =
        Context::load(&args.file, &args.rules, any_device, None, streams, |loaded, _, _| loaded.snapshot)?;
    let Context { snapshot, mut symbols, .. } = context;
    let options = TopOptions::new().rules(rules).limit(args.rows.limit());
    let Some(report) = resident(&snapshot, &mut symbols, &options, args.over_time) else {
        return Err(CliError::input(&args.file.path, why_there_are_no_readings(&snapshot)));
    };
    if args.format.json {
        ANSWER.print(&report, streams)?;
    } else {
        write!(streams.stdout, "{}", report.to_text(width(args.wide)))?;
    }
    mention_missing(&symbols, streams);
    Ok(Exit::Success)
}

/// Returns why a snapshot has no readings of resident memory, and what to do.
fn why_there_are_no_readings(snapshot: &Snapshot) -> &'static str {
    if snapshot.seconds_since() != Since::Start {
        "a PyTorch snapshot does not describe the memory of the process; `memtrack run --host -- PROGRAM` records it"
    } else {
        "it has no readings of the resident memory: only `memtrack run --host` and memtrack_core::start_monitor() with the host \
         heap make them; of several processes together there are none (--process selects one)"
    }
}
