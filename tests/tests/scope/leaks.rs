//! A service on tokio that leaks on purpose, and the same service without the leak: in every mode, reports on the leaking
//! service name the line that leaks and the leaked bytes, and reports on the fixed service name nothing.

use memtrack_core::analysis::leaks::{CutBy, Leak, LeakOptions, LeakReport, ReducedSnapshot, leaks_over};
use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_core::{Recording, mark, start_monitor_with, stop};
use memtrack_tests::{alone, memtrack};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The size of the data that a session owns, in addition to the `Session` value itself.
const SESSION: usize = 3_000;
/// The size of a page in the cache, and the number of pages.
const PAGE: usize = 5_000;
const PAGES: usize = 40;

/// The line that allocates the data of sessions.
static SESSION_LINE: Mutex<u32> = Mutex::new(0);

struct Session {
    data: Vec<u8>,
}

/// The state that requests share.
#[derive(Default)]
struct Service {
    /// All sessions that were ever opened, if the service leaks.
    sessions: Mutex<Vec<Arc<Session>>>,
    /// Grows at the beginning, and then keeps its size.
    cache: Mutex<HashMap<usize, Vec<u8>>>,
    /// Reallocated occasionally, each time with twice the capacity.
    history: Mutex<Vec<u64>>,
    /// The hundred newest answers.
    answers: Mutex<VecDeque<Vec<u8>>>,
    /// Filled and emptied.
    batch: Mutex<Vec<Vec<u8>>>,
    leaks: bool,
}

impl Service {
    #[inline(never)]
    fn open_session(&self, request: usize) -> Arc<Session> {
        *SESSION_LINE.lock().unwrap() = line!() + 1;
        let data = vec![request as u8; SESSION];
        Arc::new(Session { data })
    }

    async fn answer(self: Arc<Self>, request: usize) -> usize {
        let session = self.open_session(request);
        let page = self.cache.lock().unwrap().entry(request % PAGES).or_insert_with(|| vec![1; PAGE]).len();
        tokio::task::yield_now().await;
        self.history.lock().unwrap().push(request as u64);
        let mut answers = self.answers.lock().unwrap();
        answers.push_back(vec![2; 700]);
        if answers.len() > 100 {
            answers.pop_front();
        }
        drop(answers);
        let mut batch = self.batch.lock().unwrap();
        batch.push(vec![3; 900]);
        if batch.len() > 70 {
            batch.clear();
        }
        drop(batch);
        let bytes = session.data.len() + page;
        if self.leaks {
            self.sessions.lock().unwrap().push(session);
        }
        bytes
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// Sends the requests with these numbers to the service; each request is three concurrent tasks.
fn serve(runtime: &Runtime, service: &Arc<Service>, requests: std::ops::Range<usize>) {
    runtime.block_on(async {
        for request in requests {
            let tasks: Vec<_> =
                (0..3).map(|part| tokio::spawn(Arc::clone(service).answer(3 * request + part))).collect();
            for task in tasks {
                assert!(task.await.unwrap() > 0);
            }
            mark("request");
            if request % 50 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
}

/// Records a run of the service with these options, and returns the recording and the number of opened sessions.
fn recorded(options: &Options, leaks: bool, requests: usize) -> (Recording, u64) {
    let runtime = runtime();
    start_monitor_with(options).unwrap();
    let service = Arc::new(Service { leaks, ..Service::default() });
    serve(&runtime, &service, 0..requests);
    // All memory is still live, as in a running service.
    let recording = stop();
    drop(service);
    (recording, 3 * requests as u64)
}

fn host(report: &LeakReport) -> &[Leak] {
    let host =
        report.devices.iter().find(|device| device.device.kind.is_host()).expect("the heap was recorded");
    assert_eq!(host.blind, None);
    &host.leaks
}

/// Asserts that the leak is at the line that allocates sessions, and that its interval contains the true bytes.
fn assert_sessions(leak: &Leak, sessions: u64) {
    let frame = leak.row.owned.mine.as_ref().expect("a line of this file");
    assert!(frame.function.contains("open_session"), "{leak:#?}");
    assert!(frame.file.as_deref().is_some_and(|file| file.ends_with("scope/leaks.rs")), "{frame:?}");
    let line = *SESSION_LINE.lock().unwrap();
    // The next line allocates the `Session` value that owns the data, and is a separate leak.
    assert_eq!(frame.line, Some(line), "{leak:#?}");
    let truth = (sessions * SESSION as u64) as f64;
    let error = &leak.row.allocated_error;
    // Twice the 95 % confidence interval, so that the test does not fail by chance.
    let [low, high] =
        [error.value - 2.0 * (error.value - error.low), error.value + 2.0 * (error.high - error.value)];
    assert!(low <= truth && truth <= high, "{truth}: {error:?}");
}

/// Runs `memtrack leaks`, and returns its exit code, its standard output and its standard error.
fn command(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(memtrack()).arg("leaks").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn text_of(report: &LeakReport) -> String {
    report.to_text(None)
}

#[test]
fn only_the_leaking_line_of_a_service_is_named_with_its_bytes() {
    alone!();
    let (recording, sessions) = recorded(&Options::new().exact(), true, 1500);
    let report = recording.leaks(&LeakOptions::new()).unwrap();
    let leaks = host(&report);
    let (of_sessions, rest): (Vec<_>, Vec<_>) =
        leaks.iter().partition(|leak| leak.row.allocated_bytes >= sessions * SESSION as u64);
    assert_eq!(of_sessions.len(), 1, "{}", text_of(&report));
    assert_sessions(of_sessions[0], sessions);
    let exact = of_sessions[0];
    assert_eq!((exact.row.allocated_bytes, exact.row.count), (sessions * SESSION as u64, sessions));
    assert!(exact.grew >= exact.periods - 1 && exact.periods >= 8, "{exact:?}");
    // The other leaks are the `Session` values themselves.
    assert!(
        rest.iter().all(|leak| {
            leak.row.count == sessions
                && leak.row.owned.mine.as_ref().is_some_and(|frame| frame.function.contains("open_session"))
        }),
        "{}",
        text_of(&report)
    );
    let first = report.answer[0].clone();
    assert!(first.contains("leak") && first.contains("leaks.rs:"), "{first}");
    assert!(
        matches!(&report.cut, CutBy::Intervals { name, count: 1500 } if name == "request"),
        "{:?}",
        report.cut
    );
}

#[test]
fn nothing_is_named_in_the_fixed_service() {
    alone!();
    let (recording, _) = recorded(&Options::new().exact(), false, 1500);
    for options in [LeakOptions::new(), LeakOptions::new().by(memtrack_core::By::Stack)] {
        let report = recording.leaks(&options).unwrap();
        assert!(report.is_clean(), "{}", text_of(&report));
        assert!(report.answer[0].starts_with("nothing leaks"), "{}", text_of(&report));
    }
}

#[test]
fn a_recording_that_is_too_short_is_not_clean() {
    alone!();
    let (recording, _) = recorded(&Options::new().exact(), true, 4);
    let report = recording.leaks(&LeakOptions::new().per("request")).unwrap();
    assert!(!report.leaking && !report.is_clean(), "{}", text_of(&report));
}

#[test]
fn the_leak_of_a_sampled_service_is_within_the_error() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("service.memtrack");
    for (leaks, options) in [
        (true, Options::new().sample(64 << 10, 64 << 10)),
        (false, Options::new().sample(64 << 10, 64 << 10)),
        (true, Options::new()),
        (false, Options::new()),
    ] {
        let (recording, sessions) = recorded(&options, leaks, 3000);
        let report = recording.leaks(&LeakOptions::new()).unwrap();
        // On a busy machine, the budget leaves only a few dozen samples, which are too few for ten periods.
        let sampling = recording.snapshot().sampling.as_ref();
        if leaks && !report.leaking && sampling.is_some_and(|of| of.widest_interval_bytes > 256 << 10) {
            continue;
        }
        assert_eq!(report.leaking, leaks, "{}", text_of(&report));
        if leaks {
            assert_sessions(&host(&report)[0], sessions);
        }
        // The command reports the same about the saved file.
        recording.save(&path).unwrap();
        let output = command(&[path.to_str().unwrap()]);
        assert_eq!(output.0, Some(i32::from(leaks)), "{output:?}");
    }
}

#[test]
fn diff_names_the_line_that_leaks_only_in_the_faulty_service() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    for options in [Options::new().exact(), Options::new()] {
        let [fixed, leaking] = [false, true].map(|leaks| {
            let path = folder.path().join(format!("{leaks}.memtrack"));
            let (recording, sessions) = recorded(&options, leaks, 1500);
            recording.save(&path).unwrap();
            (path, sessions)
        });
        let arguments = ["diff".as_ref(), fixed.0.as_os_str(), leaking.0.as_os_str()];
        let at_the_end = ["--at", "end", "--by", "line", "-n", "1"];
        let output = Command::new(memtrack()).args(arguments).args(at_the_end).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = *SESSION_LINE.lock().unwrap();
        let grown = text
            .lines()
            .find(|row| row.starts_with(&format!(" leaks.rs:{line} Service::open_session ")))
            .expect(&text);
        assert!(grown.contains(" grew ") || grown.contains(" new "), "{text}");
        // An estimated growth has an error or is a range. Only an exact growth is compared with the true bytes.
        if !["±", " to "].iter().any(|estimate| grown.contains(estimate)) {
            let truth = memtrack_core::analysis::units::human_bytes(leaking.1 * SESSION as u64);
            assert!(grown.contains(&format!("+{truth}")), "{truth}: {text}");
        }
    }
}

#[test]
fn memory_left_by_each_marked_interval_is_reported() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("streamed.memtrack");
    let options = Options::new().exact().stream_to(&path);
    let (recording, _) = recorded(&options, true, 300);
    drop(recording);
    let (snapshot, report) = Snapshot::load(&path).unwrap();
    assert!(report.complete);
    assert_eq!(snapshot.marks.rows.len(), 300);
    assert!(snapshot.marks.rows.is_sorted_by_key(|mark| mark.ticks));
    let (code, printed, _) = command(&[path.to_str().unwrap(), "--per", "request", "--json", "-n", "0"]);
    assert_eq!(code, Some(1));
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let generations = &report["memory"]["devices"][0]["generations"];
    let rows = generations["rows"].as_array().unwrap();
    assert_eq!((rows.len(), generations["marks"].as_u64()), (301, Some(300)));
    // Each request leaves three sessions, and other memory that is freed later.
    for row in &rows[1..300] {
        let left =
            row["groups"].as_array().unwrap().iter().map(|group| group["left"]["requested_bytes"].as_u64());
        assert!(left.clone().any(|bytes| bytes == Some(3 * SESSION as u64)), "{row:#}");
    }
    assert_eq!(generations["leaving"].as_u64(), Some(299));
    let (_, text, _) = command(&[path.to_str().unwrap(), "--per", "request", "-n", "3"]);
    assert!(text.contains("What each request left behind: 299 of 299 left something"), "{text}");
}

/// Saves a snapshot after each part of the service's work. Returns the paths, and the sessions opened after the first snapshot.
fn snapshots(leaks: bool, folder: &Path, suffix: &str) -> (Vec<String>, u64) {
    const PARTS: usize = 4;
    const REQUESTS: usize = 200;
    let runtime = runtime();
    let name = |part: usize| folder.join(format!("{part}.{suffix}")).to_str().unwrap().to_owned();
    // The paths are allocated before the recording begins; otherwise they would count as growing memory.
    let paths: Vec<String> = (0..PARTS).map(name).collect();
    start_monitor_with(&Options::new().exact()).unwrap();
    let service = Arc::new(Service { leaks, ..Service::default() });
    for (part, path) in paths.iter().enumerate() {
        serve(&runtime, &service, part * REQUESTS..(part + 1) * REQUESTS);
        memtrack_core::dump_snapshot(path).unwrap();
    }
    stop();
    (paths, 3 * ((PARTS - 1) * REQUESTS) as u64)
}

#[test]
fn leaks_are_found_in_several_snapshots_of_one_process() {
    alone!();
    for suffix in ["memtrack", "pickle"] {
        let folder = tempfile::tempdir().unwrap();
        let (paths, sessions) = snapshots(true, folder.path(), suffix);
        let options = LeakOptions::new();
        let snap = |path: &String| {
            let snapshot = Snapshot::open(path, LoadOptions::default()).unwrap().snapshot;
            let devices = snapshot.device_ids();
            ReducedSnapshot::of(&snapshot, &mut Symbolizer::of(&snapshot), &devices, path.as_str(), &options)
        };
        let report = leaks_over(paths.iter().map(snap).collect(), &options).unwrap();
        let leaks = host(&report);
        assert_sessions(&leaks[0], sessions);
        assert_eq!(leaks[0].row.count, sessions);
        assert_eq!((leaks[0].grew, leaks[0].periods), (3, 3));
        assert!(leaks.iter().all(|leak| leak.row.name.contains("open_session")), "{}", text_of(&report));

        // Symbolizing a recording takes a moment, so the command runs only on the files that already contain names.
        let in_order = |order: [usize; 3]| command(&order.map(|at| paths[at].as_str()));
        if suffix == "memtrack" {
            continue;
        }
        assert_eq!(in_order([0, 1, 3]).0, Some(1));
        let swapped = in_order([1, 0, 3]);
        assert!(swapped.0 == Some(2) && swapped.2.contains("was taken before"), "{swapped:?}");

        let (paths, _) = snapshots(false, folder.path(), suffix);
        let output = command(&paths.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.0 == Some(0) && output.1.starts_with("nothing leaks"), "{output:?}");
    }
}

#[test]
fn marks_without_a_recording_are_ignored_and_old_marks_are_dropped() {
    alone!();
    mark("before");
    start_monitor_with(&Options::new()).unwrap();
    (0..70_000).for_each(|_| mark("step"));
    let recording = stop();
    let marks = &recording.snapshot().marks;
    assert_eq!(
        (marks.rows.len(), marks.left_out, &marks.names[..]),
        (65_536, 4_464, &["step".to_owned()][..])
    );
    start_monitor_with(&Options::new()).unwrap();
    let recording = stop();
    assert!(recording.snapshot().marks.is_empty());
    assert!(recording.snapshot().device_ids().iter().all(|&device| device == DeviceId::HOST));
}
