//! `memtrack sizes`: how large blocks are, and who makes them.

use super::prelude::*;
use memtrack_core::analysis::sizes::{SizesReport, sizes};
use memtrack_core::analysis::top::TopOptions;

/// Show how large blocks are: how many of each size, what they hold, and which line makes them
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack sizes server.memtrack                     all blocks that were allocated, by size
  memtrack sizes server.memtrack --at peak           those that were live at the peak
  memtrack sizes snapshot.pickle --at end --device 0 … at the end, on one device
  memtrack sizes server.memtrack --json              the same as JSON, with three lines of each class

A row has the blocks with more bytes than the row above, up to its own: powers of two. Bytes are requested bytes. Share: of all
bytes; behind a line, of those in its row. Where blocks were sampled, numbers have their error (1.3 GiB ± 4 %) or are upper bounds
(< 40.0 MiB); both hold with 95 % confidence.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct SizesArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Count memory that is live at a moment instead of everything allocated: peak, end, oom (the last), or an event's number in
    /// its device's trace
    #[arg(long, value_name = "MOMENT", value_parser = parse_at, allow_hyphen_values = true)]
    pub(crate) at: Option<At>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Do not shorten names; by default, lines are as wide as COLUMNS, else the terminal, else 120 characters
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
}

pub(super) const ANSWER: Answer<SizesAnswer> = Answer::new("sizes", 1);

/// The sizes of blocks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SizesAnswer {
    /// The devices, each with its classes of sizes.
    pub(crate) devices: Vec<SizesReport>,
}

/// Loads the file and prints the sizes of each requested device's blocks.
pub(super) fn run(args: &SizesArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let (context, rules) =
        Context::load(&args.file, &args.rules, args.device, args.at, streams, |loaded, _, _| {
            loaded.snapshot
        })?;
    let Context { snapshot, devices, moments, mut symbols } = context;
    let options = TopOptions::new().rules(rules);
    let report = |(place, device)| {
        sizes(&snapshot, &mut symbols, device, &options.clone().at(moments.get(place).copied()))
    };
    let devices: Vec<SizesReport> = devices.into_iter().enumerate().map(report).collect();
    if args.format.json {
        ANSWER.print(&SizesAnswer { devices }, streams)?;
        return Ok(Exit::Success);
    }
    let texts: Vec<String> = devices.iter().map(|device| device.to_text(width(args.wide))).collect();
    print_devices(&texts, streams)?;
    mention_missing(&symbols, streams);
    Ok(Exit::Success)
}
