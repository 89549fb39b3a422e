//! Arguments for memtrack's own reports about a snapshot.

use super::device::DeviceArgs;
use super::{FileArgs, FormatArgs, OwnershipArgs, RowsArgs, TextArgs};
use crate::sizes::{parse_bytes, parse_share};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Arguments for `memtrack summary`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack summary snapshot.pickle           what each device holds, its peak, and what to look at first
  memtrack summary run.memtrack --json       the numbers as JSON

Bytes at the end are those of blocks, rounded up by the allocator; the peak, and what was live then, are requested bytes,
which is what events contain.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct SummaryArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) ownership: OwnershipArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Arguments for `memtrack peak`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack peak snapshot.pickle                   what was live at the peak, by stack
  memtrack peak snapshot.pickle --of reserved     … when the segments were largest
  memtrack peak snapshot.pickle -n 5 --json       the five largest groups as JSON
  memtrack peak snapshot.pickle --frames 0 --wide all frames of the stacks, with full names

Bytes of blocks are requested bytes; `memtrack summary` shows what rounding adds to them.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct PeakArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// The quantity whose peak is shown
    #[arg(long, value_enum, default_value_t = PeakOf::Requested)]
    pub(crate) of: PeakOf,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    #[command(flatten)]
    pub(crate) ownership: OwnershipArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// The quantity whose maximum is the peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeakOf {
    /// Requested bytes of live blocks
    #[value(alias = "allocated")]
    Requested,
    /// Bytes of segments
    Reserved,
}

/// Arguments for `memtrack check`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack check snapshot.pickle --max-peak 10GiB               fails if more was ever live
  memtrack check run.memtrack --max-leak 0                      … if anything allocated is still live at the end
  memtrack check snapshot.pickle --max-fragmentation 25%        … if more is free in split segments
  memtrack check new.pickle --against good.pickle               … if a device's peak grew by more than 5 %
  memtrack check new.pickle --against good.pickle --tolerance 0 … if it grew at all

Of several devices, the worst one counts. Peak: the most requested bytes that were live at once. Leak: requested bytes that
were allocated within the trace and are live at its end. Fragmentation: free bytes in split segments as a share of
reserved bytes. Against another file: the most requested bytes that were live at once, on each device; the lines that grew
most are named, as by `memtrack diff`.
Where small blocks of a heap were sampled, numbers are known within a 95 % interval: a limit is kept if the whole
interval lies below it, and exceeded if the whole interval lies above it. Otherwise the result is uncertain, and the
exit code is 1 too. Options::exact() records every block.
A file without events or memory (for a leak: without events) passes no limit: exit code 3.
Exit codes: 0 within the limits, 1 beyond one, or uncertain, 2 wrong usage, 3 unreadable input or unwritable output.")]
#[command(group = clap::ArgGroup::new("limits").required(true).multiple(true))]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// The most requested bytes that may be live at once, such as 10GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, group = "limits", allow_hyphen_values = true)]
    pub(crate) max_peak: Option<u64>,
    /// Requested bytes that may be allocated within the trace and live at its end
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, group = "limits", allow_hyphen_values = true)]
    pub(crate) max_leak: Option<u64>,
    /// Free bytes in split segments ÷ reserved bytes: 0 to 1, or a percentage such as 25%
    #[arg(long, value_name = "SHARE", value_parser = parse_share, group = "limits", allow_hyphen_values = true)]
    pub(crate) max_fragmentation: Option<f64>,
    /// A recording or snapshot to compare the peaks with; `-` reads standard input
    #[arg(long, value_name = "BASE", group = "limits")]
    pub(crate) against: Option<PathBuf>,
    /// How much a device's peak may exceed its peak in BASE: 0 to 1, or a percentage
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "5%", requires = "against", allow_hyphen_values = true)]
    pub(crate) tolerance: f64,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}
