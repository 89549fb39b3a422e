//! The sums of scopes are exact in every mode: to the byte on one thread, and on many threads once they have ended.

use memtrack_core::analysis::top::{By, TopOptions, top};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{Options, record_alloc, record_free};
use memtrack_core::scope;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::alone;
use memtrack_tests::scopes::block;
use memtrack_tests::time::wait_for;
use std::collections::BTreeMap;
use std::thread;

const HOST: DeviceId = DeviceId::HOST;

/// Returns the bytes and blocks that one device allocated in each scope, by the scope's path.
fn sums(snapshot: &Snapshot, device: DeviceId) -> BTreeMap<String, [u64; 2]> {
    let rows = snapshot.scope_sums_of(device).expect("the recorder keeps them");
    let path = |id| {
        let mut names: Vec<_> = snapshot.scopes.outwards(id).map(|step| step.name.to_owned()).collect();
        names.reverse();
        names.join("/")
    };
    rows.map(|row| (path(row.scope), [row.allocated_bytes, row.allocations])).collect()
}

/// Returns the bytes and blocks that a device allocated: first as the device counted them, then as the sum over all scopes.
fn totals(snapshot: &Snapshot, device: DeviceId) -> [[u64; 2]; 2] {
    let row = snapshot.devices.iter().find(|row| row.device == device).expect("the device allocated");
    let scopes = snapshot.scope_sums_of(device).expect("the recorder keeps them");
    let sum = scopes.fold([0, 0], |[b, n], row| [b + row.allocated_bytes, n + row.allocations]);
    [[row.allocated_bytes, row.allocations], sum]
}

fn expected(rows: &[(&str, [u64; 2])]) -> BTreeMap<String, [u64; 2]> {
    rows.iter().map(|(path, sum)| ((*path).to_owned(), *sum)).collect()
}

/// Returns the sums of all scopes, without the memory outside scopes, where the test itself may allocate.
fn inside(snapshot: &Snapshot, device: DeviceId) -> BTreeMap<String, [u64; 2]> {
    let mut sums = sums(snapshot, device);
    sums.remove("");
    sums
}

#[test]
fn rows_of_scopes_are_exact_to_the_byte_in_every_mode() {
    alone!();
    check_scopes_of_a_net(&Options::new().exact(), Some(false));
    check_scopes_of_a_net(&Options::new().sample(1 << 20, 1 << 20), Some(true));
    // With this budget, it depends on the machine whether every block is recorded, so the test does not check that (`None`).
    check_scopes_of_a_net(&Options::new(), None);
}

fn check_scopes_of_a_net(options: &Options, is_sampled: Option<bool>) {
    memtrack_core::start_monitor_with(options).unwrap();
    for round in 0..1000 {
        let _root = scope::root("Net");
        block(10);
        {
            let _module = scope::module("encoder");
            (0..7).for_each(|_| block(100));
            {
                let _operator = scope::operator("matmul");
                block(1000);
                block(100_000);
            }
            block(round % 3 + 1);
        }
        let _backward = scope::backward();
        block(24);
    }
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    let encoder_bytes = 700_000 + (0..1000).map(|round| round % 3 + 1).sum::<u64>();
    assert_eq!(
        inside(snapshot, HOST),
        expected(&[
            ("Net", [10_000, 1000]),
            ("Net/backward", [24_000, 1000]),
            ("Net/encoder", [encoder_bytes, 8000]),
            ("Net/encoder/matmul", [101_000_000, 2000]),
        ])
    );
    let [device, scopes] = totals(snapshot, HOST);
    assert_eq!(device, scopes);

    let report = top(snapshot, By::Operator, HOST, &TopOptions::default());
    let row = report.rows.iter().find(|row| row.name == "encoder.forward.matmul").unwrap();
    assert_eq!((row.allocated_bytes, row.count, row.estimated), (101_000_000, 2000, false));
    assert!(report.exact_scopes && !report.totals.estimated);
    assert_eq!(report.attribution.annotated, 101_000_000);
    assert_eq!(report.to_json()["rows"][0]["estimated"], false);
    let text = report.to_text(None);
    let line = text.lines().find(|line| line.contains("encoder.forward.matmul")).unwrap();
    assert!(line.contains(" 96.3 MiB ") && line.contains(" 2,000 "), "{line}");
    if let Some(is_sampled) = is_sampled {
        // The sums of scopes are exact, but if blocks were sampled, the live bytes at the peak are an estimate: the bytes that
        // were live just before the sampled block. A row without a sampled block has no live bytes at the peak.
        let row = report.rows.iter().find(|row| row.name == "encoder.forward.matmul").unwrap();
        let is_estimate = is_sampled && row.live_at_peak_bytes > 0;
        assert_eq!(!row.live_at_peak_error.is_exact(), is_estimate, "{line}");
    }

    let report = top(snapshot, By::Phase, HOST, &TopOptions::default());
    let phase = |name: &str| report.rows.iter().find(|row| row.name == name).unwrap();
    assert_eq!(phase("forward").allocated_bytes, 10_000 + encoder_bytes + 101_000_000);
    assert_eq!((phase("backward").allocated_bytes, phase("backward").count), (24_000, 1000));
    assert!(!phase("backward").estimated);
    let report = top(snapshot, By::Module, HOST, &TopOptions::default());
    let row = report.rows.iter().find(|row| row.name == "encoder").unwrap();
    assert_eq!((row.allocated_bytes, row.count, row.estimated), (encoder_bytes + 101_000_000, 10_000, false));
}

#[test]
fn open_scopes_count_up_to_the_snapshot() {
    alone!();
    memtrack_core::start_monitor();
    let _open = scope::module("open");
    block(100);
    let _inner = scope::operator("inner");
    block(200);
    let during = memtrack_core::snapshot().unwrap();
    block(300);
    let recording = memtrack_core::stop();
    // The memory that the snapshot itself uses is internal, and does not count.
    assert_eq!(inside(&during, HOST), expected(&[("open", [100, 1]), ("open/inner", [200, 1])]));
    assert_eq!(inside(recording.snapshot(), HOST)["open/inner"], [500, 2]);
}

#[test]
fn sums_begin_at_zero_and_overlapping_sessions_share_them() {
    alone!();
    let _around = scope::module("not there: nothing is monitored yet");
    let work = || {
        let _operator = scope::operator("again");
        block(64);
    };
    memtrack_core::start_monitor();
    work();
    let _open = scope::module("left open");
    block(8);
    drop(memtrack_core::stop());
    block(1 << 20);
    memtrack_core::start_monitor();
    block(16);
    memtrack_core::start_monitor();
    drop(_open);
    work();
    let inner = memtrack_core::stop();
    work();
    let outer = memtrack_core::stop();
    assert_eq!(inside(inner.snapshot(), HOST), expected(&[("again", [64, 1]), ("left open", [16, 1])]));
    assert_eq!(inside(outer.snapshot(), HOST)["again"], [128, 2]);
}

#[test]
fn the_sums_of_ended_threads_add_up_to_those_of_the_device() {
    alone!();
    memtrack_core::start_monitor();
    let threads = (0..8).map(|number| {
        thread::spawn(move || {
            for round in 0..500_u64 {
                let _module = scope::module(["even", "odd"][number % 2]);
                block(32);
                let _operator = scope::operator("shared");
                block(48);
                let address = (number as u64 + 1) << 32 | round << 12;
                record_alloc(DeviceId(1), StreamId(0), address, 512);
                record_free(DeviceId(1), StreamId(0), address, 512);
            }
            // The thread's last allocation is inside a scope that never ends.
            std::mem::forget(scope::module("forgotten"));
            block(7);
        })
    });
    // `join` waits for the whole thread; `thread::scope` would wait only for the closure, not for the thread's cleanup in libc.
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    let host = inside(snapshot, HOST);
    assert_eq!((host["even"], host["odd/shared"]), ([4 * 500 * 32, 2000], [4 * 500 * 48, 2000]));
    assert_eq!(host["forgotten"], [8 * 7, 8]);
    let device = sums(snapshot, DeviceId(1));
    assert_eq!(
        device,
        expected(&[("even/shared", [4 * 500 * 512, 2000]), ("odd/shared", [4 * 500 * 512, 2000])])
    );
    for device in [HOST, DeviceId(1)] {
        let [device, scopes] = totals(snapshot, device);
        assert_eq!(device, scopes);
    }
}

#[test]
fn the_sums_are_in_the_file() {
    alone!();
    memtrack_core::start_monitor();
    (0..50).for_each(|_| {
        let _operator = scope::operator("saved");
        block(40);
    });
    let recording = memtrack_core::stop();
    let file = recording.snapshot().save_to(Vec::new()).unwrap();
    let (loaded, report) = memtrack_core::snapshot::recording::load_from(&file[..]).unwrap();
    assert!(report.complete && report.unknown_chunks == 0);
    assert_eq!(loaded.scope_sums, recording.snapshot().scope_sums);
    assert_eq!(inside(&loaded, HOST)["saved"], [2000, 50]);
}

#[test]
fn an_unfinished_stream_has_sums_of_an_earlier_moment() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.memtrack");
    memtrack_core::start_monitor_with(&Options::new().stream_to(&path)).unwrap();
    {
        let _operator = scope::operator("early");
        block(1000);
    }
    // Sums that were written before the scope was entered lack it, so the test waits for newer ones.
    let expected = expected(&[("early", [1000, 1])]);
    let mut newest = None;
    wait_for("the scope's sums are in the file", || {
        let (snapshot, report) = Snapshot::load(&path).unwrap();
        assert!(!report.complete);
        let has_sums = snapshot.scope_sums.is_some() && inside(&snapshot, HOST) == expected;
        newest = Some(snapshot);
        has_sums
    });
    let snapshot = newest.expect("one was read");
    let report = top(&snapshot, By::Operator, HOST, &TopOptions::default());
    assert!(report.sums_at_seconds.is_some_and(|seconds| seconds >= 0.0));
    assert!(report.to_text(None).contains("The exact sums of scopes are those of "));
    drop(memtrack_core::stop());
    let ended = Snapshot::load(&path).unwrap().0;
    let report = top(&ended, By::Operator, HOST, &TopOptions::default());
    assert_eq!(report.sums_at_seconds, None);
}

#[test]
fn the_end_of_a_stream_has_the_sums_of_scopes_without_events() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.memtrack");
    memtrack_core::start_monitor_with(&Options::new().sample(64 << 10, 1 << 40).stream_to(&path)).unwrap();
    {
        let _module = scope::module("quiet");
        block(123);
    }
    drop(memtrack_core::stop());
    let (loaded, report) = Snapshot::load(&path).unwrap();
    assert!(report.complete);
    assert_eq!(inside(&loaded, HOST), expected(&[("quiet", [123, 1])]));
}
