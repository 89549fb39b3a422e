//! Writes Parquet with a row for each event, in recording order. The columns are those of the events table in a data
//! set (see `memtrack-dataset` and the repository's docs/RANKS.md). The line in the user's code for each stack is added
//! because the file comes without the other tables.

use crate::options::ExportOptions;
use memtrack_model::Snapshot;
use memtrack_symbols::Symbolizer;
use std::io::{self, Write};

/// Writes the table.
#[cfg(feature = "parquet")]
pub(crate) fn write(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    use memtrack_dataset::{EventLine, write_events};
    use memtrack_frames::ownership::{Owners, short};
    use memtrack_model::event::StackId;

    let devices = options.device_ids();
    let mut owners = Owners::new(&options.rules);
    let mut line = |stack: StackId| {
        let owned = owners.owner(&snapshot.frame_keys(stack), symbols);
        EventLine { line: owned.mine.as_ref().map(short), called: owned.called.as_ref().map(short) }
    };
    write_events(snapshot, &devices, &mut line, out)
}

/// Always fails, because this build does not support Parquet.
#[cfg(not(feature = "parquet"))]
pub(crate) fn write(
    _: &Snapshot,
    _: &mut Symbolizer,
    _: &ExportOptions,
    _: &mut dyn Write,
) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "memtrack was built without Parquet"))
}
