//! `memtrack top`: the code that allocated the most memory.

use super::prelude::*;
use memtrack_core::analysis::process_memory::ProcessMemory;
use memtrack_core::analysis::top::{By, TopOptions, TopReport, top_with};

/// Rank who allocated, on the heap or a device, or what is live at a moment, by line, stack, operator and more
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack top train.memtrack                        the 20 operators that allocated most
  memtrack top train.memtrack --by stack -n 5        the 5 stacks that allocated most
  memtrack top snapshot.pickle --by line             the lines of your own code, with what each called
  memtrack top snapshot.pickle --by line --mine site-packages/ourlib --explain
                                                     … count a package as yours, and show which rule decided
  memtrack top snapshot.pickle --at peak --by file   who held what at the peak, by file
  memtrack top snapshot.pickle --at oom              … when memory last ran out
  memtrack top train.memtrack --at end --by line     what is still there, how old it is, and whether it grows
  memtrack top snapshot.pickle --at 1200 --by size   … after event 1200, by block size
  memtrack top train.memtrack --json                 the same as JSON
  memtrack top train.memtrack --symbols build/       find binaries that were moved
  memtrack top train.memtrack --pattern 'app::ops::*'  name operators after your own functions

Bytes are requested bytes, without what an allocator adds by rounding. Share: of all rows. Live at peak: what the row held
when the device held most. Growth: the row's bytes at the moment minus those halfway from the first event to it. Oldest: the
age of its oldest block. Median age: half of its bytes are at least that old. Where blocks were sampled, numbers have their
error (1.3 GiB ± 4 %) or are upper bounds (< 40.0 MiB); both hold with 95 % confidence. Without scopes, operators
(aten::mm), phases and modules are read from PyTorch's stacks; C++ stacks alone show no modules, and only the phase backward.
Your own code is everything outside installed packages, registries and system folders. memtrack.toml refines this, as
--mine and --not-mine do:
  [mine]
  paths = ['site-packages/ourlib']
  [not-mine]
  functions = ['app::generated::*']
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    /// How to group memory into rows [default: by operator if the file has scopes, else by stack]
    #[arg(long, value_parser = by_parser())]
    pub(crate) by: Option<By>,
    /// Rank memory that is live at a moment instead of everything allocated: peak, end, oom (the last), or an event's number in
    /// its device's trace
    #[arg(long, value_name = "MOMENT", value_parser = parse_at, allow_hyphen_values = true)]
    pub(crate) at: Option<At>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) ownership: OwnershipArgs,
    #[command(flatten)]
    pub(crate) patterns: PatternsArgs,
}

pub(super) const ANSWER: Answer<TopAnswer> = Answer::new("top", 3);

/// The ranking of allocations, or of the memory live at a moment.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TopAnswer {
    /// Whether the file is complete; false for a recording that was cut off.
    pub(crate) complete: bool,
    /// The devices, each with its ranking.
    pub(crate) devices: Vec<TopReport>,
}

/// Loads the recording and prints a ranking for each requested device.
pub(super) fn run(args: &TopArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let mut complete = true;
    let (context, rules) =
        Context::load(&args.file, &args.ownership.rules, args.device, args.at, streams, |loaded, _, _| {
            complete = loaded.report.is_none_or(|report| report.complete);
            loaded.snapshot
        })?;
    let Context { snapshot, devices, moments, mut symbols } = context;
    let options = TopOptions::new().limit(args.rows.limit()).patterns(args.patterns.patterns());
    // When every frame is shown, stacks that differ in any frame get separate rows.
    let mut options = options.rules(rules.clone()).fold_hidden(args.text.frames > 0);
    let by = args.by.unwrap_or_else(|| By::default_for(&snapshot, &mut symbols, &options));
    let mut reports: Vec<TopReport> = Vec::new();
    for (place, device) in devices.into_iter().enumerate() {
        options.at = moments.get(place).copied();
        reports.push(top_with(&snapshot, &mut symbols, by, device, &options));
    }
    if args.format.json {
        for report in &mut reports {
            report.explained = args.ownership.explain_rows(&rules, &report.rows);
        }
        ANSWER.print(&TopAnswer { complete, devices: reports }, streams)?;
    } else {
        if reports.is_empty() {
            writeln!(streams.stdout, "The recording holds no events.")?;
        }
        for (place, report) in reports.iter().enumerate() {
            let between = if place > 0 { "\n" } else { "" };
            write!(streams.stdout, "{between}{}", report.to_text(layout(args.text)))?;
            args.ownership.print_explained(&rules, &report.rows, layout(args.text), streams)?;
        }
        let process = ProcessMemory::of(&snapshot).filter(|_| args.device.device.is_none());
        if let Some(line) = process.as_ref().and_then(ProcessMemory::to_line) {
            writeln!(streams.stdout, "\nProcess: {line}")?;
        }
        mention_missing(&symbols, streams);
    }
    Ok(Exit::Success)
}
