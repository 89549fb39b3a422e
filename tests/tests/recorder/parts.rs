//! A bounded stream is one recording in several files, and a run does not replace the unfinished recording of an earlier run.

use memtrack_core::event::{Action, DeviceId};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_tests::child::{run, run_well};
use memtrack_tests::replay::{replay, statistics};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");
/// A block is freed after this many further allocations, except every block whose number is a multiple of `KEPT_EVERY`. Both
/// values are those of `LIVES` and `STAYS` in the program `recorder_child`.
const LIVE_BLOCKS: u64 = 50;
const KEPT_EVERY: u64 = 997;

fn sizes(folder: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())).collect()
}

/// Returns the numbers of a device's live blocks after block `newest` was allocated. With `freed`, the block that is freed
/// after this allocation has already been freed.
fn live_after(newest: u64, freed: bool) -> BTreeSet<u64> {
    let oldest = (newest + u64::from(freed)).saturating_sub(LIVE_BLOCKS);
    (1..=newest).filter(|number| number % KEPT_EVERY == 0 || *number >= oldest).collect()
}

fn check_device(snapshot: &Snapshot, device: DeviceId, recorded_all: bool) {
    let events: Vec<_> = snapshot.events.rows_of(device).map(|row| snapshot.events.get(row)).collect();
    let newest = events
        .iter()
        .filter(|event| event.action == Action::Alloc)
        .map(|event| number_at(event.address))
        .max();
    let newest = newest.unwrap();
    assert!(!recorded_all || newest == 25_000, "{newest}");
    let is_free = |event: &memtrack_core::event::Event| event.action == Action::Free;
    let last_is_free = events.last().is_some_and(is_free);
    // Whether the block that would be freed after the newest allocation is one that is never freed.
    let due_stays = newest > LIVE_BLOCKS && (newest - LIVE_BLOCKS).is_multiple_of(KEPT_EVERY);
    let live: BTreeSet<u64> = snapshot
        .blocks
        .iter()
        .filter(|block| block.device == device)
        .map(|block| {
            assert_eq!(block.size_bytes, number_at(block.address) % 1000 + 1);
            number_at(block.address)
        })
        .collect();
    // The device's thread recorded nothing in these parts: it was not scheduled, had ended, or was killed. The parts contain only
    // the device's blocks that were live when the oldest part began.
    if events.iter().all(|event| event.thread.is_none()) {
        let is_live_after = |freed| live == live_after(newest, freed);
        assert!(is_live_after(true) || !recorded_all && is_live_after(false), "{device}: {live:?}");
        replay(snapshot, device).assert_blocks_of(snapshot, device);
        if !recorded_all {
            // The thread's last events before the oldest part may be in no file yet, and the counts include only written events.
            assert!(statistics(snapshot, device).allocations <= newest, "{device}");
            return;
        }
    } else {
        assert_eq!(live, live_after(newest, last_is_free || due_stays), "{device}");
        replay(snapshot, device).assert_blocks_of(snapshot, device);
    }
    // The counts include the dropped events.
    let counts = statistics(snapshot, device);
    let bytes = |number: u64| number % 1000 + 1;
    assert_eq!(counts.allocations, newest);
    assert_eq!(counts.allocated_bytes, (1..=newest).map(bytes).sum::<u64>());
    assert_eq!(counts.allocated_bytes - counts.freed_bytes, live.iter().copied().map(bytes).sum::<u64>());
    assert_eq!(counts.recorded, counts.allocations + counts.frees);
    assert_eq!(counts.dropped, counts.recorded - events.len() as u64);
    assert!(counts.dropped > 0);
}

/// Returns the number of the block that the child allocates at an address.
fn number_at(address: u64) -> u64 {
    let unmix = |mixed: u64| (mixed ^ mixed >> 32).wrapping_mul(0xF1DE_83E1_9937_733D);
    let number = unmix(unmix(address));
    number ^ number >> 32
}

#[test]
fn parts_stay_within_the_bound_and_form_one_recording() {
    for how in ["stop", "abort"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.memtrack");
        let output = run(CHILD, &["parts", how, path.to_str().unwrap()], folder.path());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{how}");
        assert_eq!(output.status.success(), how == "stop");
        let mut files = sizes(folder.path());
        if how == "abort" {
            // The program may end while it starts a part: that part may be incomplete, or the newest part may have two names.
            let inode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().ino();
            let newest = inode("a.memtrack");
            files.retain(|name, _| {
                name == "a.memtrack" || !name.ends_with(".part-new") && inode(name) != newest
            });
        }
        // A part is finished at an eighth of the bound if the stream's thread checks then, or else at a quarter plus one chunk of
        // 4,096 events (46 KiB here). The oldest part is deleted when another chunk would exceed the bound. So there are at least
        // three parts; whether there is a fourth depends on the size of the newest part at the end.
        assert!(files.values().all(|bytes| *bytes <= 320 << 10), "{files:?}");
        let all = files.values().sum::<u64>();
        assert!(files.len() > 2 && (640 << 10..=1 << 20).contains(&all), "{files:?}");
        // The head of a part has about 5 KB, two thirds of which are live blocks.
        for name in files.keys() {
            let content = fs::read(folder.path().join(name)).unwrap();
            let events = content.windows(4).position(|kind| kind == b"EVNT");
            let head = events.unwrap_or(content.len());
            assert!(head <= 16 << 10, "{name}: {head}");
        }
        assert!(files.contains_key("a.memtrack"), "{files:?}");
        let (snapshot, report) = Snapshot::load(&path).unwrap();
        assert_eq!(report.complete, how == "stop");
        assert_eq!((report.parts as usize, report.damaged), (files.len() - 1, false));
        assert!(snapshot.meta.earlier_parts > 0);
        for device in [0, 1, 2].map(DeviceId) {
            check_device(&snapshot, device, how == "stop");
        }
        // `Snapshot::open` returns the same snapshot.
        let again = Snapshot::open(&path, LoadOptions::default()).unwrap();
        assert_eq!(again.snapshot, snapshot);

        // An older part is a recording, too, and reports that it continues in another file.
        let part = files.keys().find(|name| name.contains(".part-")).unwrap();
        let (oldest, report) = Snapshot::load(folder.path().join(part)).unwrap();
        assert!(report.continues_elsewhere && report.warning().unwrap().contains("another file"));
        for device in [0, 1, 2].map(DeviceId) {
            check_device(&oldest, device, false);
        }
        // If a part is missing, the recording begins after it.
        fs::remove_file(folder.path().join(part)).unwrap();
        let (rest, _) = Snapshot::load(&path).unwrap();
        for device in [0, 1, 2].map(DeviceId) {
            check_device(&rest, device, how == "stop");
        }
    }
}

#[test]
fn a_finished_recording_is_replaced_with_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    run_well(CHILD, &["parts", "stop", path.to_str().unwrap()], folder.path());
    let first = sizes(folder.path());
    run_well(CHILD, &["end", "stream_stop", path.to_str().unwrap()], folder.path());
    assert!(first.len() > 1);
    assert_eq!(sizes(folder.path()).into_keys().collect::<Vec<_>>(), ["a.memtrack"]);
}

#[test]
fn an_unfinished_recording_stays_and_the_next_one_gets_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let path = path.to_str().unwrap();
    run(CHILD, &["parts", "abort", path], folder.path());
    let contents = |names: &BTreeMap<String, u64>| -> Vec<Vec<u8>> {
        names.keys().map(|name| fs::read(folder.path().join(name)).unwrap()).collect()
    };
    let files = sizes(folder.path());
    let before = contents(&files);
    for name in ["a.2.memtrack", "a.3.memtrack"] {
        let output = run(CHILD, &["end", "stream_abort", path], folder.path());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("a.memtrack is the unfinished recording of an earlier run and stays"),
            "{stderr}"
        );
        assert!(stderr.contains(name), "{stderr}");
        let (snapshot, _) = Snapshot::load(folder.path().join(name)).unwrap();
        assert_eq!(snapshot.events.rows_of(DeviceId(0)).count(), 5000);
    }
    assert_eq!(contents(&files), before);
    // The number of file names is limited, so that files do not accumulate; beyond the limit, the program runs without a file.
    for _ in 0..14 {
        run(CHILD, &["end", "stream_abort", path], folder.path());
    }
    let full = sizes(folder.path());
    let output = run_well(CHILD, &["end", "stream_stop", path], folder.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("recorded in memory only") && stderr.contains("move them away"), "{stderr}");
    assert_eq!(sizes(folder.path()), full);
}

/// A process that streams blocks of one size to a path.
struct Streaming {
    child: Child,
    size_bytes: u64,
}

impl Streaming {
    /// Starts a process that waits for [`Self::begin`].
    fn new(path: &Path, max_bytes: u64, size_bytes: u64) -> Self {
        let mut command = Command::new(CHILD);
        command.args(["together", path.to_str().unwrap(), &max_bytes.to_string(), &size_bytes.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap(), size_bytes }
    }

    /// Makes the process start recording.
    fn begin(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Waits until the process has recorded everything.
    fn record(&mut self) {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "recorded\n");
    }

    /// Lets the process end, and returns its stderr.
    fn end(self) -> String {
        let output = self.child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        stderr
    }
}

/// Returns the block size in the recording at `path`, which must be complete and come from one process.
fn recorded_size(path: &Path) -> u64 {
    let (snapshot, report) = Snapshot::load(path).unwrap();
    assert!(report.complete && !report.damaged, "{}: {report:?}", path.display());
    let sizes: BTreeSet<u64> = snapshot.events.size_bytes.iter().copied().collect();
    assert_eq!((sizes.len(), snapshot.blocks.len()), (1, 1_000), "{}: {sizes:?}", path.display());
    *sizes.first().unwrap()
}

#[test]
fn processes_that_start_on_one_path_at_once_have_separate_recordings() {
    for round in 0..16 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.memtrack");
        if round % 2 == 1 {
            // A finished recording, which any of the processes may replace.
            run_well(CHILD, &["end", "stream_stop", path.to_str().unwrap()], folder.path());
        }
        let mut all: Vec<_> = (1..=3).map(|number| Streaming::new(&path, 0, number * 16)).collect();
        all.iter_mut().for_each(Streaming::begin);
        all.iter_mut().for_each(Streaming::record);
        let mut paths = BTreeSet::new();
        for streaming in all {
            let size = streaming.size_bytes;
            let stderr = streaming.end();
            // Each recording is at the path that its process printed, or at the requested path.
            let actual = match stderr.split_once("; this one is recorded into ") {
                Some((_, beside)) => folder.path().join(beside.trim_end()),
                None => path.clone(),
            };
            let is_reported = stderr.contains(&format!("another process records into {}", path.display()));
            assert_eq!(is_reported, actual != path, "{stderr}");
            assert_eq!(recorded_size(&actual), size, "{stderr}");
            paths.insert(actual);
        }
        assert_eq!(paths.len(), 3);
        assert_eq!(
            sizes(folder.path()).into_keys().collect::<Vec<_>>(),
            ["a.2.memtrack", "a.3.memtrack", "a.memtrack"]
        );
    }
}

#[test]
fn a_path_with_an_active_recording_in_parts_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let mut first = Streaming::new(&path, 1 << 20, 16);
    first.begin();
    first.record();
    assert!(sizes(folder.path()).keys().any(|name| name.contains(".part-")), "{:?}", sizes(folder.path()));
    let mut second = Streaming::new(&path, 1 << 20, 32);
    second.begin();
    second.record();
    let stderr = second.end();
    assert!(
        stderr.contains("another process records into ")
            && stderr.contains("recorded into ")
            && stderr.contains("a.2.memtrack"),
        "{stderr}"
    );
    assert_eq!(first.end(), "");
    let live = |name: &str| {
        let (snapshot, report) = Snapshot::load(folder.path().join(name)).unwrap();
        assert!(report.complete && !report.damaged && report.parts > 0, "{name}: {report:?}");
        let sizes: BTreeSet<u64> = snapshot.blocks.iter().map(|block| block.size_bytes).collect();
        (snapshot.blocks.len(), sizes)
    };
    assert_eq!(live("a.memtrack"), (1_000, [16].into()));
    assert_eq!(live("a.2.memtrack"), (1_000, [32].into()));
}

#[test]
fn a_bound_too_small_for_live_blocks_ends_the_stream_and_is_not_exceeded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let output = run_well(CHILD, &["too_small", path.to_str().unwrap()], folder.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "still here\n");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("is too small for what is live").count(), 1, "{stderr}");
    let files = sizes(folder.path());
    assert!(
        files.values().sum::<u64>() <= 1 << 20 && !files.contains_key("a.memtrack.part-new"),
        "{files:?}"
    );
    let (snapshot, report) = Snapshot::load(&path).unwrap();
    assert!(!report.complete && !snapshot.events.is_empty());
    replay(&snapshot, DeviceId(0)).assert_blocks_of(&snapshot, DeviceId(0));
}
