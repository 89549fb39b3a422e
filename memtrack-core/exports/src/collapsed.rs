//! Writes collapsed stacks for flame graph tools, as `frame;frame;… bytes` with the outermost function first. The lines
//! are the same as those that `memtrack memory --at … --folded` prints.

use crate::options::ExportOptions;
use memtrack_model::Snapshot;
use memtrack_report::live_flame::LiveFlame;
use memtrack_symbols::Symbolizer;
use std::io::{self, Write};

/// Writes a line for each stack whose memory was in use.
pub(crate) fn write(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut flame = LiveFlame::new();
    for &(device, moment) in &options.devices {
        flame.add(snapshot, symbols, device, moment, &options.rules);
    }
    flame.remove_empty_devices();
    for line in flame.folded() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
