//! The output of PyTorch's `_memory_viz.py` for a snapshot, byte for byte: `stats`, `trace`, [`segments_folded`],
//! [`memory_folded`] and [`compare_folded`]. The same reports are available as JSON and as lines for a flame graph.
//!
//! All reports take a snapshot in PyTorch's form (`SnapshotFiles::as_pytorch` converts a recording), write to any
//! [`Write`](std::io::Write) without buffering the whole text, and return the [`Inconsistencies`] of the file. Where
//! PyTorch fails, a report contains as much as the file allows, and the inconsistencies describe what is wrong with the
//! file.

mod blocks;
mod compare;
#[cfg(feature = "plot")]
mod flame;
mod folded;
mod inconsistencies;
mod intervals;
mod number;
mod pages;
mod printable;
mod replay;
mod repr;
mod sink;
mod stacks;
mod stats;
mod trace;
mod trace_json;
mod usage;

pub use compare::{SegmentKey, compare_folded, compare_usage, only_in};
#[cfg(feature = "plot")]
pub use flame::{flame_graph, save_usage};
pub use folded::{memory_folded, segments_folded};
pub use inconsistencies::Inconsistencies;
pub use stats::{SegmentFill, SegmentFillAnswer, Stats, StatsAnswer};
pub use trace::trace;
pub use trace_json::{DeviceTraceAnswer, EntryAnswer, TraceAnswer, trace_json};
pub use usage::{Group, Grouping, Part, Usage, UsageAnswer, UsageRow};
