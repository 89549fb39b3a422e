//! The recording file `.memtrack`: what a program leaves behind. [`RecordingWriter`] writes it while the program runs
//! or [`Snapshot::save`](crate::snapshot::Snapshot::save) at the end, [`load_from`] and
//! [`Snapshot::load`](crate::snapshot::Snapshot::load) read it back, whole or up to where it was cut.
//!
//! A file is a 16-byte header and then self-checking chunks; `docs/FORMAT.md` describes every byte. The invariant:
//! no input makes the reader panic, and its memory stays within a small multiple of the file's size.
//!
//! ```
//! use memtrack_core::event::StackId;
//! use memtrack_core::snapshot::{Meta, recording::{RecordingWriter, load_from}};
//!
//! let mut writer = RecordingWriter::new(Vec::new(), &Meta::default(), (0, 0))?;
//! writer.stacks(StackId(1), [[0x5555_0000_1234, 0x5555_0000_2345]])?;
//! let bytes = writer.finish(&[], &[], &[])?;
//!
//! let (snapshot, report) = load_from(&bytes[..])?;
//! assert_eq!(snapshot.stacks.get(StackId(1))[0], 0x5555_0000_1234);
//! assert!(report.complete);
//!
//! // Of a file that was cut, everything up to the last whole chunk is there.
//! let (snapshot, report) = load_from(&bytes[..bytes.len() - 1])?;
//! assert_eq!(snapshot.stacks.len(), 2);
//! assert!(!report.complete && report.warning().is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chunk;
mod embedded;
mod file;
pub(crate) mod part;
mod payload;
mod reader;
mod repair;
pub(crate) mod replay;
mod report;
mod varint;
mod writer;

pub use part::older_parts;
pub use reader::load_from;
pub use report::{ReadReport, RecordingError};
pub use writer::RecordingWriter;

/// The first eight bytes of every recording.
pub(crate) const MAGIC: [u8; 8] = *b"MEMTRACK";

/// The version that this build writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
