//! Arguments of `memtrack run`.

use crate::sizes::parse_bytes;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Arguments of `memtrack run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack run -- python3 train.py                   record to memtrack-python3-PID.memtrack
  memtrack run -o train.memtrack -- ./train --epochs 3
  memtrack run --snapshot-on oom,exit -- ./train     and FILE.N.pickle for pytorch.org/memory_viz
  memtrack run --host -- ./train                     and what it takes from malloc
  memtrack run --snapshot-on signal -- ./serve       one each time it is sent SIGUSR2

The file is written while the program runs, so a killed program loses at most half a second; exec and _exit lose
nothing. Children write FILE.PID. Without --host, a program that takes no CUDA memory leaves no file. Linux with glibc,
dynamically linked programs.
Exit codes: the program's own, 128 + N if signal N ended it; 126 it cannot be run, or the output cannot be
written, 127 it was not found, 2 wrong usage.")]
pub(crate) struct RunArgs {
    /// The recording to write [default: memtrack-PROGRAM-PID.memtrack, with the process id of this command]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the recording if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// How many of memtrack's events snapshots hold per device, the newest (a driver's allocation is two, its segment
    /// and a block in it, and so is its free); the recording holds all
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    pub(crate) max_entries: u64,
    /// Most bytes of the recording: it goes on in new parts beside it, and the oldest go; bytes, or with KiB, MiB, GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) max_bytes: Option<u64>,
    /// Which stacks to keep
    #[arg(long, value_enum, default_value_t = Stacks::Alloc)]
    pub(crate) stacks: Stacks,
    /// Record the program's heap too, from its start: every block while that takes less than
    /// 3 % of its threads' time, else a sample of those below 64 KiB
    #[arg(long)]
    pub(crate) host: bool,
    /// How many of the programs that it starts are recorded; of the others it is said how many there were
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) max_processes: u64,
    /// Also write PyTorch snapshots, FILE.N.pickle, at these events. Of those at out of memory each process keeps the first
    /// and the newest seven; from the ninth on they take a fiftieth of the time at most
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHEN")]
    pub(crate) snapshot_on: Vec<SnapshotOn>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// Which stacks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stacks {
    /// None
    None,
    /// Those of live blocks
    State,
    /// Those of allocations
    Alloc,
    /// Those of allocations and of frees
    All,
}

/// When a snapshot is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SnapshotOn {
    /// Memory ran out; the largest live allocations are printed too
    Oom,
    /// The program ends
    Exit,
    /// The program was sent SIGUSR2
    Signal,
}
