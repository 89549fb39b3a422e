//! Writes snapshots as Parquet files. Each rank of a job has a folder, and each table is a file in that folder. Engines
//! that read Parquet (DuckDB, Spark, DataFusion, Trino) can read a thousand such folders as one data set. docs/RANKS.md
//! in the repository describes the tables.
//!
//! [`write_rank`] writes a rank, and [`rank_contents`] returns the current contents of a rank's folder.
//! [`write_events`] writes only the events.
//!
//! The modules:
//!
//! - `table` declares and writes columns. `digest`, `live`, `stacks` and `events` contain the tables.
//! - `place` manages a rank's folder, which is replaced atomically.

mod digest;
mod events;
mod live;
mod place;
mod stacks;
mod table;

pub use digest::{DATASET_VERSION, DEVICES, GROUPS, OUT_OF_MEMORY, RUNS, STEPS, TIMELINE};
pub use events::{EVENTS, EVENTS_WITH_LINES, EventLine};
pub use live::LIVE;
pub use place::{RankContents, WriteError, rank_contents, rank_folder};
pub use stacks::{FRAMES, STACKS};
pub use table::{Column, Kind, Table};

use memtrack_model::NameFrames;
use memtrack_model::event::{DeviceId, StackId};
use memtrack_model::snapshot::Snapshot;
use memtrack_report::ranks::RankDigest;
use place::Staging;
use stacks::Stacks;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// All tables of a rank, in the order in which they are written. [`RUNS`], which identifies the rank, comes last.
pub static TABLES: [&Table; 10] =
    [&DEVICES, &TIMELINE, &GROUPS, &STEPS, &OUT_OF_MEMORY, &LIVE, &STACKS, &FRAMES, &EVENTS, &RUNS];

/// The result of [`write_rank`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenRank {
    /// The rank's folder.
    pub folder: PathBuf,
    /// Whether the new rank replaced earlier contents of the folder.
    pub replaced: bool,
    /// The total size of the rank's files in bytes.
    pub size_bytes: u64,
}

/// The options for [`write_rank`]. By default, events are omitted, and an existing rank is replaced only if it was made
/// from the same file.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    events: bool,
    force: bool,
}

impl WriteOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the events are written. If they are not, the events table has no rows.
    pub fn events(mut self, events: bool) -> Self {
        self.events = events;
        self
    }

    /// Sets whether existing contents of the rank's folder are replaced, regardless of what they are.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }
}

/// Writes a rank of a job into the data set in folder `dataset`, which is created if it is missing. One file is written
/// for each of [`TABLES`], in the folder [`rank_folder`]. That folder is replaced atomically, with all its earlier
/// contents.
///
/// `snapshot` must be [in chronological order](Snapshot::order_by_time), and `digest` must be its digest.
///
/// # Errors
/// Fails if the existing contents [must not be replaced](RankContents::refusal), even if another writer put them there
/// during the call, or if a file cannot be written or the folder cannot be moved to its place. In that case, the
/// earlier contents remain unchanged.
pub fn write_rank(
    dataset: &Path,
    job: &str,
    rank: u64,
    snapshot: &Snapshot,
    digest: &RankDigest,
    names: &mut dyn NameFrames,
    options: WriteOptions,
) -> Result<WrittenRank, WriteError> {
    let staging = Staging::begin(dataset, job, rank)?;
    let facts = [
        ("source", digest.file.clone()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("dataset", DATASET_VERSION.to_string()),
    ];
    let create = |table: &Table| staging.create(&table.file_name());
    let mut stacks = Stacks::of(snapshot);
    live::build_table(snapshot, &mut stacks).write(create(&LIVE)?, &facts)?;
    if options.events {
        stacks.mark_events_used();
        events::write(snapshot, create(&EVENTS)?, &facts)?;
    } else {
        table::Rows::of(&EVENTS).write(create(&EVENTS)?, &facts)?;
    }
    stacks.write(names, create(&STACKS)?, &facts)?.write(create(&FRAMES)?, &facts)?;
    for (table, rows) in digest::build_tables(digest, options.events).into_iter().rev() {
        rows.write(create(table)?, &facts)?;
    }
    let size_bytes = staging.size_bytes()?;
    let refused = |there: &RankContents| there.refusal(&digest.file).filter(|_| !options.force);
    let replaced = staging.commit(refused)?;
    Ok(WrittenRank { folder: rank_folder(dataset, job, rank), replaced, size_bytes })
}

/// Writes the events of some devices as one Parquet file, [`EVENTS_WITH_LINES`]. The file contains stacks only as
/// numbers. `line` is called once for each stack and returns the line in the user's code.
///
/// `snapshot` must be [in chronological order](Snapshot::order_by_time).
///
/// # Errors
/// Fails if the output cannot be written.
pub fn write_events(
    snapshot: &Snapshot,
    devices: &[DeviceId],
    line: &mut dyn FnMut(StackId) -> EventLine,
    output: impl Write,
) -> io::Result<()> {
    events::write_with_lines(snapshot, devices, line, output)
}
