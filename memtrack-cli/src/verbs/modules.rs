//! `memtrack modules`: the memory of each module.

use super::prelude::*;
use memtrack_core::profile::modules::{DEPTH, ModuleReport};

/// Show a model's memory module by module: before and after its forward and backward pass, and at their peak
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack modules run.optrace.jsonl.gz                     the modules of the model, three levels of them
  memtrack modules run.optrace.jsonl.gz --depth 1           only the outermost ones
  memtrack modules run.optrace.jsonl.gz --json              all modules and all their calls, as JSON

For each module: bytes of its parameters, nested modules included, and for the forward and the backward pass what was
allocated on the device right before, at most, and how much more after it than before. Of several calls, the one with the
highest peak is shown.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct ModulesArgs {
    #[command(flatten)]
    pub(crate) trace: OptraceArgs,
    /// How many levels of modules to show, starting with the outermost [default: 3; with --json all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_hyphen_values = true)]
    pub(crate) depth: Option<u32>,
    /// Do not shorten names and lines
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

pub(super) const ANSWER: Answer<ModuleReport> = Answer::new("modules", 2);

/// Analyses the trace and prints the memory of its modules.
pub(super) fn run(args: &ModulesArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let source = optrace::load(&args.trace, streams)?;
    let (profile, repairs) = optrace::analyse_trace(&args.trace, &source, streams)?;
    let device = optrace::select_device(&args.trace, &profile)?;
    let mut report = ModuleReport::of(&profile, device, repairs);
    if source.recording.is_some() {
        optrace::rename_device(&mut report.device);
    }
    if args.format.json {
        ANSWER.print(&report.listed(args.depth.unwrap_or(u32::MAX)), streams)?;
    } else {
        let width = width(args.wide);
        streams.stdout.write_all(report.to_text(args.depth.unwrap_or(DEPTH), width).as_bytes())?;
    }
    Ok(Exit::Success)
}
