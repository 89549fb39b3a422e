//! Arguments for `memtrack memory`.

use super::device::DeviceArgs;
use super::rank::{At, parse_at};
use super::viz::FlameArgs;
use super::{FileArgs, RulesArgs, ScrubArgs};
use clap::Args;

/// Arguments for `memtrack memory`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack memory snapshot.pickle                    writes output.svg: what the segments hold, by stream
  memtrack memory snapshot.pickle --folded           PyTorch's folded lines, for other flame graph tools
  memtrack memory snapshot.pickle --json             what is drawn, as JSON
  memtrack memory train.memtrack --at peak -o peak.svg
                                                     what was live at the peak, in at most 1,000 rectangles
  memtrack memory snapshot.pickle --at oom -o oom.folded
                                                     every stack that was live when memory last ran out
  memtrack memory snapshot.pickle --at end --folded | other-tool

Without --at, the picture shows free blocks as free, and rounding separately; the folded lines are those that PyTorch prints,
with stale sizes of free blocks and gaps that may be negative.
With --at, bytes are requested bytes, and frames that only pass a call on are left out. In the picture the smallest stacks
are summed up as \"… 12 more (3.4 MiB)\"; folded lines and JSON have all of them.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct MemoryArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) flame: FlameArgs,
    /// Draw what was live at a moment, by stack: peak, end, oom (the last), or an event's number in its device's trace
    #[arg(long, value_name = "MOMENT", value_parser = parse_at, allow_hyphen_values = true)]
    pub(crate) at: Option<At>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

impl MemoryArgs {
    /// Returns the name of a given option that is valid only with `--at`, if there is one.
    pub(crate) fn moment_option(&self) -> Option<&'static str> {
        let given = [
            ("--device", self.device.device.is_some()),
            ("--mine", !self.rules.mine.is_empty()),
            ("--not-mine", !self.rules.not_mine.is_empty()),
            ("--rules", self.rules.rules.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}
