//! A dump when memory runs low. A thread of memtrack reads the kernel's files once a second, or is woken by the kernel when
//! threads wait for memory, and writes a dump when a source rises above its threshold.

use super::rise::{EventSource, Reading, Rises};
use super::stall::Stalls;
use super::{checked_path, write};
use crate::background::{Bell, spawn};
use crate::events::{fork, resident::page_bytes};
use crate::{host, message, reentry};
use memtrack_model::pressure::{Pressure, WatchedSign};
use memtrack_model::units::human_bytes as bytes;
use memtrack_resident::cgroup::{self, Group};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Dumps when memory runs low until this value is dropped.
#[must_use = "the memory is watched only while this value exists"]
#[derive(Debug)]
pub struct PressureWatch {
    signs: Vec<WatchedSign>,
    stop: Option<Arc<Stop>>,
}

impl PressureWatch {
    /// Returns the signs that were requested, each with what is watched or the reason why nothing is.
    pub fn signs(&self) -> &[WatchedSign] {
        &self.signs
    }
}

impl Drop for PressureWatch {
    fn drop(&mut self) {
        let _inside = reentry::enter();
        if let Some(stop) = self.stop.take() {
            stop.requested.store(true, Ordering::Release);
            stop.bell.ring();
        }
    }
}

/// How the thread is stopped.
#[derive(Debug, Default)]
struct Stop {
    requested: AtomicBool,
    bell: Bell,
}

/// The circumstances of a watch, which tests replace.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Surroundings {
    /// The folder in which the kernel's files are: `/`.
    pub root: PathBuf,
    /// Whether the kernel is asked to wake the thread; otherwise it reads the files once per interval.
    pub with_trigger: bool,
    /// The time between two readings.
    pub interval: Duration,
    /// The minimum time between two dumps.
    pub pause: Duration,
}

impl Default for Surroundings {
    fn default() -> Self {
        let (interval, pause) = (Duration::from_secs(1), Duration::from_secs(60));
        Self { root: "/".into(), with_trigger: true, interval, pause }
    }
}

/// Writes a dump to `path` when memory runs low. The documentation is at `memtrack_core`'s function.
///
/// # Errors
/// Fails when no sign is requested, a threshold is out of range, no dump can have this name, none of the signs can be watched
/// here, or there is no thread for it.
pub fn dump_at(
    signs: impl IntoIterator<Item = Pressure>,
    path: &Path,
    surroundings: Surroundings,
) -> io::Result<PressureWatch> {
    let signs: Vec<Pressure> = signs.into_iter().collect();
    // The program drops the value.
    host::allocate_for_program(|| start(&signs, path, surroundings))
}

fn start(signs: &[Pressure], path: &Path, surroundings: Surroundings) -> io::Result<PressureWatch> {
    let path = checked_path(path)?;
    let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    signs.iter().try_for_each(|sign| sign.check().map_err(refused))?;
    if signs.is_empty() {
        return Err(refused("no sign of pressure is given".to_owned()));
    }
    fork::watch();
    let groups = cgroup::groups(&surroundings.root);
    let (mut sources, mut watched) = (Vec::new(), Vec::new());
    for &pressure in signs {
        let opened = Source::open(pressure, &groups, &surroundings);
        watched.push(WatchedSign::new(pressure, opened.as_ref().map(Source::describe).map_err(Clone::clone)));
        sources.extend(opened.ok());
    }
    if sources.is_empty() {
        let why: Vec<String> = watched.iter().map(WatchedSign::to_string).collect();
        return Err(io::Error::new(io::ErrorKind::Unsupported, why.join("; ")));
    }
    let stop = Arc::new(Stop::default());
    let thread_stop = Arc::clone(&stop);
    spawn(c"memtrack-dumps", move || watch(sources, &path, &surroundings, &thread_stop))?;
    Ok(PressureWatch { signs: watched, stop: Some(stop) })
}

/// Something that is watched.
enum Source {
    Limit { share: f64, groups: Vec<Group> },
    Stall(Stalls),
    LimitEvents { group: Group, count: u64, events: EventSource },
    Resident { most: u64, statm: PathBuf },
}

impl Source {
    fn open(pressure: Pressure, groups: &[Group], surroundings: &Surroundings) -> Result<Self, String> {
        let root = &surroundings.root;
        match pressure {
            Pressure::Limit(share) => {
                let groups: Vec<Group> =
                    groups.iter().filter(|group| group.usage().is_some()).cloned().collect();
                if groups.is_empty() {
                    return Err("the process is in no control group with a limit of memory".to_owned());
                }
                Ok(Self::Limit { share, groups })
            }
            Pressure::Stall(time) => {
                let of_group = groups.iter().take(1).map(|group| group.folder().join("memory.pressure"));
                let files: Vec<PathBuf> = of_group.chain([root.join("proc/pressure/memory")]).collect();
                Stalls::open(&files, time, surroundings.with_trigger).map(Self::Stall)
            }
            Pressure::LimitEvents => {
                let counted = groups.iter().find_map(|group| Some((group, group.limit_events()?)));
                let (group, count) = counted.ok_or("no control group counts the events of a limit")?;
                Ok(Self::LimitEvents { group: group.clone(), count, events: EventSource::default() })
            }
            Pressure::ResidentBytes(most) => {
                let statm = root.join("proc/self/statm");
                let read = resident_bytes(&statm);
                read.map(|_| Self::Resident { most, statm: statm.clone() })
                    .ok_or_else(|| format!("{} cannot be read", statm.display()))
            }
            _ => Err("this recorder does not know the sign".to_owned()),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Limit { groups, .. } => {
                let limit = |group: &Group| {
                    let limit = group.usage().map_or(0, |usage| usage.limit_bytes);
                    format!("{} in {}", bytes(limit), group.folder().display())
                };
                groups.iter().map(limit).collect::<Vec<_>>().join(", ")
            }
            Self::Stall(stalls) => match stalls.describe() {
                (path, true) => path.display().to_string(),
                (path, false) => format!("{}, read at intervals", path.display()),
            },
            Self::LimitEvents { group, .. } => group.folder().display().to_string(),
            Self::Resident { statm, .. } => statm.display().to_string(),
        }
    }

    /// Returns the reading at `now`, and the words for a dump that it causes.
    fn read(&mut self, now: Duration, has_fired: bool) -> (Reading, String) {
        match self {
            Self::Limit { share, groups } => {
                let usages = groups.iter().filter_map(|group| Some((group.usage()?, group)));
                let Some((usage, group)) = usages.max_by(|a, b| a.0.share().total_cmp(&b.0.share())) else {
                    return (Reading::Between, String::new());
                };
                let (used, limit) = (bytes(usage.bytes), bytes(usage.limit_bytes));
                let words =
                    format!("{used} of the limit of {limit} are in use ({})", group.folder().display());
                (Reading::of(usage.share(), *share), words)
            }
            Self::Stall(stalls) => {
                let words = format!("threads wait for memory ({})", stalls.describe().0.display());
                (stalls.read(now, has_fired), words)
            }
            Self::LimitEvents { group, count, events } => {
                let before = *count;
                *count = group.limit_events().unwrap_or(before);
                let words = format!("a limit of memory was reached ({})", group.folder().display());
                (events.read(now, *count > before), words)
            }
            Self::Resident { most, statm } => match resident_bytes(statm) {
                Some(resident) => {
                    (Reading::of(resident as f64, *most as f64), format!("{} are resident", bytes(resident)))
                }
                None => (Reading::Between, String::new()),
            },
        }
    }
}

/// Returns the resident set: the second number in `statm`, in pages.
fn resident_bytes(statm: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(statm).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

/// Watches the sources until the watch is dropped.
fn watch(mut sources: Vec<Source>, path: &Path, surroundings: &Surroundings, stop: &Stop) {
    let start = Instant::now();
    let mut rises = Rises::new(sources.len(), surroundings.pause);
    while !stop.requested.load(Ordering::Acquire) {
        let has_fired = wait(&mut sources, surroundings.interval, stop);
        if stop.requested.load(Ordering::Acquire) {
            return;
        }
        let now = start.elapsed();
        let (readings, words): (Vec<Reading>, Vec<String>) =
            sources.iter_mut().map(|source| source.read(now, has_fired)).unzip();
        let Some(cause) = rises.cause(now, &readings) else { continue };
        match write(path) {
            // Nothing is monitored: the rise still counts if that changes.
            Ok(false) => continue,
            Ok(true) => message::print(format_args!("{}; wrote {}", words[cause], path.display())),
            Err(error) => {
                message::print(format_args!("{}; the dump could not be written: {error}", words[cause]));
            }
        }
        rises.dumped(start.elapsed(), &readings);
    }
}

/// Waits for the next reading. Returns whether the kernel's trigger fired.
fn wait(sources: &mut [Source], interval: Duration, stop: &Stop) -> bool {
    let stalls = sources.iter_mut().find_map(|source| match source {
        Source::Stall(stalls) => Some(stalls),
        _ => None,
    });
    match stalls.and_then(|stalls| stalls.wait(interval)) {
        Some(has_fired) => has_fired,
        None => {
            stop.bell.wait(interval);
            false
        }
    }
}
