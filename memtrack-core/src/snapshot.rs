//! The model: the contents of a recording or a snapshot, as column tables with interned rows. The recorder and all
//! readers produce a [`Snapshot`], and all reports and writers take one.

#[cfg(feature = "formats")]
pub use memtrack_formats::{Format, Loaded, SnapshotFiles};
#[doc(inline)]
pub use memtrack_model::snapshot::*;

/// PyTorch snapshots: the data that `torch.cuda.memory._snapshot()` returns, stored in tables without loss.
pub mod pytorch {
    #[cfg(feature = "formats")]
    pub use memtrack_formats::pickle::PickleError;
    #[cfg(feature = "formats")]
    pub use memtrack_formats::pytorch::{Encoding, StringInterner, write};
    #[cfg(feature = "formats")]
    pub use memtrack_formats::{
        Compression, JsonError, LoadError, LoadOptions, format_of, formats_listed, unpacked_head,
    };
    #[doc(inline)]
    pub use memtrack_model::snapshot::pytorch::*;
}

/// The recording file, `.memtrack`. `RecordingWriter` writes it while the program runs. `load_from` reads it, either
/// completely or up to the point where it was truncated.
///
/// ```
/// use memtrack_core::event::StackId;
/// use memtrack_core::snapshot::{Meta, recording::{RecordingWriter, load_from}};
///
/// let mut writer = RecordingWriter::new(Vec::new(), &Meta::default(), (0, 0))?;
/// writer.stacks(StackId(1), [[0x5555_0000_1234, 0x5555_0000_2345]])?;
/// let bytes = writer.finish(&[], &[], &[])?;
///
/// let (snapshot, report) = load_from(&bytes[..])?;
/// assert_eq!(snapshot.stacks.get(StackId(1))[0], 0x5555_0000_1234);
/// assert!(report.complete);
///
/// // A file that was cut off is read up to its last complete chunk.
/// let (snapshot, report) = load_from(&bytes[..bytes.len() - 1])?;
/// assert_eq!(snapshot.stacks.len(), 2);
/// assert!(!report.complete && report.warning().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "formats")]
pub mod recording {
    pub use memtrack_file::{
        FORMAT_VERSION, MAGIC, ProcessChoice, ReadReport, RecordingError, RecordingWriter, merge,
        older_parts, part::open as open_parts,
    };
    pub use memtrack_formats::{load_from, open_processes};
}
