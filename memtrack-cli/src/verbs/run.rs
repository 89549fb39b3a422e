//! `memtrack run`: runs a program with the preload libraries, and reports the recordings.

use super::prelude::*;
use crate::run::collector::{self, Job};
use crate::run::exec::{Watcher, become_program};
use crate::run::{inherited, library, program, wait};
use memtrack_core::__run_protocol as protocol;
use memtrack_core::recorder::Options;
use memtrack_core::snapshot::recording::older_parts;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Record any program, unchanged: the CUDA memory it allocates, and with --host its heap, which needs no GPU
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
    /// Record every block of the heap, however small and at any cost: a few hundred nanoseconds each
    #[arg(long, requires = "host")]
    pub(crate) exact: bool,
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

pub(crate) const ANSWER: Answer<RunAnswer> = Answer::new("run", 2);

/// The exit status of a program, and the recording of its process and its child processes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunAnswer {
    /// The program's name.
    pub(crate) program: String,
    /// The id of the program's process.
    pub(crate) process: u32,
    /// The exit code; null if a signal ended the process, or if it is not known (`--exec` before Linux 6.15).
    pub(crate) exit_code: Option<i32>,
    /// The signal that ended the process; null if it exited.
    pub(crate) signal: Option<i32>,
    /// The recording; null if nothing was recorded.
    pub(crate) recording: Option<RecordingAnswer>,
    /// The number of recorded processes, which `memtrack processes` lists.
    pub(crate) processes: usize,
    /// The id of the process that reports describe by default; null if nothing was recorded.
    pub(crate) main_process: Option<u32>,
}

/// A recording.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RecordingAnswer {
    /// The recording's path.
    pub(crate) path: String,
    /// The recording's size in bytes; null if the file no longer exists.
    pub(crate) size_bytes: Option<u64>,
}

/// The smallest value that `--max-bytes` accepts.
const MIN_MAX_BYTES: u64 = 1 << 20;

/// The maximum number of functions for `--mark-on`.
const MAX_MARK_ON: usize = 32;

/// Runs the program after checks that prevent most failures, and reports where the recording is.
pub(super) fn run(args: &RunArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let (name, arguments) = args.program.split_first().expect("clap requires a program");
    if args.exec && args.snapshot_on.contains(&SnapshotOn::Signal) {
        let why = "--exec leaves no command to which SIGUSR2 could be sent, so --snapshot-on signal cannot work with it";
        return Err(CliError::Usage(why.to_owned()));
    }
    if args.mark_on.len() > MAX_MARK_ON {
        return Err(CliError::Usage(format!("--mark-on: at most {MAX_MARK_ON} functions")));
    }
    if args.max_bytes.is_some_and(|bytes| bytes < MIN_MAX_BYTES) {
        return Err(CliError::Usage("--max-bytes: at least 1MiB".to_owned()));
    }
    let path = program::find(name)?;
    program::check(&path)?;
    check_targets(args.json.as_deref().filter(|&target| target != Path::new("-")), args.force)?;
    let (output, folder) = prepare_output(args, &path)?;
    let sanitizer = program::sanitizer(&path);
    let libraries = if sanitizer.is_none() { library::install_all(args.host)? } else { Vec::new() };
    let job =
        Job { args: args.clone(), name: name.clone(), output, folder, sanitizer, options: options(args)? };
    let no_memory = |error| CliError::Program(program::CANNOT_RUN, format!("cannot record: {error}"));
    let mut command = Command::new(&path);
    command.args(arguments);
    // Like a shell: `argv[0]` is the name from the command line.
    std::os::unix::process::CommandExt::arg0(&mut command, name);
    inherited::pass_on(&mut command);
    let set_environment = |command: &mut Command, memory: &Path| {
        if libraries.is_empty() {
            return;
        }
        command
            .env("LD_PRELOAD", preload_list(&libraries))
            .env(protocol::MEMORY, memory)
            .env(protocol::STACKS, value_of(args.stacks));
        if args.host {
            command.env(protocol::HOST, if args.exact { protocol::EXACT } else { "1" });
        }
        if args.mark_on.is_empty() {
            command.env_remove(protocol::MARK_ON);
        } else {
            command.env(protocol::MARK_ON, args.mark_on.join(","));
        }
    };
    if args.exec {
        let watcher =
            Watcher::start(&job, |json, streams| report_json(args, json, streams)).map_err(no_memory)?;
        set_environment(&mut command, &watcher.memory);
        let error = become_program(&command, name);
        watcher.program_failed();
        return Err(program::exec_error(name, &error));
    }
    let mut collector = collector::start(&job, std::process::id()).map_err(no_memory)?;
    set_environment(&mut command, &collector.memory);
    let takes_snapshots = args.snapshot_on.contains(&SnapshotOn::Signal);
    let ended = wait::run(&mut command, &mut collector, takes_snapshots, streams)
        .map_err(|error| program::exec_error(name, &error))?;
    match collector.end(ended.process, Some(ended.status), streams) {
        Some(json) => report_json(args, json, streams),
        None => {
            streams.note(format_args!("memtrack: the collector has failed, so the recording has no end"));
        }
    }
    Ok(Exit::Program(wait::code_of(ended.status)))
}

/// Writes the answer to the target of `--json`, if there is one.
fn report_json(args: &RunArgs, json: Vec<u8>, streams: &mut Streams<'_>) {
    if let Some(target) = args.json.as_deref()
        && let Err(error) = write_json(target, json, streams)
    {
        // The program's own exit status takes precedence over a failed report.
        streams.note(format_args!("memtrack: {error}"));
    }
}

/// Returns the options with which the programs record.
fn options(args: &RunArgs) -> Result<Options, CliError> {
    let context = value_of(args.stacks).parse().map_err(|error| CliError::Usage(format!("{error}")))?;
    let options = Options::new().context(context).max_entries(args.max_entries.max(1));
    let mut options = args.max_bytes.map_or(options.clone(), |max_bytes| options.max_bytes(max_bytes));
    if args.exact {
        options = options.exact();
    }
    options.host_heap = args.host;
    Ok(options)
}

/// Writes the answer to `target`.
fn write_json(target: &Path, content: Vec<u8>, streams: &mut Streams<'_>) -> Result<(), CliError> {
    if target == Path::new("-") {
        // The exit status is the program's, so a failure to write to standard error is ignored.
        let _ = streams.stderr.write_all(&content);
        return Ok(());
    }
    write_files(&[(target.to_owned(), content)])
}

fn value_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Returns the value of `LD_PRELOAD`: memtrack's libraries, then the libraries that are already listed.
fn preload_list(libraries: &[PathBuf]) -> OsString {
    let others = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty());
    let paths = libraries.iter().map(|path| path.as_os_str().to_owned());
    paths.chain(others).collect::<Vec<_>>().join(OsStr::new(":"))
}

/// Checks that the recording can be created, removes a file that it replaces, and returns its absolute path. If the user has
/// not named the file, it is written in a temporary folder, because the program might be reading the files in its current
/// folder. The second returned path is the folder to which the recording is moved when the program has ended, or `None` if it
/// stays.
fn prepare_output(args: &RunArgs, program: &Path) -> Result<(PathBuf, Option<PathBuf>), CliError> {
    let output = args.output.clone().unwrap_or_else(|| {
        let name = program.file_name().unwrap_or_else(|| OsStr::new("program"));
        let mut own = OsString::from("memtrack-");
        own.push(name);
        own.push(format!("-{}.memtrack", std::process::id()));
        own.into()
    });
    check_targets([output.as_path()], args.force)?;
    // The program is not run, so the exit code is the one that shells use for a program that cannot be executed.
    let refuse = |error: io::Error| {
        CliError::Program(program::CANNOT_RUN, format!("cannot write {}: {error}", output.display()))
    };
    let absolute = std::path::absolute(&output).map_err(refuse)?;
    remove_replaced(&absolute).map_err(refuse)?;
    // Test with another file whether the folder is writable, because another process might create the recording itself.
    ReplacingFile::create(&absolute).map(drop).map_err(refuse)?;
    let (Some(folder), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok((absolute, None));
    };
    if args.output.is_some() {
        return Ok((absolute, None));
    }
    let temporary = std::env::temp_dir().join(format!("memtrack-run-{}", std::process::id()));
    match std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700).create(&temporary) {
        Ok(()) => Ok((temporary.join(name), Some(folder.to_owned()))),
        // Without a temporary folder, the recording grows in the user's folder.
        Err(_) => Ok((absolute, None)),
    }
}

/// Removes the file to replace, unless another process is recording into it. In that case the program's recorder
/// chooses another name.
fn remove_replaced(path: &Path) -> io::Result<()> {
    let Ok(data) = path.symlink_metadata() else { return Ok(()) };
    // A dangling link is replaced, like a link to a file.
    if fs::metadata(path).is_ok_and(|target| !target.is_file()) {
        return Err(io::Error::other("it is not a regular file, and no other is replaced"));
    }
    // If the file cannot be opened for writing, no process can be recording into it. Otherwise, the file is locked until it is
    // removed, so that no other process starts to record into it.
    let file = data.is_file().then(|| File::options().write(true).open(path).ok()).flatten();
    if let Some(file) = &file {
        let identity = |data: &fs::Metadata| (data.dev(), data.ino());
        let is_locked = fcntl_lock(file, FlockOperation::NonBlockingLockExclusive);
        let is_in_use = is_locked.is_err_and(|error| error == Errno::AGAIN || error == Errno::ACCESS);
        let is_there = path
            .symlink_metadata()
            .is_ok_and(|now| file.metadata().is_ok_and(|locked| identity(&locked) == identity(&now)));
        if is_in_use || !is_there {
            return Ok(());
        }
    }
    // An older part that cannot be removed does no harm beyond the space that it takes.
    older_parts(path).iter().for_each(|part| drop(fs::remove_file(part)));
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
