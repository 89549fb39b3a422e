//! The report at the end of a run: where the recording is, and which programs were not recorded.

use super::collector::Job;
use super::holds::who_held;
use crate::verbs::run::{ANSWER, RecordingAnswer, RunAnswer};
use memtrack_core::__ReplacingFile as ReplacingFile;
use memtrack_core::__collector::Collector;
use memtrack_core::analysis::units::{counted, printable};
use memtrack_core::snapshot::recording::older_parts;
use memtrack_core::snapshot::{ProcessEnd, ProcessRow, Unrecorded, main_process};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::{fs, io};

/// The maximum number of characters of a command line in a message.
const MAX_COMMAND: usize = 60;

/// How the program ended.
pub(super) struct Outcome<'a> {
    pub(super) process: u32,
    /// The program's exit status; `None` if it is not known.
    pub(super) status: Option<ExitStatus>,
    pub(super) job: &'a Job,
}

/// The state of the recording when the program ended.
pub(super) struct Found {
    /// The recording; `None` if nothing was recorded.
    recording: Option<PathBuf>,
    /// A message about the recording, if it could not be ended or moved.
    note: Option<String>,
    rows: Vec<ProcessRow>,
    /// The number of programs that were started beyond the limit `--max-processes`. With `--host`, these are recorded with the
    /// smallest budget.
    beyond_limit: u64,
    unrecorded: Unrecorded,
    /// The functions of `--mark-on` that were not called.
    uncalled: Vec<String>,
}

impl Found {
    /// Returns what the collector has recorded. The recording's path and the note come from [`end_recording`].
    pub(super) fn by(collector: &Collector, (recording, note): (Option<PathBuf>, Option<String>)) -> Self {
        Self {
            recording,
            note,
            rows: collector.rows().to_vec(),
            beyond_limit: collector.programs_beyond_limit(),
            unrecorded: collector.unrecorded(),
            uncalled: collector.uncalled().map(str::to_owned).collect(),
        }
    }

    /// Returns the number of recorded processes that are still running.
    fn running(&self) -> usize {
        self.rows.iter().filter(|row| row.end == ProcessEnd::Running).count()
    }
}

/// Ends the recording and moves it to its folder, unless a recorded process is still running. Returns the recording's path, and
/// a message if the recording could not be ended or moved.
pub(super) fn end_recording(collector: &mut Collector, job: &Job) -> (Option<PathBuf>, Option<String>) {
    let path = collector.recording().map(Path::to_owned);
    if collector.has_processes() {
        return (path, None);
    }
    let ended = collector.finish().err().map(|error| format!("the recording cannot be ended: {error}"));
    let Some(folder) = &job.folder else { return (path, ended) };
    let moved = path.map(|path| move_to(&path, folder));
    // Remove the temporary folder. If it contains anything else, this fails and the folder stays.
    let _ = job.output.parent().map(fs::remove_dir);
    match moved {
        Some((path, note)) => (Some(path), ended.or(note)),
        None => (None, ended),
    }
}

/// Moves a recording, and its older parts, to a folder. Files that cannot be moved stay; the returned message names
/// one.
fn move_to(path: &Path, folder: &Path) -> (PathBuf, Option<String>) {
    let mut note = None;
    let mut place = path.to_owned();
    for file in older_parts(path).iter().map(PathBuf::as_path).chain([path]) {
        let Some(name) = file.file_name() else { continue };
        let target = folder.join(name);
        match move_file(file, &target) {
            Ok(()) if file == path => place = target,
            Ok(()) => {}
            Err(error) => {
                note = Some(format!("{} cannot be moved to {}: {error}", file.display(), folder.display()))
            }
        }
    }
    (place, note)
}

fn move_file(from: &Path, to: &Path) -> io::Result<()> {
    if to.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let mut file = ReplacingFile::create(to)?;
            io::copy(&mut fs::File::open(from)?, &mut file)?;
            file.commit()?;
            fs::remove_file(from)
        }
        renamed => renamed,
    }
}

/// Returns a text about what held the program's memory. The text is empty if nothing is known about that.
pub(super) fn holders_text(rows: &[ProcessRow], recording: &Path, outcome: &Outcome<'_>) -> String {
    let Some(row) = main_row(rows) else { return String::new() };
    let was_killed =
        row.pid == outcome.process && outcome.status.and_then(|status| status.signal()).is_some();
    let shown = match (&outcome.job.folder, recording.file_name()) {
        (Some(folder), Some(name)) => &folder.join(name),
        _ => recording,
    };
    who_held(recording, shown, row.number, was_killed).unwrap_or_default()
}

/// Returns the row of the process that reports are about by default.
fn main_row(rows: &[ProcessRow]) -> Option<&ProcessRow> {
    let main = main_process(rows)?;
    rows.iter().find(|row| row.number == main)
}

/// Returns the report as text, and as JSON.
pub(super) fn report(found: &Found, outcome: &Outcome<'_>) -> (String, Vec<u8>) {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut text, found, outcome);
    let _ = write_unrecorded(&mut text, found, outcome);
    for function in &found.uncalled {
        let _ = writeln!(
            text,
            "memtrack: --mark-on {function}: no call of a Python function of that name was noticed"
        );
    }
    (text, json(found, outcome))
}

fn write_text(text: &mut String, found: &Found, outcome: &Outcome<'_>) -> std::fmt::Result {
    let name = outcome.job.name.to_string_lossy();
    match (&found.recording, main_row(&found.rows)) {
        (Some(path), Some(main)) => {
            let path = path.display();
            let processes: BTreeSet<u32> = found.rows.iter().map(|row| row.pid).collect();
            match (processes.len() - 1, found.rows.len()) {
                (0, 1) => writeln!(text, "memtrack: recorded {path}")?,
                (others, _) => {
                    let command: String =
                        printable(&main.short_command_line()).chars().take(MAX_COMMAND).collect();
                    let others = match others {
                        0 => "what it was before",
                        1 => "1 other process",
                        _ => &format!("{others} other processes"),
                    };
                    writeln!(
                        text,
                        "memtrack: recorded {path}: process {}, {command}, and {others}; memtrack processes {path} lists them",
                        main.pid
                    )?;
                }
            }
        }
        _ if outcome.job.sanitizer.is_some() => writeln!(
            text,
            "memtrack: {name} was not recorded: it is built with {}, whose runtime replaces the heap's functions itself",
            outcome.job.sanitizer.unwrap_or_default()
        )?,
        _ => {
            let (what, more) = match outcome.job.args.host {
                true => ("allocation", ""),
                false => ("CUDA allocation", "; --host records its heap"),
            };
            writeln!(text, "memtrack: saw no {what} by {name}, so nothing was written{more}")?;
        }
    }
    if let Some(note) = &found.note {
        writeln!(text, "memtrack: {note}")?;
    }
    let moves = match &outcome.job.folder {
        Some(folder) => format!("; at the end it is moved to {}", folder.display()),
        None => String::new(),
    };
    match found.running() {
        0 => Ok(()),
        1 => writeln!(text, "memtrack: a recorded process still runs, and the recording goes on{moves}"),
        more => {
            writeln!(text, "memtrack: {more} recorded processes still run, and the recording goes on{moves}")
        }
    }
}

/// Writes which programs were not recorded.
fn write_unrecorded(text: &mut String, found: &Found, outcome: &Outcome<'_>) -> std::fmt::Result {
    let args = &outcome.job.args;
    let most = args.max_processes;
    let Unrecorded { forks, without_memory, in_other_namespaces, without_room, .. } = found.unrecorded;
    if forks > 0 {
        let forks = if forks == 1 {
            "1 forked process is".to_owned()
        } else {
            format!("{forks} forked processes are")
        };
        writeln!(text, "memtrack: {forks} not recorded: --max-processes is {most}")?;
    }
    match found.beyond_limit {
        0 => {}
        more if args.host => {
            let programs = counted(more, "program");
            writeln!(
                text,
                "memtrack: {programs} beyond --max-processes ({most}): sums are exact, but few small blocks are recorded"
            )?;
        }
        1 => writeln!(
            text,
            "memtrack: it started 1 more program, which is not recorded: --max-processes is {most}"
        )?,
        more => {
            writeln!(
                text,
                "memtrack: it started {more} more programs, which are not recorded: --max-processes is {most}"
            )?;
        }
    }
    write_processes(
        text,
        without_memory,
        ["no memory was ready for its events", "no memory was ready for their events"],
    )?;
    let why = ["it is in another namespace of process ids", "they are in another namespace of process ids"];
    write_processes(text, in_other_namespaces, why)?;
    if without_room > 0 {
        let processes = if without_room == 1 { "process is" } else { "processes are" };
        writeln!(
            text,
            "memtrack: {} {processes} not recorded: the recording has no room for more",
            without_room
        )?;
    }
    // The driver's library needs glibc, so programs into which nothing can be preloaded have allocated no device
    // memory and are reported only with `--host`. Programs without memtrack's environment might have allocated some, and
    // are also reported if nothing was recorded. Otherwise, they are mostly tools that a library runs to query the system.
    if args.host {
        let why = "into which no library can be preloaded: statically linked, using a C library other \
                   than glibc, built for another kind of processor, setuid, or limited to less than 256 MiB of \
                   addresses";
        write_times(text, found.unrecorded.not_preloadable, why)?;
    }
    if args.host || found.recording.is_none() {
        let why = "because its environment was replaced by one without memtrack's LD_PRELOAD or MEMTRACK_RUN_MEMORY";
        write_times(text, found.unrecorded.without_library, why)?;
    }
    Ok(())
}

/// Writes that `count` processes are not recorded, with the reason in the singular or plural.
fn write_processes(text: &mut String, count: u64, [why_one, why_many]: [&str; 2]) -> std::fmt::Result {
    match count {
        0 => Ok(()),
        1 => writeln!(text, "memtrack: a process is not recorded, because {why_one}"),
        more => writeln!(text, "memtrack: {more} processes are not recorded, because {why_many}"),
    }
}

fn write_times(text: &mut String, count: u64, why: &str) -> std::fmt::Result {
    match count {
        0 => Ok(()),
        1 => writeln!(text, "memtrack: it started a program that is not recorded, {why}"),
        count => writeln!(text, "memtrack: it started {count} programs that are not recorded, {why}"),
    }
}

fn json(found: &Found, outcome: &Outcome<'_>) -> Vec<u8> {
    let file = |path: &PathBuf| RecordingAnswer {
        path: path.to_string_lossy().into_owned(),
        size_bytes: path.metadata().ok().map(|data| data.len()),
    };
    let answer = RunAnswer {
        program: outcome.job.name.to_string_lossy().into_owned(),
        process: outcome.process,
        exit_code: outcome.status.and_then(|status| status.code()),
        signal: outcome.status.and_then(|status| status.signal()),
        recording: found.recording.as_ref().map(file),
        processes: found.rows.iter().map(|row| row.pid).collect::<BTreeSet<_>>().len(),
        main_process: main_row(&found.rows).map(|row| row.pid),
    };
    let mut content = Vec::new();
    // Writing to memory cannot fail.
    let _ = ANSWER.write(&answer, &mut content);
    content
}
