//! `memtrack run`: runs a program with the preload libraries, and reports the recordings.

use crate::Streams;
use crate::args::{RunArgs, SnapshotOn};
use crate::error::{CliError, Exit};
use crate::output::{check_targets, write_files};
use crate::run::collector::{self, Job};
use crate::run::exec::{Watcher, become_program};
use crate::run::wait;
use crate::run::{inherited, library, program};
use clap::ValueEnum;
use memtrack_core::recorder::Options;
use memtrack_core::snapshot::recording::older_parts;
use memtrack_core::{__ReplacingFile as ReplacingFile, __run_protocol as protocol};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The smallest value that `--max-bytes` accepts.
const MIN_MAX_BYTES: u64 = 1 << 20;

/// The maximum number of functions for `--mark-on`.
const MAX_MARK_ON: usize = 32;

/// Runs the program after checks that prevent most failures, and reports where the recording is.
pub(crate) fn run(args: &RunArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
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
            command.env(protocol::HOST, "1");
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
            let _ =
                writeln!(streams.stderr, "memtrack: the collector has failed, so the recording has no end");
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
        let _ = writeln!(streams.stderr, "memtrack: {error}");
    }
}

/// Returns the options with which the programs record.
fn options(args: &RunArgs) -> Result<Options, CliError> {
    let context = value_of(args.stacks).parse().map_err(|error| CliError::Usage(format!("{error}")))?;
    let options = Options::new().context(context).max_entries(args.max_entries.max(1));
    let mut options = args.max_bytes.map_or(options.clone(), |max_bytes| options.max_bytes(max_bytes));
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
