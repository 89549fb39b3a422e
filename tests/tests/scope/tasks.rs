//! Tasks: which memory belongs to which future, compared with what the futures know about their own blocks.

use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::tasks::{HeldMemory, TaskPlaceRow, TasksReport};
use memtrack_core::event::{DeviceId, StreamId, TaskId};
use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_core::{Options, Recording, tasks};
use memtrack_tests::{alone, time::wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::{Future, pending, poll_fn, ready};
use std::hint::black_box;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Blocks of at least this size are the tests' own: nothing else in the process allocates such blocks.
const OWN: usize = 100_000;

fn start() {
    memtrack_core::start_monitor_with(&Options::new().exact().max_entries(1 << 22)).unwrap();
}

fn block(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).build().unwrap()
}

/// Is pending once, so that another thread may poll the future next.
async fn yield_once() {
    let mut is_ready = false;
    poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut is_ready, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn maybe_pending(waits: bool) {
    if waits {
        pending::<()>().await;
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the bytes of the tests' own live blocks by the name of the task, and by whether it is running.
fn live(snapshot: &Snapshot) -> BTreeMap<(String, bool), u64> {
    let rows = snapshot.tasks.by_id();
    let mut sums = BTreeMap::new();
    for block in snapshot.blocks.iter().filter(|block| block.size_bytes >= OWN as u64) {
        let name = snapshot.tasks.place(block.task).map_or(String::new(), |place| place.name.clone());
        let running = rows.get(&block.task).is_some_and(|row| row.ended_ticks == 0);
        *sums.entry((name, running)).or_default() += block.size_bytes;
    }
    sums
}

fn expected<const N: usize>(rows: [(&str, bool, usize); N]) -> BTreeMap<(String, bool), u64> {
    rows.map(|(name, running, bytes)| ((name.to_owned(), running), bytes as u64)).into()
}

fn place<'a>(report: &'a TasksReport, name: &str) -> &'a TaskPlaceRow {
    let found = report.places.iter().find(|row| row.label.starts_with(&format!("{name} (tasks.rs:")));
    found.unwrap_or_else(|| panic!("{name} is in no row: {report}"))
}

/// Returns the report about a moment, after checking that its rows add up to the live bytes.
fn report_at(recording: &Recording, at: Moment) -> TasksReport {
    let report = recording.tasks(at, usize::MAX).expect("there are tasks");
    let of_places = report.places.iter().map(|row| {
        let parts = [&row.by_running, &row.by_ended, &row.by_unknown];
        assert_eq!(parts.iter().map(|held| held.live_bytes).sum::<u64>(), row.held.live_bytes);
        assert_eq!(parts.iter().map(|held| held.blocks).sum::<u64>(), row.held.blocks);
        assert_eq!(row.begun - row.ended, row.running);
        row.held.live_bytes
    });
    assert_eq!(of_places.sum::<u64>() + report.outside.live_bytes, report.totals.allocated_bytes, "{report}");
    report
}

fn is_exact(held: &HeldMemory) -> bool {
    held.live_bytes_error.is_exact() && held.blocks_error.is_exact()
}

#[test]
fn blocks_belong_to_the_task_that_is_polled_on_any_thread() {
    alone!();
    start();
    let outside = block(OWN);
    let kept = Arc::new(Mutex::new(Vec::new()));
    let mut task = Box::pin(tasks::named("moves", {
        let kept = kept.clone();
        async move {
            for size in [1, 20, 300] {
                let block = block(OWN + size);
                yield_once().await;
                kept.lock().unwrap().push(block);
            }
            drop(block(OWN));
        }
    }));
    let mut polls = 0;
    loop {
        // Each poll is on another thread, which is in no task before and afterwards.
        let poll = thread::scope(|scope| {
            let task = &mut task;
            let on_thread = scope.spawn(move || {
                let poll = poll(task.as_mut());
                assert_eq!(tasks::current().id(), TaskId::NONE);
                poll
            });
            on_thread.join().unwrap()
        });
        polls += 1;
        if poll.is_ready() {
            break;
        }
        let snapshot = memtrack_core::snapshot().unwrap();
        let sum: usize = [1, 20, 300][..polls].iter().map(|size| OWN + size).sum();
        assert_eq!(live(&snapshot), expected([("", false, OWN), ("moves", true, sum)]));
    }
    let recording = memtrack_core::stop();
    assert_eq!(live(recording.snapshot()), expected([("", false, OWN), ("moves", false, 3 * OWN + 321)]));
    let report = report_at(&recording, Moment::End);
    let row = place(&report, "moves");
    assert_eq!((row.begun, row.ended), (1, 1));
    // The vector of the list of blocks is the only other one.
    let list = 4 * size_of::<Vec<u8>>() as u64;
    assert_eq!((row.by_ended.live_bytes, row.by_ended.blocks), (3 * OWN as u64 + 321 + list, 4));
    assert!(is_exact(&row.held) && is_exact(&report.outside));
    drop((outside, kept));
}

#[test]
fn nested_tasks_stack_and_freeing_elsewhere_changes_no_owner() {
    alone!();
    start();
    let [first, second] = [false, true].map(|waits| tasks::named("child", maybe_pending(waits)));
    let first_block = Mutex::new(None);
    let mut outer = pin!(tasks::named("outer", async {
        let outer = tasks::current().id();
        let before = block(OWN);
        let mut children = [first, second].map(|child| {
            Box::pin(tasks::track(async move {
                let _block = block(OWN + 1);
                let inner = tasks::current().id();
                child.await;
                assert_eq!(tasks::current().id(), inner);
                block(OWN + 7)
            }))
        });
        // As `join_all` does: both are polled in one poll of this task.
        poll_fn(|_| {
            for child in &mut children {
                if let Poll::Ready(block) = poll(child.as_mut()) {
                    assert!(first_block.lock().unwrap().replace(block).is_none());
                }
                assert_eq!(tasks::current().id(), outer);
            }
            Poll::Ready(())
        })
        .await;
        let after = block(OWN + 2);
        pending::<()>().await;
        drop((before, after, children));
    }));
    assert!(poll(outer.as_mut()).is_pending());
    let snapshot = memtrack_core::snapshot().unwrap();
    // The tracked children have no name but that of their line; the second one waits.
    let sums = live(&snapshot);
    assert_eq!(sums, expected([("", false, OWN + 7), ("", true, OWN + 1), ("outer", true, 2 * OWN + 2)]));
    let parents: Vec<u64> = snapshot.tasks.rows.iter().map(|row| row.parent.number()).collect();
    assert_eq!(parents, [0, 0, 0, 3, 3]);
    // Freed outside the task that allocated it.
    drop(first_block.lock().unwrap().take());
    let recording = memtrack_core::stop();
    assert_eq!(live(recording.snapshot()), expected([("", true, OWN + 1), ("outer", true, 2 * OWN + 2)]));
    report_at(&recording, Moment::End);
}

/// Spawns a task that holds a block, and another task that it makes, which passes a block to the receiver.
fn request(number: usize, to: UnboundedSender<Vec<u8>>) {
    let request = async move {
        let own = block(OWN + number);
        yield_once().await;
        let child = tasks::named("child", async move {
            yield_once().await;
            block(OWN + 10_000 + number)
        });
        let passed = child.spawn().await.expect("the child does not panic");
        yield_once().await;
        to.send(passed).expect("the receiver waits");
        drop(own);
    };
    drop(tasks::named("request", request).spawn());
}

#[test]
fn tasks_on_tokio_hold_leave_behind_and_hand_on_what_they_allocated() {
    alone!();
    const REQUESTS: usize = 200;
    let runtime = runtime();
    start();
    let (sender, mut receiver) = unbounded_channel();
    let (begun, mut all_begun) = unbounded_channel();
    let kept = runtime.block_on(async {
        for number in 0..REQUESTS {
            request(number, sender.clone());
        }
        for number in 0..3 {
            let begun = begun.clone();
            let endless = async move {
                let _held = block(OWN + 20_000 + number);
                begun.send(()).unwrap();
                pending::<()>().await;
            };
            drop(tasks::named("endless", endless).spawn());
        }
        let panics = tasks::named("panics", async {
            let _held = block(OWN);
            yield_once().await;
            // Without the panic hook, whose backtrace leaves much memory behind: that of the names of functions.
            resume_unwind(Box::new("on purpose"));
        });
        assert!(panics.spawn().await.unwrap_err().is_panic());
        let aborted = {
            let begun = begun.clone();
            tasks::named("aborted", async move {
                let _held = block(OWN);
                begun.send(()).unwrap();
                pending::<()>().await;
            })
        };
        let aborted = aborted.spawn();
        for _ in 0..4 {
            all_begun.recv().await.unwrap();
        }
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        // A task that is never polled has its content dropped all the same.
        let never_polled = block(OWN);
        drop(tasks::named("unpolled", async move { drop(never_polled) }));
        let mut kept = Vec::new();
        for _ in 0..REQUESTS {
            kept.push(receiver.recv().await.unwrap());
        }
        kept
    });
    let recording = memtrack_core::stop();
    let passed: usize = (0..REQUESTS).map(|number| OWN + 10_000 + number).sum();
    let live = live(recording.snapshot());
    // A request sends its last block before it frees its own, so some of these may still be there.
    let others = live.iter().filter(|((name, _), _)| name != "request");
    assert_eq!(
        others.map(|(key, &bytes)| (key.clone(), bytes)).collect::<BTreeMap<_, _>>(),
        expected([("child", false, passed), ("endless", true, 3 * OWN + 60_003)])
    );
    let report = report_at(&recording, Moment::End);
    assert_eq!((place(&report, "request").begun, place(&report, "child").begun), (200, 200));
    assert_eq!((place(&report, "endless").begun, place(&report, "endless").running), (3, 3));
    for name in ["panics", "aborted", "unpolled"] {
        let row = place(&report, name);
        assert_eq!((row.begun, row.ended), (1, 1), "{name}");
        assert_eq!(row.by_running.blocks, 0);
    }
    // What tokio allocated for a future belongs to the task.
    assert!(place(&report, "endless").by_running.live_bytes > 3 * OWN as u64 + 60_003);
    let oldest = report.oldest.iter().filter(|task| task.label.starts_with("endless"));
    assert_eq!(oldest.filter(|task| task.held.live_bytes > OWN as u64 + 20_000).count(), 3);
    assert!(report.largest.iter().take(3).all(|task| task.label.starts_with("endless")));
    report_at(&recording, Moment::Peak);
    drop((runtime, kept));
}

#[test]
fn tasks_made_before_the_monitoring_count_from_their_first_poll_and_sessions_are_separate() {
    alone!();
    let mut task = pin!(tasks::named("waits", async {
        loop {
            let _block = block(OWN);
            yield_once().await;
        }
    }));
    for _ in 0..2 {
        assert!(poll(task.as_mut()).is_pending());
        start();
        assert_eq!(memtrack_core::snapshot().unwrap().tasks.rows.len(), 0);
        assert!(poll(task.as_mut()).is_pending());
        let recording = memtrack_core::stop();
        assert_eq!(live(recording.snapshot()), expected([("waits", true, OWN)]));
        let row = &report_at(&recording, Moment::End).places[0];
        assert_eq!((row.begun, row.running), (1, 1));
    }
}

#[test]
fn work_on_another_thread_can_enter_the_task() {
    alone!();
    start();
    let mut task = pin!(tasks::named("asks", async {
        let task = tasks::current();
        let on_thread = thread::spawn(move || {
            let _task = task.enter();
            block(OWN)
        });
        on_thread.join().unwrap()
    }));
    let Poll::Ready(held) = poll(task.as_mut()) else { panic!("the task waits for nothing") };
    let recording = memtrack_core::stop();
    assert_eq!(live(recording.snapshot()), expected([("asks", false, OWN)]));
    drop(held);
}

#[test]
fn memory_of_tasks_without_a_row_belongs_to_their_place() {
    alone!();
    start();
    let mut first = pin!(tasks::named("first", ready(()).then_block()));
    let Poll::Ready(held) = poll(first.as_mut()) else { panic!("it is ready") };
    let mut running = pin!(tasks::named("running", pending::<()>()));
    assert!(poll(running.as_mut()).is_pending());
    for _ in 0..40_000 {
        assert!(poll(pin!(tasks::named("short", ready(())))).is_ready());
    }
    let recording = memtrack_core::stop();
    let rows = &recording.snapshot().tasks.rows;
    assert_eq!(rows.len(), 1 << 15);
    let place_of = |row: &memtrack_core::snapshot::Task| recording.snapshot().tasks.place(row.id).unwrap();
    assert!(!rows.iter().any(|row| place_of(row).name == "first"), "its row was used again");
    assert!(rows.iter().any(|row| place_of(row).name == "running"), "running tasks keep their rows");
    let report = report_at(&recording, Moment::End);
    assert_eq!((place(&report, "short").begun, place(&report, "short").ended), (40_000, 40_000));
    assert_eq!(place(&report, "first").by_ended.live_bytes, OWN as u64);
    // At the peak, it may have been running.
    assert_eq!(place(&report_at(&recording, Moment::Peak), "first").by_unknown.live_bytes, OWN as u64);
    drop(held);
}

/// A future that allocates when it is ready.
trait ThenBlock: Future<Output = ()> + Sized {
    async fn then_block(self) -> Vec<u8> {
        self.await;
        block(OWN)
    }
}

impl<F: Future<Output = ()>> ThenBlock for F {}

#[test]
fn sampled_sums_of_tasks_are_within_their_error() {
    alone!();
    memtrack_core::start_monitor_with(&Options::new().sample(64 << 10, 8 << 10).max_entries(1 << 22))
        .unwrap();
    let many = |count: usize| {
        let task = tasks::named(if count < 30_000 { "few" } else { "many" }, async move {
            let blocks: Vec<Box<[u8; 100]>> = (0..count).map(|_| Box::new([1; 100])).collect();
            blocks
        });
        let Poll::Ready(blocks) = poll(pin!(task)) else { panic!("it is ready") };
        blocks
    };
    let kept = [20_000, 60_000].map(many);
    let recording = memtrack_core::stop();
    let report = recording.tasks(Moment::End, 10).unwrap();
    for (name, count) in [("few", 20_000_u64), ("many", 60_000)] {
        let row = &place(&report, name).by_ended;
        assert!(!is_exact(row));
        // The list of pointers is large enough to be recorded in any case.
        let known = (100 * count + 8 * count) as f64;
        let (found, error) = (row.live_bytes as f64, row.live_bytes_error);
        // Three times the error, which is given with 95 % confidence: about six standard deviations.
        assert!(found - 3.0 * (found - error.low) <= known, "{found}, exactly {known}: {error:?}");
        assert!(known <= found + 3.0 * (error.high - found), "{found}, exactly {known}: {error:?}");
        assert!((found / known - 1.0).abs() < 0.2, "{found} of {known}");
    }
    drop(kept);
}

fn memtrack(arguments: &[&str]) -> String {
    let output = Command::new(memtrack_tests::memtrack()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn files_and_other_formats_keep_tasks_apart_from_streams() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (saved, streamed, parts) =
        (path("saved.memtrack"), path("streamed.memtrack"), path("parts.memtrack"));
    for (file, options) in [
        (&saved, Options::new()),
        (&streamed, Options::new().stream_to(&streamed)),
        (&parts, Options::new().stream_to(&parts).max_bytes(1 << 20)),
    ] {
        memtrack_core::start_monitor_with(&options.exact().max_entries(1 << 22)).unwrap();
        let mut task = pin!(tasks::named("holds", async {
            let held = block(OWN);
            (0..10_000).for_each(|size| drop(block(1 + size % 2000)));
            yield_once().await;
            pending::<()>().await;
            drop(held);
        }));
        assert!(poll(task.as_mut()).is_pending());
        if file == &parts {
            // The task and its block are in the opening state of a later part.
            wait_for("the stream has several parts", || {
                (0..10_000).for_each(|size| drop(block(1 + size)));
                let files = std::fs::read_dir(folder.path()).unwrap();
                let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
                names.filter(|name| name.starts_with("parts")).count() > 2
            });
        }
        let recording = memtrack_core::stop();
        if file == &saved {
            recording.save(&saved).unwrap();
        }
        let here = recording.tasks(Moment::End, usize::MAX).unwrap();
        assert!(place(&here, "holds").by_running.live_bytes >= OWN as u64);

        let read: Value = serde_json::from_str(&memtrack(&["tasks", file, "-n", "0", "--json"])).unwrap();
        assert_eq!(read["tasks"]["places"], serde_json::to_value(&here.places).unwrap(), "{file}");
        assert_eq!(read["tasks"]["outside"], serde_json::to_value(here.outside).unwrap());
        let text = memtrack(&["tasks", file, "--wide"]);
        assert!(text.contains("holds (tasks.rs:") && text.contains("(outside tasks)"), "{text}");

        let by_task = memtrack(&["top", file, "--by", "task", "--at", "end", "--json"]);
        let by_task: Value = serde_json::from_str(&by_task).unwrap();
        let rows = by_task["devices"][0]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"].as_str().is_some_and(|name| name.starts_with("holds")));
        assert_eq!(row.unwrap()["requested_bytes"], read["tasks"]["places"][0]["held"]["live_bytes"]);
        let sum: u64 = rows.iter().map(|row| row["requested_bytes"].as_u64().unwrap()).sum();
        assert_eq!(by_task["devices"][0]["totals"]["requested_bytes"].as_u64(), Some(sum));

        let by_stream: Value =
            serde_json::from_str(&memtrack(&["top", file, "--by", "stream", "--json"])).unwrap();
        let names: Vec<&str> = by_stream["devices"][0]["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["default stream"]);
        let scrubbed = path("scrubbed.memtrack");
        memtrack(&["convert", file, &scrubbed, "--scrub", "--force"]);
        let scrubbed: Value = serde_json::from_str(&memtrack(&["tasks", &scrubbed, "--json"])).unwrap();
        let label = scrubbed["tasks"]["places"][0]["name"].as_str().unwrap();
        assert!(label.starts_with("task_") && !label.contains("tasks.rs"), "{label}");
        let pickle = path("converted.pickle");
        memtrack(&["convert", file, &pickle, "--force"]);
        let converted = Snapshot::open(&pickle, Default::default()).unwrap().snapshot;
        assert!(converted.events.stream.iter().all(|&stream| stream == StreamId(0)));
        assert!(converted.blocks.iter().all(|block| block.stream == StreamId(0)));
        let recorded = Snapshot::open(file, Default::default()).unwrap().snapshot;
        assert!(recorded.events.stream.iter().all(|&stream| stream == StreamId(0)));
        assert!(recorded.events.tasks.iter().any(|task| !task.is_none()));
        assert!(recorded.events.device.iter().all(|&device| device == DeviceId::HOST));
    }
}
