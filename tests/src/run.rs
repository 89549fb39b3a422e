//! Shared parts of the tests of `memtrack run`: a folder, the mock driver, the command, and checks of a program's recording.

use crate::time::wait_for;
use crate::{memtrack, mock_cuda};
use memtrack_core::event::{Action, DeviceId};
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::recording::{ReadReport, load_from, open_processes};
use memtrack_core::snapshot::{ProcessRow, Snapshot};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use tempfile::TempDir;

/// The number of device events of `cuda_plain`'s `work`: three segments with one block each; two of the segments are
/// freed with their blocks.
const WORK_EVENTS: usize = 10;

/// A temporary folder and the mock driver, with both of which `memtrack run` is started.
pub struct Bench {
    /// The command's working directory.
    pub folder: TempDir,
    /// The folder with the mock driver.
    pub driver: TempDir,
}

impl Bench {
    /// Creates the folders.
    ///
    /// # Panics
    /// When a folder cannot be created, or there is no mock driver.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), driver: mock_cuda::driver_dir() }
    }

    /// Returns `memtrack run` without its arguments.
    pub fn command(&self) -> Command {
        let mut command = mock_cuda::with_driver(memtrack(), self.driver.path());
        command
            .arg("run")
            .current_dir(self.folder.path())
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"));
        command
    }

    /// Runs `memtrack run` with arguments to completion.
    ///
    /// # Panics
    /// When `memtrack` cannot be started.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().expect("memtrack can be started")
    }

    /// Runs `memtrack run OPTIONS -o NAME -- PROGRAM FILE`. The program does `cuda_plain`'s `work`, waits for FILE, and ends in a
    /// way that writes nothing; FILE is created when the recording contains all of the work.
    ///
    /// # Panics
    /// When the program ends earlier, or the work is never recorded.
    pub fn run_until_recorded(
        &self,
        name: &str,
        options: &[&str],
        program: &[&str],
        environment: &[(&str, &str)],
    ) -> Output {
        self.run_until(name, options, program, environment, holds_work)
    }

    /// Runs `memtrack run OPTIONS -o NAME -- PROGRAM FILE`. The program waits for FILE, which is created when `is_recorded`
    /// returns true for the recording.
    ///
    /// # Panics
    /// When the program ends earlier, or `is_recorded` never becomes true.
    pub fn run_until(
        &self,
        name: &str,
        options: &[&str],
        program: &[&str],
        environment: &[(&str, &str)],
        is_recorded: impl Fn(&Snapshot) -> bool,
    ) -> Output {
        let end = format!("{name}.end");
        let mut command = self.command();
        command.args(options).args(["-o", name, "--"]).args(program).arg(&end);
        command.envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("memtrack can be started");
        wait_for("the recording is complete", || {
            let has_ended = child.try_wait().expect("it can be waited for").is_some();
            assert!(!has_ended, "the program ended before its file was there");
            let file = File::open(self.path(name)).ok();
            let read = file.and_then(|file| load_from(BufReader::new(file)).ok());
            read.is_some_and(|(snapshot, _)| is_recorded(&snapshot))
        });
        fs::write(self.path(&end), "").expect("it can be written");
        let output = child.wait_with_output().expect("it ends");
        fs::remove_file(self.path(&end)).expect("it is there");
        output
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Lists the folder's files, except memtrack's cache folder, which is in the same place.
    ///
    /// # Panics
    /// When the folder cannot be read.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).expect("a folder");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.retain(|name| name != "cache");
        names.sort();
        names
    }
}

/// Compiles a C source that uses threads, in a folder; `arguments` select the kind of output.
///
/// # Panics
/// When there is no compiler, or it rejects the source.
pub fn compile_c(folder: &Path, source: &str, arguments: &[&str]) {
    fs::write(folder.join("source.c"), source).expect("it can be written");
    let mut compiler = Command::new("cc");
    let built = compiler.args(["-g", "-O1", "-pthread", "source.c"]).args(arguments).arg("-ldl");
    assert!(built.current_dir(folder).status().expect("there is a compiler").success());
}

/// A `memtrack run` whose program prints `ready` and waits for a signal.
#[derive(Debug)]
pub struct Waiting {
    command: Child,
    stdout: BufReader<ChildStdout>,
}

impl Waiting {
    /// Starts the command, and waits until the program is ready.
    ///
    /// # Panics
    /// When the command cannot be started, or ends before the program is ready.
    pub fn new(bench: &Bench, arguments: &[&str]) -> Self {
        let mut waiting = Self::started(bench, arguments);
        waiting.is_ready();
        waiting
    }

    /// Starts the command without waiting.
    ///
    /// # Panics
    /// When the command cannot be started.
    pub fn started(bench: &Bench, arguments: &[&str]) -> Self {
        let mut command = bench.command();
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = command.spawn().expect("it can be started");
        let stdout = BufReader::new(command.stdout.take().expect("it is piped"));
        Self { command, stdout }
    }

    /// Waits until the program is ready.
    ///
    /// # Panics
    /// When the program ends earlier.
    pub fn is_ready(&mut self) {
        assert_eq!(self.line(), "ready");
    }

    /// Returns the next line that the program prints.
    ///
    /// # Panics
    /// When the line cannot be read.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Sends a signal to `memtrack run`, as a user would.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn send(&self, signal: &str) {
        send(self.command.id(), signal);
    }

    /// Sends a signal to the collector, which is a child of the command.
    ///
    /// # Panics
    /// When there is no collector, or the signal cannot be sent.
    pub fn send_to_collector(&self, signal: &str) {
        let command = self.command.id().to_string();
        let field = |pid: u32, name: &str| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_whitespace().nth(1).unwrap_or_default().to_owned()
        };
        let processes = fs::read_dir("/proc").expect("the processes").flatten();
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_collector =
            |pid: &u32| field(*pid, "PPid:") == command && field(*pid, "Name:") == "memtrack-collec";
        send(pids.find(is_collector).expect("a collector"), signal);
    }

    /// Requests a snapshot by `SIGUSR2`, and waits for its file.
    ///
    /// # Panics
    /// When the file never appears.
    #[track_caller]
    pub fn request_snapshot(&self, snapshot: &Path) {
        self.send("USR2");
        wait_for("the snapshot is there", || snapshot.exists());
    }

    /// Waits until the command ends, and returns its standard error and exit status.
    ///
    /// # Panics
    /// When the command cannot be waited for.
    pub fn end(self) -> Output {
        self.command.wait_with_output().expect("it ends")
    }
}

fn send(pid: u32, signal: &str) {
    let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
}

/// Returns a command's standard error.
pub fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Counts the lines on standard error, except those that list the holders of memory.
pub fn count_stderr_lines(output: &Output) -> usize {
    let text = stderr_text(output);
    let of_holders = |line: &&str| {
        ["memtrack: who holds ", "memtrack:   ", "memtrack: the process: "]
            .iter()
            .any(|start| line.starts_with(start))
    };
    text.lines().filter(|line| !of_holders(line)).count()
}

/// Reads a recording.
///
/// # Panics
/// When there is no recording, or it cannot be read.
#[track_caller]
pub fn load(path: &Path) -> (Snapshot, ReadReport) {
    load_from(BufReader::new(File::open(path).expect("it was recorded"))).expect("it can be read")
}

/// Reads all processes of a recording, in the order in which they began to allocate.
///
/// # Panics
/// When there is no recording, or it cannot be read.
#[track_caller]
pub fn load_each(path: &Path) -> Vec<(ProcessRow, Snapshot)> {
    let file = BufReader::new(File::open(path).expect("it was recorded"));
    open_processes(file, LoadOptions::default()).expect("it can be read").0
}

/// Returns the bytes of the live blocks of a device.
pub fn bytes(snapshot: &Snapshot, device: DeviceId) -> u64 {
    snapshot.blocks.iter().filter(|block| block.device == device).map(|block| block.size_bytes).sum()
}

/// Counts the recorded allocations on a device.
pub fn allocations(snapshot: &Snapshot, device: DeviceId) -> usize {
    let events = &snapshot.events;
    events.rows_of(device).filter(|&row| events.action[row] == Action::Alloc).count()
}

/// Returns whether the recording, which is still being written, contains all of `work` and a reading of the driver's memory.
pub fn holds_work(snapshot: &Snapshot) -> bool {
    snapshot.events.rows_of(DeviceId(0)).count() == WORK_EVENTS
        && bytes(snapshot, DeviceId::PINNED) == 1 << 16
        && !snapshot.driver.is_empty()
}

/// Asserts that a recording contains `cuda_plain`'s `work`, which leaves 2 of 6 MiB and the pinned memory live.
///
/// # Panics
/// When a check fails, or when the recording's completeness is not `whole`.
#[track_caller]
pub fn assert_work(path: &Path, whole: bool) {
    let (snapshot, report) = load(path);
    assert_eq!(report.complete, whole, "{}", path.display());
    assert_is_work(&snapshot);
}

/// Asserts that a snapshot contains `cuda_plain`'s `work`, like [`assert_work`].
///
/// # Panics
/// When a check fails.
#[track_caller]
pub fn assert_is_work(snapshot: &Snapshot) {
    assert_eq!(bytes(snapshot, DeviceId(0)), 2 << 20);
    assert_eq!(bytes(snapshot, DeviceId::PINNED), 1 << 16);
    assert_eq!(allocations(snapshot, DeviceId(0)), 3);
}
