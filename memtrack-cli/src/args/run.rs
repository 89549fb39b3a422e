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
  memtrack run --host -- ./train                     and its malloc memory
  memtrack run --host --mark-on train_step -- python3 train.py
                                                     with a mark at each call of train_step
  memtrack run --snapshot-on signal -- ./serve       a snapshot whenever this command is sent SIGUSR2
  memtrack run --exec -o /var/log/s.memtrack -- ./serve
                                                     under a service manager, which watches this process

The file is written while the program runs, by a process of this command: nothing is lost however the program ends.
It has all processes of the run: memtrack processes FILE lists them. Without --host, a program that takes no CUDA memory
leaves no file. For dynamically linked programs on Linux with glibc.
Exit codes: the program's own, or 128 + N if signal N ended it; 126 if it cannot be run or the output cannot be
written, 127 if it was not found, 2 wrong usage.")]
pub(crate) struct RunArgs {
    /// The recording to write [default: memtrack-PROGRAM-PID.memtrack, with the process id of this command]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the recording if it exists; a recording that another command is still writing is kept, and this one is FILE.PID
    #[arg(long)]
    pub(crate) force: bool,
    /// How many events per device snapshots hold, the newest ones; the recording holds all. An allocation of the driver
    /// is two events, its segment and a block in it, and so is its free
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    pub(crate) max_entries: u64,
    /// The maximum size of the recording, at least 1MiB: it continues in further files next to it, of which the oldest are removed; in
    /// bytes, or with KiB, MiB, GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) max_bytes: Option<u64>,
    /// Which stacks to keep
    #[arg(long, value_enum, default_value_t = Stacks::Alloc)]
    pub(crate) stacks: Stacks,
    /// Record the program's heap too, from its start: every block while that takes less than 3 % of its threads' time,
    /// otherwise a sample of the blocks below 64 KiB
    #[arg(long)]
    pub(crate) host: bool,
    /// Mark each call of this Python function, by the name of the function or as Class.FUNCTION (CPython 3.11 and newer) or
    /// FILE.py:FUNCTION, for `leaks --per FUNCTION`. Calls of a function memtrack_mark are marks named by its argument, without
    /// this option in CPython 3.12 and newer. Only functions of Python have such marks
    #[arg(long, value_name = "FUNCTION", value_delimiter = ',', value_parser = parse_function, requires = "host")]
    pub(crate) mark_on: Vec<String>,
    /// Record this many of the programs that PROGRAM starts in full. With --host, the sums of others are exact, but few of their
    /// small blocks are recorded; without it, others are only counted
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) max_processes: u64,
    /// Also write PyTorch snapshots, FILE.N.pickle, at these events. Of the snapshots at out of memory each process keeps
    /// the first and the newest seven, and as many of those at signals; move those to keep elsewhere. From the ninth on, those
    /// at out of memory take at most 2 % of the time
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHEN")]
    pub(crate) snapshot_on: Vec<SnapshotOn>,
    /// Write how the program ended, and where the recording is, as JSON to this file; `-` is standard error, because
    /// standard output belongs to the program
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Become the program instead of waiting for it, for service managers: the program has this command's process id, and another
    /// process reports when it has ended
    #[arg(long)]
    pub(crate) exec: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// Parses the name of a Python function: `FUNCTION`, `Class.FUNCTION`, or either of them after `FILE.py:`.
fn parse_function(text: &str) -> Result<String, String> {
    const MAX_BYTES: usize = 256;
    let function = text.rsplit_once(':').map_or(text, |(_, function)| function);
    let is_name = |part: &str| {
        let is_of_name = |character: char| character == '_' || character.is_alphanumeric();
        !part.is_empty() && part.chars().all(is_of_name)
    };
    let mut parts = function.split('.');
    if !parts.all(is_name) || text.starts_with(':') {
        return Err("it is not a Python function: FUNCTION, Class.FUNCTION or FILE.py:FUNCTION".to_owned());
    }
    if text.len() > MAX_BYTES {
        return Err(format!("it is longer than {MAX_BYTES} bytes"));
    }
    Ok(text.to_owned())
}

/// Which stacks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stacks {
    /// None
    None,
    /// Stacks of live blocks
    State,
    /// Stacks of allocations
    Alloc,
    /// Stacks of allocations and of frees
    All,
}

/// When a snapshot is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SnapshotOn {
    /// Memory ran out; the largest live allocations are printed too
    Oom,
    /// The program ends
    Exit,
    /// This command was sent SIGUSR2, and the program does not handle it
    Signal,
}
