//! Arguments for the verbs that report the purpose of memory.

use super::{FormatArgs, InputArgs, RowsArgs, ScrubArgs, SymbolsArgs, WrittenArgs};
use clap::Args;
use std::path::PathBuf;

/// The operator trace that a verb reads.
#[derive(Clone, Debug, Args)]
pub(crate) struct TraceArgs {
    /// The operator trace, or a recording that has operators; `-` reads standard input
    #[arg(value_name = "TRACE")]
    pub(crate) path: PathBuf,
    /// Only this device, such as cuda:0; required if the trace covers several devices
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Report exactly what PyTorch's profiler does, including its errors: repair nothing, and use only PyTorch's categories
    #[arg(long)]
    pub(crate) compat: bool,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
}

/// Arguments for `memtrack timeline`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack timeline run.optrace.jsonl.gz -o memory.html        look at it in the browser
  memtrack timeline run.optrace.jsonl.gz -o memory.svg         the picture that PyTorch's profiler draws
  memtrack timeline run.optrace.jsonl.gz -o memory.json        PyTorch's export: bytes by category over time
  memtrack timeline run.optrace.jsonl.gz --device cuda:1 -o memory.raw.json.gz    each change, in ns
  memtrack timeline run.optrace.jsonl.gz -o profile.pickle     a snapshot with categories, for every other verb

The suffix selects the form: .html, .svg, .png, .json, .json.gz, .raw.json.gz or .pickle. `memtrack export-script` prints the
script that records an operator trace of a PyTorch program.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// The file to write; `-` prints the JSON export
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) written: WrittenArgs,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

/// Arguments for `memtrack categories`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack categories run.optrace.jsonl.gz                  what the peak is made of, and what is left at the end
  memtrack categories run.optrace.jsonl.gz --at 12.5ms      … 12.5 ms after the start of the trace
  memtrack categories run.optrace.jsonl.gz --json           the same as JSON
  memtrack categories run.optrace.jsonl.gz --tensors        every version of every tensor with its category
  memtrack categories snapshot.pickle                       what can be inferred from stacks, sizes and the order of events

Categories of an operator trace are as exact as the trace: each piece of memory has the category that PyTorch's profiler
assigns, or one of memtrack's own; memory that no rule covers is UNKNOWN. Those of a snapshot or a recording are inferred by
named rules, which the report lists; they are not exact, and the report shows how much has no category.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct CategoriesArgs {
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// The moment: peak, end, or a time after the start of the trace such as 12.5ms [default: peak and end]
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment, allow_hyphen_values = true, conflicts_with = "tensors")]
    pub(crate) at: Option<AtMoment>,
    /// List every version of every tensor instead
    #[arg(long)]
    pub(crate) tensors: bool,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    /// Do not shorten names
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// A moment in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtMoment {
    /// The moment with the most allocated bytes.
    Peak,
    /// The end of the trace.
    End,
    /// This many ns after the start of the trace.
    After(i64),
}

fn parse_moment(text: &str) -> Result<AtMoment, String> {
    const UNITS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    match text {
        "peak" => return Ok(AtMoment::Peak),
        "end" => return Ok(AtMoment::End),
        _ => {}
    }
    let time = UNITS.iter().find_map(|(unit, ns)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0 && number * ns < 9e18).then_some((number * ns) as i64)
    });
    time.map(AtMoment::After)
        .ok_or_else(|| "expected peak, end, or a time with its unit, such as 12.5ms".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_word_or_a_time_with_its_unit() {
        assert_eq!(parse_moment("peak"), Ok(AtMoment::Peak));
        assert_eq!(parse_moment("12.5ms"), Ok(AtMoment::After(12_500_000)));
        assert_eq!(parse_moment("3 s"), Ok(AtMoment::After(3_000_000_000)));
        for wrong in ["", "12", "ms", "-1ms", "1e300s", "nans"] {
            assert!(parse_moment(wrong).is_err(), "{wrong}");
        }
    }
}
