//! The processes of a run that was recorded as a whole (`memtrack run`), and the choice of the one that is *the program*.

use std::path::Path;

/// A process of a run. A process that calls `exec` has one row for each program that it ran and that allocated memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct ProcessRow {
    /// The number of the row in its run, from 1.
    pub number: u32,
    /// The process id.
    pub pid: u32,
    /// The process id of the parent at the time when the process began.
    pub parent: u32,
    /// The path of the program.
    pub program: String,
    /// The command line; empty if the process ended before it was read.
    pub arguments: Vec<String>,
    /// Whether the process is a fork that has not executed another program.
    pub is_forked: bool,
    /// Whether this is the process that the command started.
    pub is_first: bool,
    /// The time at which the process began to record, in ticks.
    pub begun_ticks: u64,
    /// How the process ended, as far as is known.
    pub end: ProcessEnd,
    /// The time at which the process was last seen running, or the time of its newest event if that is later, in ticks;
    /// 0 while it runs.
    pub seen_ticks: u64,
    /// The time at which the end of the process was noticed, in ticks; 0 while it runs. The process ended after
    /// [`Self::seen_ticks`].
    pub ended_ticks: u64,
    /// Whether events may be missing that were not even counted, because no memory was ready for the sums of some
    /// threads.
    pub has_gaps: bool,
    /// The largest number of bytes that the process held at once on all devices together, as seen by the collector while
    /// it read the events. Reports compute the peak from the events; this number only selects the process to report on.
    pub held_bytes: u64,
}

/// The numbers of processes of a run that were not recorded at all, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Unrecorded {
    /// Programs that were started after the run's maximum number of programs had been reached.
    pub programs: u64,
    /// Processes that were forked after the run's maximum number of forks had been reached.
    pub forks: u64,
    /// Processes for which no shared memory was ready when they started.
    pub without_memory: u64,
    /// Processes in another namespace of process ids.
    pub in_other_namespaces: u64,
    /// Processes for which the file has no room.
    pub without_room: u64,
    /// Programs into which no library can be preloaded.
    pub not_preloadable: u64,
    /// Programs that were started without the library in their environment.
    pub without_library: u64,
}

impl Unrecorded {
    /// Returns the number of unrecorded processes, for all reasons together.
    pub fn count(&self) -> u64 {
        let Self { programs, forks, without_memory, in_other_namespaces, without_room, .. } = self;
        let some = [programs, forks, without_memory, in_other_namespaces, without_room];
        let all = some.into_iter().chain([&self.not_preloadable, &self.without_library]);
        all.fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum ProcessEnd {
    /// The process was still running when the recording was read or cut off.
    #[default]
    Running,
    /// The process ended, but it is not known how.
    Ended,
    /// The process ended with this exit code.
    Code(i32),
    /// The process was ended by this signal.
    Signal(i32),
    /// The process executed another program.
    Replaced,
}

impl ProcessRow {
    /// Returns the name of the program: the last part of its path.
    pub fn name(&self) -> &str {
        Path::new(&self.program).file_name().and_then(|name| name.to_str()).unwrap_or(&self.program)
    }

    /// Returns the command line on one line, or the program's path if the command line is not known.
    pub fn command_line(&self) -> String {
        if self.arguments.is_empty() { self.program.clone() } else { self.arguments.join(" ") }
    }

    /// Returns the command line on one line, with the name of the program instead of its path. For a fork, the line
    /// begins with `fork of`.
    pub fn short_command_line(&self) -> String {
        let fork = if self.is_forked { "fork of " } else { "" };
        format!("{fork}{}", self.short_arguments())
    }

    fn short_arguments(&self) -> String {
        let Some((first, others)) = self.arguments.split_first() else { return self.name().to_owned() };
        let first = Path::new(first).file_name().and_then(|name| name.to_str()).unwrap_or(first);
        std::iter::once(first).chain(others.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }

    /// Returns whether `name` refers to this process. It can be the name or path of the program, the name of the script
    /// that an interpreter runs, or the command line.
    pub fn is_named(&self, name: &str) -> bool {
        let is_file = |path: &String| Path::new(path).file_name().is_some_and(|file| file == name);
        self.name() == name
            || self.program == name
            || self.arguments.iter().take(2).any(is_file)
            || self.command_line() == name
            || self.short_command_line() == name
    }
}

/// The first process is a mere launcher if it held less than the bytes of all processes divided by this number.
const LAUNCHER_SHARE: u64 = 100;

/// The names of programs that only start other programs.
const LAUNCHERS: [&str; 33] = [
    "bash",
    "cargo",
    "conda",
    "dash",
    "doas",
    "env",
    "flock",
    "ksh",
    "make",
    "mamba",
    "micromamba",
    "mpirun",
    "nice",
    "ninja",
    "nohup",
    "npm",
    "npx",
    "numactl",
    "pdm",
    "pipenv",
    "pnpm",
    "poetry",
    "pyenv",
    "setsid",
    "sh",
    "stdbuf",
    "sudo",
    "taskset",
    "time",
    "timeout",
    "uv",
    "yarn",
    "zsh",
];

/// Returns the number of the process that is *the program* of a run; `None` if there are no processes.
///
/// It is the last program that the process started by the command executed. There are two exceptions: that program is a
/// shell or another launcher, and another process held memory; or it held less than a hundredth of the bytes that all
/// processes held. In these cases, the result is the process that held the most bytes.
pub fn main_process(rows: &[ProcessRow]) -> Option<u32> {
    let largest = rows.iter().max_by_key(|row| (row.held_bytes, std::cmp::Reverse(row.number)))?;
    let Some(first) = rows.iter().filter(|row| row.is_first).max_by_key(|row| row.begun_ticks) else {
        return Some(largest.number);
    };
    let all: u64 = rows.iter().fold(0, |sum, row| sum.saturating_add(row.held_bytes));
    let is_small = first.held_bytes < all / LAUNCHER_SHARE;
    // The script that an interpreter runs is in `argv[1]`.
    let is_launcher = |name: &str| LAUNCHERS.iter().any(|launcher| *launcher == name.trim_end_matches(".js"));
    let script = first.arguments.get(1).and_then(|path| Path::new(path).file_name()?.to_str());
    let is_launcher = is_launcher(first.name()) || script.is_some_and(is_launcher);
    let is_other_larger = rows.iter().any(|row| row.pid != first.pid && row.held_bytes > 0);
    if is_small || is_launcher && is_other_larger {
        // If the last program held little memory, an earlier program of its process may be the result. If it is only a
        // launcher, leave out its whole process.
        let others = rows.iter().filter(|row| row.pid != first.pid || is_small);
        return others
            .max_by_key(|row| (row.held_bytes, std::cmp::Reverse(row.number)))
            .map(|row| row.number);
    }
    Some(first.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u32, pid: u32, program: &str, held_bytes: u64) -> ProcessRow {
        let begun_ticks = number.into();
        ProcessRow { number, pid, program: program.into(), held_bytes, begun_ticks, ..ProcessRow::default() }
    }

    fn first(row: ProcessRow) -> ProcessRow {
        ProcessRow { is_first: true, ..row }
    }

    #[test]
    fn last_program_of_first_process_is_the_program() {
        let chain = [
            first(row(1, 10, "/usr/bin/env", 9_000)),
            first(row(2, 10, "/bin/bash", 9_000)),
            first(row(3, 10, "/usr/bin/python3", 5_000)),
            row(4, 11, "/usr/bin/worker", 60_000),
        ];
        assert_eq!(main_process(&chain), Some(3), "a worker may hold more");
        assert_eq!(main_process(&chain[..1]), Some(1));
        assert_eq!(main_process(&[]), None);
    }

    #[test]
    fn launchers_are_skipped() {
        let shell = [first(row(1, 10, "/bin/sh", 5_000)), row(2, 11, "/usr/bin/python3", 6_000)];
        assert_eq!(main_process(&shell), Some(2));
        let mut npm = [first(row(1, 10, "/usr/bin/node", 9_000)), row(2, 11, "/usr/bin/python3", 6_000)];
        assert_eq!(main_process(&npm), Some(1), "node is a program like any other");
        npm[0].arguments = vec!["node".into(), "/usr/lib/npm.js".into(), "run".into()];
        assert_eq!(main_process(&npm), Some(2));
        let small = [first(row(1, 10, "/opt/start", 50)), row(2, 11, "/usr/bin/python3", 6_000)];
        assert_eq!(main_process(&small), Some(2));
        let alone = [first(row(1, 10, "/bin/sh", 5_000))];
        assert_eq!(main_process(&alone), Some(1));
    }

    #[test]
    fn largest_process_is_the_program_without_first_process() {
        assert_eq!(main_process(&[row(1, 11, "/a", 5), row(2, 12, "/b", 6), row(3, 13, "/c", 6)]), Some(2));
    }

    #[test]
    fn processes_are_found_by_program_script_and_command_line() {
        let mut process = row(1, 10, "/usr/bin/python3.11", 0);
        process.arguments = ["python3", "jobs/train.py", "--epochs", "3"].map(String::from).into();
        for name in
            ["python3.11", "/usr/bin/python3.11", "python3", "train.py", "python3 jobs/train.py --epochs 3"]
        {
            assert!(process.is_named(name), "{name}");
        }
        assert!(!process.is_named("train") && !process.is_named("3"));
    }
}
