//! `memtrack peak`: all memory that was live at the peak.

use super::prelude::*;
use memtrack_core::analysis::at_peak::{self, AtPeak};
use memtrack_core::analysis::top::TopOptions;

/// List everything that was live at the peak, by stack, largest first
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

pub(super) const ANSWER: Answer<PeakAnswer> = Answer::new("peak", 3);

/// The memory that was live at the peak of each device.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PeakAnswer {
    /// The devices, each with the memory that was live at its peak.
    pub(crate) devices: Vec<AtPeak>,
}

/// Loads the snapshot and prints the memory that was live at each device's peak.
pub(super) fn run(args: &PeakArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let (context, rules) =
        Context::load(&args.file, &args.ownership.rules, args.device, None, streams, |loaded, _, _| {
            loaded.snapshot
        })?;
    let Context { snapshot, mut devices, mut symbols, .. } = context;
    let ordinals = snapshot.ordinals();
    devices.sort_by_key(|&device| ordinals.of(device));
    let of = match args.of {
        PeakOf::Requested => at_peak::PeakKind::Requested,
        PeakOf::Reserved => at_peak::PeakKind::Reserved,
    };
    let options = TopOptions::new().limit(args.rows.limit()).rules(rules.clone());
    // When every frame is shown, stacks that differ in any frame get separate rows.
    let options = options.fold_hidden(args.text.frames > 0);
    let find = |device| AtPeak::find_with(&snapshot, &mut symbols, device, of, &options);
    let mut devices: Vec<AtPeak> = devices.into_iter().map(find).collect();
    if args.device.device.is_none() && !devices.iter().all(AtPeak::is_empty) {
        devices.retain(|device| !device.is_empty());
    }
    if args.format.json {
        for AtPeak { live, .. } in &mut devices {
            live.explained = args.ownership.explain_rows(&rules, &live.rows);
        }
        ANSWER.print(&PeakAnswer { devices }, streams)?;
        return Ok(Exit::Success);
    }
    let texts: Vec<String> = devices.iter().map(|device| device.to_text(layout(args.text))).collect();
    print_devices(&texts, streams)?;
    for device in &devices {
        args.ownership.print_explained(&rules, &device.live.rows, layout(args.text), streams)?;
    }
    Ok(Exit::Success)
}
