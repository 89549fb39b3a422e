//! The report at the end of a run: where the recordings are, and which programs were not recorded.

use super::collector::Job;
use super::holds::who_held;
use crate::answers::{self, RecordingAnswer, RunAnswer};
use memtrack_core::__ReplacingFile as ReplacingFile;
use memtrack_core::__collector::{Collector, Recorded};
use memtrack_core::snapshot::recording::older_parts;
use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::{fs, io};

/// How the program ended.
pub(super) struct Outcome<'a> {
    pub(super) process: u32,
    pub(super) status: ExitStatus,
    pub(super) job: &'a Job,
}

/// What was recorded when the program ended.
pub(super) struct Found {
    recorded: Vec<Recorded>,
    /// Whether any recorded process still runs.
    is_growing: bool,
    /// How many programs and forked processes were beyond the limits.
    beyond_limits: [u64; 2],
    /// How many processes were not recorded because no memory was ready for them.
    without_memory: u64,
    /// How many programs cannot be preloaded, and how many lack the environment.
    unrecorded: [u64; 2],
}

impl Found {
    pub(super) fn by(collector: &Collector) -> Self {
        Self {
            recorded: collector.recordings(),
            is_growing: collector.has_processes(),
            beyond_limits: collector.beyond_limits(),
            without_memory: collector.without_memory(),
            unrecorded: collector.unrecorded_programs(),
        }
    }
}

/// Removes the folder in which recordings grow, if nothing is left there.
pub(super) fn remove_empty_folder(job: &Job) {
    if job.folder.is_some() {
        let _ = job.output.parent().map(fs::remove_dir);
    }
}

/// The recordings of a run.
struct Recordings {
    /// The program's, if it allocated recorded memory.
    own: Option<PathBuf>,
    /// Those of programs that the process executed later.
    later: Vec<PathBuf>,
    /// Those of child processes.
    children: Vec<PathBuf>,
    /// The number of recorded processes that still run.
    running: usize,
}

impl Recordings {
    fn of(found: &Found, job: &Job) -> Self {
        let mut all = found.recorded.clone();
        if let Some(folder) = &job.folder {
            all.iter_mut()
                .filter(|recorded| recorded.has_ended)
                .for_each(|recorded| move_to(recorded, folder));
            if !found.is_growing {
                remove_empty_folder(job);
            }
        }
        all.sort_by_key(|recorded| recorded.begun);
        let running = all.iter().filter(|recorded| !recorded.has_ended && recorded.path.is_some()).count();
        let (own, children): (Vec<Recorded>, Vec<Recorded>) =
            all.into_iter().partition(|recorded| recorded.is_program);
        let paths = |all: Vec<Recorded>| -> Vec<PathBuf> {
            all.into_iter().filter_map(|recorded| recorded.path).collect()
        };
        let mut own = paths(own).into_iter();
        Self { own: own.next(), later: own.collect(), children: paths(children), running }
    }

    fn is_any(&self) -> bool {
        self.own.is_some() || !self.children.is_empty()
    }
}

/// Moves a recording, and its older parts, to a folder. What cannot be moved stays.
fn move_to(recorded: &mut Recorded, folder: &Path) {
    let Some(path) = recorded.path.clone() else { return };
    for part in older_parts(&path) {
        if let Some(name) = part.file_name() {
            let _ = move_file(&part, &folder.join(name));
        }
    }
    let Some(name) = path.file_name() else { return };
    let target = folder.join(name);
    if move_file(&path, &target).is_ok() {
        recorded.path = Some(target);
    }
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

/// Returns the report as text, and as JSON.
pub(super) fn report(found: &Found, outcome: &Outcome<'_>) -> (String, Vec<u8>) {
    let recordings = Recordings::of(found, outcome.job);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut text, &recordings, outcome);
    let _ = write_unrecorded(&mut text, found, &recordings, outcome);
    (text, json(&recordings, outcome))
}

fn write_text(text: &mut String, recordings: &Recordings, outcome: &Outcome<'_>) -> std::fmt::Result {
    let Recordings { own, later, children, running } = recordings;
    // The holders of memory come first, from one recording: that of the last program that the process executed, else the
    // program's, else that of the first child.
    let own_file = later.last().or(own.as_ref()).map(PathBuf::as_path);
    if let Some(file) = own_file.or(children.first().map(PathBuf::as_path))
        && let Some(held) = who_held(file, own_file.is_some() && outcome.status.signal().is_some())
    {
        text.push_str(&held);
    }
    if let Some(output) = own {
        writeln!(text, "memtrack: recorded {}", output.display())?;
    }
    match later[..] {
        [] => {}
        [ref one] => writeln!(text, "memtrack: after exec: recorded {}", one.display())?,
        [ref first, ..] => writeln!(
            text,
            "memtrack: after exec: {} programs recorded {} and others next to it",
            later.len(),
            first.display()
        )?,
    }
    match children[..] {
        [] if own.is_some() => {}
        [] if outcome.job.sanitizer.is_some() => {
            let name = outcome.job.name.to_string_lossy();
            let sanitizer = outcome.job.sanitizer.unwrap_or_default();
            writeln!(
                text,
                "memtrack: {name} was not recorded: it is built with {sanitizer}, whose runtime replaces the heap's \
                 functions itself"
            )?;
        }
        [] => {
            let name = outcome.job.name.to_string_lossy();
            let more = if outcome.job.args.host { "" } else { "; --host records its heap" };
            writeln!(text, "memtrack: saw no CUDA allocation by {name}, so nothing was written{more}")?;
        }
        [ref one] => writeln!(text, "memtrack: a child process recorded {}", one.display())?,
        [ref first, ..] => writeln!(
            text,
            "memtrack: {} child processes recorded {} and others next to it",
            children.len(),
            first.display()
        )?,
    }
    match running {
        0 => Ok(()),
        1 => writeln!(text, "memtrack: a recorded process still runs, and its recording goes on"),
        more => writeln!(text, "memtrack: {more} recorded processes still run, and their recordings go on"),
    }
}

/// Writes which programs were not recorded.
fn write_unrecorded(
    text: &mut String,
    found: &Found,
    recordings: &Recordings,
    outcome: &Outcome<'_>,
) -> std::fmt::Result {
    let args = &outcome.job.args;
    let most = args.max_processes;
    let [programs, forks] = found.beyond_limits;
    if forks > 0 {
        writeln!(text, "memtrack: {forks} forked processes left no recording: only the first 100 do")?;
    }
    match programs {
        0 => {}
        more => writeln!(
            text,
            "memtrack: it started {more} more {} not recorded: --max-processes is {most}",
            if more == 1 { "program, which is" } else { "programs, which are" }
        )?,
    }
    match found.without_memory {
        0 => {}
        1 => writeln!(
            text,
            "memtrack: a process left no recording, because no memory was ready for its events"
        )?,
        more => writeln!(
            text,
            "memtrack: {more} processes left no recording, because no memory was ready for their events"
        )?,
    }
    let [refused, without_library] = found.unrecorded;
    // The driver's library needs glibc, so programs into which nothing can be preloaded have allocated no device
    // memory. Programs without memtrack's environment may have; but if something was recorded, they are mostly tools
    // that a library runs to query the system.
    if args.host {
        let why = "into which no library can be preloaded: statically linked, using a C library other \
                   than glibc, built for another kind of processor, or setuid";
        write_times(text, refused, why)?;
    }
    if args.host || !recordings.is_any() {
        let why = "because its environment was replaced by one without memtrack's LD_PRELOAD or MEMTRACK_RUN_MEMORY";
        write_times(text, without_library, why)?;
    }
    Ok(())
}

fn write_times(text: &mut String, count: u64, why: &str) -> std::fmt::Result {
    match count {
        0 => Ok(()),
        1 => writeln!(text, "memtrack: it started a program that is not recorded, {why}"),
        count => writeln!(text, "memtrack: {count} times it started a program that is not recorded, {why}"),
    }
}

fn json(recordings: &Recordings, outcome: &Outcome<'_>) -> Vec<u8> {
    let file = |path: &Path| RecordingAnswer {
        path: path.to_string_lossy().into_owned(),
        size_bytes: path.metadata().ok().map(|data| data.len()),
    };
    let all = |paths: &[PathBuf]| paths.iter().map(|path| file(path)).collect();
    let answer = RunAnswer {
        program: outcome.job.name.to_string_lossy().into_owned(),
        process: outcome.process,
        exit_code: outcome.status.code(),
        signal: outcome.status.signal(),
        recording: recordings.own.as_deref().map(file),
        became: all(&recordings.later),
        children: all(&recordings.children),
    };
    let mut content = Vec::new();
    // Writing to memory cannot fail.
    let _ = answers::RUN.write(&answer, &mut content);
    content
}
