//! The recording file of a program, `.memtrack`. [`RecordingWriter`] writes it while the program runs or at the end;
//! [`read`] reads it back, completely or up to where it was cut off.
//!
//! A file is a 16-byte header and a series of chunks with checksums; the repository's docs/FILES.md describes every byte. The
//! invariant: no input makes the reader panic, and its memory stays within a small multiple of the file's size.
//!
//! **Why a separate package?** The recorder writes the file, readers read it, and both must agree on every
//! byte. If this code was in `formats`, the recorder would have to compile the pickle code; if it was in `recorder`,
//! readers would have to compile the hot path.
//!
//! The modules:
//!
//! - writing: `writer` (while a program runs), `snapshot_writer` (a complete recording), `part` (recordings in several
//!   files), `replacing_file`.
//! - reading: `reader`, then `dangling_ids`; `processes` (the choice of processes of a run); `merge` (all processes of a run as
//!   one); `unfinished`, which computes the state at the end of a recording that was cut off; `read_report` (the part of a file
//!   that was read).
//! - encoding: `chunk`, `payload`, `varint`, `operators` (the log of operators), `resident` (readings of resident
//!   memory), `binary_id`;
//!   `file_names`: extensions for compression, and names of files beside another file.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

pub mod binary_id;
mod chunk;
mod dangling_ids;
mod file_names;
mod merge;
pub mod operators;
pub mod part;
mod payload;
mod processes;
mod read_report;
mod reader;
mod replacing_file;
mod resident;
mod snapshot_writer;
pub mod unfinished;
mod varint;
mod writer;

pub use file_names::{Compression, tagged_path};
pub use merge::merge;
pub use part::older_parts;
pub use processes::ProcessChoice;
pub use read_report::{ReadReport, RecordingError};
pub use reader::{Content, PackedInput, read, read_choice, read_each, read_meta, read_processes};
pub use replacing_file::{ReplacingFile, create_file, create_new_file, create_private_file};
pub use resident::MAX_LENGTHS as MAX_RESIDENT_LENGTHS;
pub use snapshot_writer::write;
pub use writer::RecordingWriter;

/// The first eight bytes of every recording.
pub const MAGIC: [u8; 8] = *b"MEMTRACK";

/// The newest version that this build reads. It writes this version for a run of several processes.
pub const FORMAT_VERSION: u32 = 2;

/// The version of a recording of one process.
pub const PROCESS_VERSION: u32 = 1;
