//! The recording file `.memtrack`: what a program leaves behind. [`RecordingWriter`] writes it while the program runs
//! or [`Snapshot::save`](crate::snapshot::Snapshot::save) at the end, [`load_from`] and
//! [`Snapshot::load`](crate::snapshot::Snapshot::load) read it back, whole or up to where it was cut.
//!
//! A file is a 16-byte header and then self-checking chunks; `docs/FORMAT.md` describes every byte. The invariant:
//! no input makes the reader panic, and its memory stays within a small multiple of the file's size.

mod chunk;
mod file;
mod payload;
mod reader;
mod repair;
mod replay;
mod report;
mod varint;
mod writer;

pub use reader::load_from;
pub use report::{ReadReport, RecordingError};
pub use writer::RecordingWriter;

/// The first eight bytes of every recording.
pub(crate) const MAGIC: [u8; 8] = *b"MEMTRACK";

/// The version that this build writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
