//! Arguments of the verbs that answer questions of memtrack's own about a snapshot.

use super::device::DeviceArgs;
use super::{FileArgs, FormatArgs, RowsArgs, TextArgs};
use crate::sizes::{parse_bytes, parse_share};
use clap::{Args, ValueEnum};

/// Arguments of `memtrack summary`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack summary snapshot.pickle           what each device holds, its peak, and what to look at first
  memtrack summary run.memtrack --json       the numbers as JSON

Bytes at the end are those of blocks, with what rounding added; the peak and what was live then are counted as asked
for, which is what events say.
Exit codes: 0 fine, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct SummaryArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Arguments of `memtrack peak`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack peak snapshot.pickle                   what was live when it came to the most bytes, by stack
  memtrack peak snapshot.pickle --of reserved     … when the segments took most
  memtrack peak snapshot.pickle -n 5 --json       the five largest groups as JSON
  memtrack peak snapshot.pickle --frames 0 --wide every frame of their stacks, with whole names

Bytes of blocks are those that were requested; what rounding adds to them is in `memtrack summary`.
Exit codes: 0 fine, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct PeakArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Which highest point
    #[arg(long, value_enum, default_value_t = PeakOf::Requested)]
    pub(crate) of: PeakOf,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Of what the highest point is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeakOf {
    /// Bytes that were requested and not given back
    #[value(alias = "allocated")]
    Requested,
    /// Bytes of segments
    Reserved,
}

/// Arguments of `memtrack check`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack check snapshot.pickle --max-peak 10GiB               fails when more was ever requested and live
  memtrack check run.memtrack --max-leak 0                      … when anything allocated is live at the end
  memtrack check snapshot.pickle --max-fragmentation 25%        … when more is stuck in split segments

Of several devices the worst counts. Peak: the highest requested bytes that were live. Leak: requested bytes
live at the end of the trace that were allocated within it. Fragmentation: free bytes in split segments as a share of reserved bytes.
A heap whose small blocks were sampled is judged with the error: a limit is kept when all of the interval that
holds the truth in 95 of 100 cases lies below it, and exceeded when all of it lies above. Between them `check`
says that it cannot tell, and ends with 1 too. Options::exact() records every block.
A file in which nothing can be seen (no events and no memory; for a leak, no events) passes no limit: exit 3.
Exit codes: 0 within the limits, 1 not, or not for certain, 2 wrong usage, 3 unreadable input or unwritable output.")]
#[command(group = clap::ArgGroup::new("limits").required(true).multiple(true))]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// The highest requested bytes that were live, such as 10GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, group = "limits", allow_hyphen_values = true)]
    pub(crate) max_peak: Option<u64>,
    /// Requested bytes allocated within the trace and live at its end
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, group = "limits", allow_hyphen_values = true)]
    pub(crate) max_leak: Option<u64>,
    /// Free bytes in split segments ÷ reserved bytes: 0 to 1, or a percentage such as 25%
    #[arg(long, value_name = "SHARE", value_parser = parse_share, group = "limits", allow_hyphen_values = true)]
    pub(crate) max_fragmentation: Option<f64>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}
