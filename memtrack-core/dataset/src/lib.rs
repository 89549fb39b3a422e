//! A snapshot as Parquet files: a folder for each rank of a job, in which every table is a file. Engines that read Parquet
//! (DuckDB, Spark, DataFusion, Trino) take a thousand such folders for one data set. docs/PARQUET.md describes the tables.

mod allocations;
mod events;
mod stacks;
mod table;

pub use events::EVENTS;
pub use stacks::{FRAMES, STACKS};
pub use table::{Column, Kind, Table};

use memtrack_model::NameFrames;
use memtrack_model::snapshot::Snapshot;
use std::io::{self, Write};

/// Writes the events of a snapshot as one Parquet file, without their stacks: [`EVENTS`].
///
/// # Errors
/// When the output cannot be written.
pub fn write_events(snapshot: &Snapshot, output: &mut (dyn Write + Send)) -> io::Result<()> {
    events::write(snapshot, output, &[])
}

pub fn write_stacks(snapshot: &Snapshot, names: &mut dyn NameFrames, out: &mut (dyn Write + Send), out2: &mut (dyn Write + Send)) -> io::Result<()> {
    let mut stacks = stacks::Stacks::of(snapshot);
    stacks.mention_events();
    stacks.write(names, out, &[])?.write(out2, &[])
}
