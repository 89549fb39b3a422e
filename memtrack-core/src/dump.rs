//! Files written while recording continues: snapshots for PyTorch's tools, and pictures of the contents of segments. Without
//! the feature `record`, nothing is written.

use std::io;
use std::path::Path;

#[cfg(all(feature = "record", feature = "plot"))]
use crate::viz::{Grouping, save_usage};
#[cfg(all(feature = "record", feature = "formats"))]
use memtrack_formats::{SnapshotFiles, format_of};
#[cfg(all(feature = "record", feature = "formats"))]
use memtrack_symbols::Symbolizer;
#[cfg(feature = "record")]
use {
    memtrack_model::Snapshot,
    memtrack_recorder::recorder::{report_hook, session},
    memtrack_recorder::reentry,
};

/// The writer for dumps, which uses the format selected by the file name.
#[cfg(all(feature = "record", feature = "formats"))]
pub(crate) const DUMPER: session::Dumper = session::Dumper {
    accepts: |path| format_of(path).map(|_| ()),
    write: |snapshot, path| snapshot.save_as(path, &mut Symbolizer::of(snapshot)),
};

/// Writes everything recorded so far to `path` while recording continues, replacing any existing file. This is the
/// counterpart of `torch.cuda.memory._dump_snapshot` in PyTorch. The suffix selects the format: `.pickle` can be opened
/// in pytorch.org/memory_viz and loaded in Python, `.json` has the same content as text, and `.memtrack` keeps
/// everything. An additional `.gz` or `.zst` compresses the file. Without the feature `formats`, only `.memtrack` is
/// available.
///
/// With [`Options::report_on_oom`](crate::recorder::Options::report_on_oom), this function first prints the holders of
/// memory to stderr.
///
/// `.pickle` and `.json` files contain function names, and reading the debug information for them takes some time and
/// memory. The functions in the stacks of a `.memtrack` file are looked up later, by its reader.
///
/// # Errors
/// Fails when nothing is being monitored, the suffix is unknown, or the file cannot be written. The error contains the
/// file's name.
pub fn dump_snapshot(path: impl AsRef<Path>) -> io::Result<()> {
    #[cfg(feature = "record")]
    return write_dump(path.as_ref());
    #[cfg(not(feature = "record"))]
    Ok(())
}

#[cfg(feature = "record")]
fn write_dump(path: &Path) -> io::Result<()> {
    let _inside = reentry::enter();
    session::with_file_name(path, || {
        #[cfg(feature = "formats")]
        session::set_dumper(DUMPER);
        let dumper = session::dumper();
        (dumper.accepts)(path).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let snapshot = running_snapshot()?;
        report_hook::at_dump(&snapshot);
        (dumper.write)(&snapshot, path)
    })
}

/// Draws the current contents of each segment as a flame graph (SVG), replacing any existing file. Blocks are shown by
/// their stacks, and rounding and free memory separately. This is the counterpart of
/// `torch.cuda.memory._save_segment_usage` in PyTorch.
///
/// # Errors
/// Fails when nothing is being monitored or the file cannot be written. The error contains the file's name.
#[cfg(feature = "plot")]
pub fn save_segment_usage(path: impl AsRef<Path>) -> io::Result<()> {
    #[cfg(feature = "record")]
    return save_usage_of(Grouping::Segment, path.as_ref());
    #[cfg(not(feature = "record"))]
    Ok(())
}

/// Draws the same flame graph as [`save_segment_usage`], but with all segments of a stream merged. This is the
/// counterpart of `torch.cuda.memory._save_memory_usage` in PyTorch.
///
/// # Errors
/// Fails when nothing is being monitored or the file cannot be written. The error contains the file's name.
#[cfg(feature = "plot")]
pub fn save_memory_usage(path: impl AsRef<Path>) -> io::Result<()> {
    #[cfg(feature = "record")]
    return save_usage_of(Grouping::Stream, path.as_ref());
    #[cfg(not(feature = "record"))]
    Ok(())
}

#[cfg(all(feature = "record", feature = "plot"))]
fn save_usage_of(grouping: Grouping, path: &Path) -> io::Result<()> {
    let _inside = reentry::enter();
    session::with_file_name(path, || {
        let mut snapshot = running_snapshot()?;
        // The segments are sufficient here, and looking up the functions in the events' stacks would take a long time.
        snapshot.events = Default::default();
        let converted = snapshot.as_pytorch(&mut Symbolizer::of(&snapshot));
        save_usage(&converted, grouping, path)
    })
}

#[cfg(feature = "record")]
fn running_snapshot() -> io::Result<Snapshot> {
    let not_monitored = "nothing is monitored: call memtrack_core::start_monitor() first";
    session::snapshot().ok_or_else(|| io::Error::other(not_monitored))
}
