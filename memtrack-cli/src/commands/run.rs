//! `memtrack run`: runs a program with the preload libraries, and reports the recordings.

use crate::Streams;
use crate::answers::{self, RecordingAnswer, RunAnswer};
use crate::args::RunArgs;
use crate::error::{CliError, Exit};
use crate::output::{check_targets, write_files};
use crate::run::census::Census;
use crate::run::holds::who_held;
use crate::run::wait::{self, ExitedProgram};
use crate::run::{inherited, library, program};
use clap::ValueEnum;
use memtrack_core::snapshot::recording::older_parts;
use memtrack_core::{
    __ReplacingFile as ReplacingFile, __is_unfinished as is_unfinished, __read_meta as read_meta,
    __run_protocol as protocol,
};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Runs the program after checks that prevent most failures, and reports where the recording is.
pub(crate) fn run(args: &RunArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let (name, arguments) = args.program.split_first().expect("clap requires a program");
    let path = program::find(name)?;
    program::check(&path)?;
    check_targets(args.json.as_deref().filter(|&target| target != Path::new("-")), args.force)?;
    let output = prepare_output(args, &path)?;
    let libraries = library::install_all(args.host)?;
    let census = Census::begin();
    let started = SystemTime::now();
    let mut command = Command::new(&path);
    command
        .args(arguments)
        .env("LD_PRELOAD", preload_list(&libraries))
        .env(protocol::OUTPUT, &output)
        .env(protocol::COMMAND_PID, std::process::id().to_string())
        .env(protocol::MAX_ENTRIES, args.max_entries.max(1).to_string())
        .env(protocol::STACKS, value_of(args.stacks))
        .env(
            protocol::SNAPSHOT_ON,
            args.snapshot_on.iter().map(|&when| value_of(when)).collect::<Vec<_>>().join(","),
        );
    if let Some(max_bytes) = args.max_bytes {
        command.env(protocol::MAX_BYTES, max_bytes.to_string());
    }
    if args.host {
        command.env(protocol::HOST, "1");
    }
    if let Some(census) = &census {
        command.env(protocol::PROCESSES, &census.folder);
        command.env(protocol::MAX_PROCESSES, args.max_processes.to_string());
    }
    // Like a shell: `argv[0]` is the name from the command line.
    std::os::unix::process::CommandExt::arg0(&mut command, name);
    inherited::pass_on(&mut command);
    let ended = wait::run(&mut command).map_err(|error| program::exec_error(name, &error))?;
    // The exit status is the program's, so a failure to write to standard error is ignored.
    let recorded = find_recordings(&output, started, ended.process);
    let _ = report_recordings(streams, name, args.host, &recorded, ended);
    let json_result = args.json.as_deref().map(|target| write_json(target, name, &recorded, ended, streams));
    if let Some(census) = census {
        let _ = census.report(streams, args, recorded.is_any());
    }
    if let Some(Err(error)) = json_result {
        // The program's own exit status takes precedence over a failed report.
        let _ = writeln!(streams.stderr, "memtrack: {error}");
    }
    Ok(Exit::Program(wait::code_of(ended.status)))
}

fn value_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Returns the value of `LD_PRELOAD`: memtrack's libraries, then those that are set already.
fn preload_list(libraries: &[PathBuf]) -> OsString {
    let others = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty());
    let paths = libraries.iter().map(|path| path.as_os_str().to_owned());
    paths.chain(others).collect::<Vec<_>>().join(OsStr::new(":"))
}

/// Returns the absolute path of the recording, after checking that it can be created, and removing a file to replace.
fn prepare_output(args: &RunArgs, program: &Path) -> Result<PathBuf, CliError> {
    let output = args.output.clone().unwrap_or_else(|| {
        let name = program.file_name().unwrap_or_else(|| OsStr::new("program"));
        let mut own = OsString::from("memtrack-");
        own.push(name);
        own.push(format!("-{}.memtrack", std::process::id()));
        own.into()
    });
    check_targets([output.as_path()], args.force)?;
    // The program is not run, so the exit code is the one that shells use for that.
    let refuse = |error: io::Error| {
        CliError::Program(program::CANNOT_RUN, format!("cannot write {}: {error}", output.display()))
    };
    let absolute = std::path::absolute(&output).map_err(refuse)?;
    remove_replaced(&absolute).map_err(refuse)?;
    // Tests whether the folder is writable with another file, since another process may create the recording itself.
    ReplacingFile::create(&absolute).map(drop).map_err(refuse)?;
    Ok(absolute)
}

/// Removes the file to replace, unless another process records into it: then the program's recorder chooses another
/// name.
fn remove_replaced(path: &Path) -> io::Result<()> {
    let Ok(data) = path.symlink_metadata() else { return Ok(()) };
    // No process records into a file that cannot be written. The file is locked until it is removed, so that no other
    // process starts to record into it.
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
    // An older part that cannot be removed only takes space.
    older_parts(path).iter().for_each(|part| drop(fs::remove_file(part)));
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The recordings that were written.
struct Recordings {
    /// The program's recording, if it allocated recorded memory.
    own: Option<PathBuf>,
    /// The recordings of programs that the process executed later.
    later: Vec<PathBuf>,
    /// The recordings of child processes.
    children: Vec<PathBuf>,
}

impl Recordings {
    /// Returns whether anything was recorded.
    fn is_any(&self) -> bool {
        self.own.is_some() || !self.later.is_empty() || !self.children.is_empty()
    }
}

/// Finds the recordings that were written since `started`.
fn find_recordings(output: &Path, started: SystemTime, process: u32) -> Recordings {
    let other_recordings = other_recordings(output, started);
    let own = format!("{}.{process}", output.to_string_lossy());
    let is_own = |path: &PathBuf| {
        let rest = path.to_string_lossy().strip_prefix(&own).map(str::to_owned);
        // The recordings of a process that executes several programs end with a count; those of children with a process id.
        let is_count = |rest: &str| {
            rest.strip_prefix('.').and_then(|count| count.parse().ok()).is_some_and(|count: u32| count < 1000)
        };
        rest.is_some_and(|rest| rest.is_empty() || is_count(&rest))
    };
    let (mut later, children): (Vec<PathBuf>, Vec<PathBuf>) = other_recordings.into_iter().partition(is_own);
    // If another process recorded to `output` first, the program's recording has the name of a later program's.
    let is_anothers = || {
        let by = File::open(output).ok().and_then(|file| read_meta(BufReader::new(file)));
        by.is_some_and(|by| by.pid != process)
    };
    let own = match output.exists() {
        true if is_anothers() => (!later.is_empty()).then(|| later.remove(0)),
        is_there => is_there.then(|| output.to_owned()),
    };
    Recordings { own, later, children }
}

/// Writes the program's exit status and the list of recordings as JSON to `target`.
fn write_json(
    target: &Path,
    name: &OsStr,
    recorded: &Recordings,
    ended: ExitedProgram,
    streams: &mut Streams<'_>,
) -> Result<(), CliError> {
    let file = |path: &Path| RecordingAnswer {
        path: path.to_string_lossy().into_owned(),
        size_bytes: path.metadata().ok().map(|data| data.len()),
    };
    let all = |paths: &[PathBuf]| paths.iter().map(|path| file(path)).collect();
    let answer = RunAnswer {
        program: name.to_string_lossy().into_owned(),
        process: ended.process,
        exit_code: ended.status.code(),
        signal: ended.status.signal(),
        recording: recorded.own.as_deref().map(file),
        became: all(&recorded.later),
        children: all(&recorded.children),
    };
    let mut content = Vec::new();
    answers::RUN.write(&answer, &mut content)?;
    if target == Path::new("-") {
        // The exit status is the program's, so a failure to write to standard error is ignored.
        let _ = streams.stderr.write_all(&content);
        return Ok(());
    }
    write_files(&[(target.to_owned(), content)])
}

/// Reports the recordings.
fn report_recordings(
    streams: &mut Streams<'_>,
    name: &OsStr,
    host: bool,
    recorded: &Recordings,
    ended: ExitedProgram,
) -> io::Result<()> {
    let Recordings { own, later, children } = recorded;
    let stderr = &mut streams.stderr;
    // The holders of memory come first, from one recording: that of the last program that the process executed, else the
    // program's, else that of the first child.
    let own_file = later.last().or(own.as_ref()).map(PathBuf::as_path);
    if let Some(file) = own_file.or(children.first().map(PathBuf::as_path))
        && let Some(held) = who_held(file, own_file.is_some() && ended.status.signal().is_some())
    {
        stderr.write_all(held.as_bytes())?;
    }
    if let Some(output) = own {
        // A killed program cannot write its remaining events.
        let cut = match ended.status.signal().filter(|_| later.is_empty()) {
            Some(signal) => format!(
                "; the last half second before signal {signal} ended it may be missing, and more if the machine was \
                 overloaded"
            ),
            None => String::new(),
        };
        writeln!(stderr, "memtrack: recorded {}{cut}", output.display())?;
    }
    match later[..] {
        [] => {}
        [ref one] => writeln!(stderr, "memtrack: after exec: recorded {}", one.display())?,
        [ref first, ..] => {
            let (count, first) = (later.len(), first.display());
            writeln!(
                stderr,
                "memtrack: after exec: {count} programs recorded {first} and others next to it"
            )?;
        }
    }
    match children[..] {
        [] if own.is_some() || !later.is_empty() => Ok(()),
        [] => {
            let (name, more) = (name.to_string_lossy(), if host { "" } else { "; --host records its heap" });
            writeln!(stderr, "memtrack: saw no CUDA allocation by {name}, so nothing was written{more}")
        }
        [ref one] => {
            writeln!(stderr, "memtrack: a child process recorded {}", one.display())?;
            report_cut_children(stderr, children)
        }
        [ref first, ..] => {
            let count = children.len();
            writeln!(
                stderr,
                "memtrack: {count} child processes recorded {} and others next to it",
                first.display()
            )?;
            report_cut_children(stderr, children)
        }
    }
}

/// Reports which recordings of children are incomplete: most of those children were killed.
fn report_cut_children(stderr: &mut dyn io::Write, children: &[PathBuf]) -> io::Result<()> {
    let is_cut =
        |path: &&PathBuf| File::open(path).and_then(|mut file| is_unfinished(&mut file)).unwrap_or(true);
    let cut: Vec<&PathBuf> = children.iter().filter(is_cut).collect();
    match cut[..] {
        [] => Ok(()),
        [one] => writeln!(
            stderr,
            "memtrack: {} is incomplete (a signal, _exit or exec ended its process): the process held at \
             least what is recorded",
            one.display()
        ),
        [first, ..] => writeln!(
            stderr,
            "memtrack: {} of them are incomplete (a signal, _exit or exec ended their processes), as {}: \
             the processes held at least what is recorded",
            cut.len(),
            first.display()
        ),
    }
}

/// Returns the recordings of child processes, and of programs that a process executed later. Their names are the
/// output's name and a process id.
fn other_recordings(output: &Path, started: SystemTime) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (output.parent(), output.file_name()) else { return Vec::new() };
    let prefix = format!("{}.", name.to_string_lossy());
    let is_child = |path: &PathBuf| {
        let own = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let numbers = own.strip_prefix(&prefix);
        let is_of_process =
            numbers.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
        let is_new = path.metadata().and_then(|data| data.modified()).is_ok_and(|time| time >= started);
        is_of_process && is_new
    };
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut children: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_child).collect();
    children.sort();
    children
}
