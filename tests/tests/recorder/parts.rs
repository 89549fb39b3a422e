//! A stream with a bound is several files and one recording, and no recording of an earlier run is lost to a later one.

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
/// As the child has them.
const LIVES: u64 = 50;
const STAYS: u64 = 997;

fn sizes(folder: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())).collect()
}

/// What is live of a device when the blocks up to `newest` were allocated, and the one that was then due freed or not.
fn live_after(newest: u64, freed: bool) -> BTreeSet<u64> {
    let oldest = (newest + u64::from(freed)).saturating_sub(LIVES);
    (1..=newest).filter(|number| number % STAYS == 0 || *number >= oldest).collect()
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
    // Which is due and stays has no free.
    let due_stays = newest > LIVES && (newest - LIVES).is_multiple_of(STAYS);
    let live: BTreeSet<u64> = snapshot
        .blocks
        .iter()
        .filter(|block| block.device == device)
        .map(|block| {
            assert_eq!(block.size_bytes, number_at(block.address) % 1000 + 1);
            number_at(block.address)
        })
        .collect();
    // The device's thread did not run while the oldest part was the newest, or had ended before, or the program was killed by
    // then: of this device there is only what was live when the part began.
    if events.iter().all(|event| event.thread.is_none()) {
        let is_live_after = |freed| live == live_after(newest, freed);
        assert!(is_live_after(true) || !recorded_all && is_live_after(false), "{device}: {live:?}");
        replay(snapshot, device).assert_blocks_of(snapshot, device);
        if !recorded_all {
            // Its last events before that may be in no file yet, and the counts are those of the files.
            assert!(statistics(snapshot, device).allocations <= newest, "{device}");
            return;
        }
    } else {
        assert_eq!(live, live_after(newest, last_is_free || due_stays), "{device}");
        replay(snapshot, device).assert_blocks_of(snapshot, device);
    }
    // The counts are of all events there were, whatever is left of them.
    let counts = statistics(snapshot, device);
    let bytes = |number: u64| number % 1000 + 1;
    assert_eq!(counts.allocations, newest);
    assert_eq!(counts.allocated_bytes, (1..=newest).map(bytes).sum::<u64>());
    assert_eq!(counts.allocated_bytes - counts.freed_bytes, live.iter().copied().map(bytes).sum::<u64>());
    assert_eq!(counts.recorded, counts.allocations + counts.frees);
    assert_eq!(counts.dropped, counts.recorded - events.len() as u64);
    assert!(counts.dropped > 0);
}

/// The number of the block that the child puts at an address.
fn number_at(address: u64) -> u64 {
    let unmix = |mixed: u64| (mixed ^ mixed >> 32).wrapping_mul(0xF1DE_83E1_9937_733D);
    let number = unmix(unmix(address));
    number ^ number >> 32
}

#[test]
fn parts_stay_within_the_bound_and_are_one_recording() {
    for how in ["stop", "abort"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.memtrack");
        let output = run(CHILD, &["parts", how, path.to_str().unwrap()], folder.path());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{how}");
        assert_eq!(output.status.success(), how == "stop");
        let mut files = sizes(folder.path());
        if how == "abort" {
            // Killed while a part took its place: its beginning may be there, or the newest by its next name too.
            let inode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().ino();
            let newest = inode("a.memtrack");
            files.retain(|name, _| {
                name == "a.memtrack" || !name.ends_with(".part-new") && inode(name) != newest
            });
        }
        // Each is complete at an eighth where the keeper comes by, else at a quarter and one chunk of 4,096 events (46 KiB
        // here), and the oldest goes when another chunk would exceed the bound. So there are three at least; how far the
        // newest had come at the end, and so whether there is a fourth, is chance.
        assert!(files.values().all(|bytes| *bytes <= 320 << 10), "{files:?}");
        let all = files.values().sum::<u64>();
        assert!(files.len() > 2 && (640 << 10..=1 << 20).contains(&all), "{files:?}");
        // What a part begins with: 5 KB, of which two thirds are what is live.
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
        // Whoever opens it in another way sees the same.
        let again = Snapshot::open(&path, LoadOptions::default()).unwrap();
        assert_eq!(again.snapshot, snapshot);

        // An older part is a recording too, and says that it goes on.
        let part = files.keys().find(|name| name.contains(".part-")).unwrap();
        let (oldest, report) = Snapshot::load(folder.path().join(part)).unwrap();
        assert!(report.goes_on_elsewhere && report.warning().unwrap().contains("another file"));
        for device in [0, 1, 2].map(DeviceId) {
            check_device(&oldest, device, false);
        }
        // Where one is missing the recording begins after it.
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
fn an_unfinished_recording_stays_and_the_next_one_lies_beside_it() {
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
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("a.memtrack is the unfinished recording of an earlier run and stays"),
            "{said}"
        );
        assert!(said.contains(name), "{said}");
        let (snapshot, _) = Snapshot::load(folder.path().join(name)).unwrap();
        assert_eq!(snapshot.events.rows_of(DeviceId(0)).count(), 5000);
    }
    assert_eq!(contents(&files), before);
    // A place is free only once: nothing may pile up for ever, and nothing ends the program.
    for _ in 0..14 {
        run(CHILD, &["end", "stream_abort", path], folder.path());
    }
    let full = sizes(folder.path());
    let output = run_well(CHILD, &["end", "stream_stop", path], folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("recorded in memory only") && said.contains("move them away"), "{said}");
    assert_eq!(sizes(folder.path()), full);
}

/// A process that streams blocks of a size of its own to a path.
struct Streaming {
    child: Child,
    size_bytes: u64,
}

impl Streaming {
    /// Has it ready to begin.
    fn new(path: &Path, max_bytes: u64, size_bytes: u64) -> Self {
        let mut command = Command::new(CHILD);
        command.args(["together", path.to_str().unwrap(), &max_bytes.to_string(), &size_bytes.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap(), size_bytes }
    }

    /// Has it begin.
    fn begin(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Waits until it has recorded all.
    fn record(&mut self) {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "recorded\n");
    }

    /// Lets it end; what it said.
    fn end(self) -> String {
        let output = self.child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    }
}

/// The size of the blocks of the recording at `path`, which is whole and of one process.
fn recorded_size(path: &Path) -> u64 {
    let (snapshot, report) = Snapshot::load(path).unwrap();
    assert!(report.complete && !report.damaged, "{}: {report:?}", path.display());
    let sizes: BTreeSet<u64> = snapshot.events.size_bytes.iter().copied().collect();
    assert_eq!((sizes.len(), snapshot.blocks.len()), (1, 1_000), "{}: {sizes:?}", path.display());
    *sizes.first().unwrap()
}

#[test]
fn processes_that_begin_on_one_path_at_the_same_moment_have_a_recording_each() {
    for round in 0..16 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.memtrack");
        if round % 2 == 1 {
            // What all of them may replace.
            run_well(CHILD, &["end", "stream_stop", path.to_str().unwrap()], folder.path());
        }
        let mut all: Vec<_> = (1..=3).map(|number| Streaming::new(&path, 0, number * 16)).collect();
        all.iter_mut().for_each(Streaming::begin);
        all.iter_mut().for_each(Streaming::record);
        let mut paths = BTreeSet::new();
        for streaming in all {
            let size = streaming.size_bytes;
            let said = streaming.end();
            // Each is where it says, or where it was told to be.
            let own = match said.split_once("; this one is recorded into ") {
                Some((_, beside)) => folder.path().join(beside.trim_end()),
                None => path.clone(),
            };
            let told = said.contains(&format!("another process records into {}", path.display()));
            assert_eq!(told, own != path, "{said}");
            assert_eq!(recorded_size(&own), size, "{said}");
            paths.insert(own);
        }
        assert_eq!(paths.len(), 3);
        assert_eq!(
            sizes(folder.path()).into_keys().collect::<Vec<_>>(),
            ["a.2.memtrack", "a.3.memtrack", "a.memtrack"]
        );
    }
}

#[test]
fn a_path_whose_recording_goes_on_in_parts_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let mut first = Streaming::new(&path, 1 << 20, 16);
    first.begin();
    first.record();
    assert!(sizes(folder.path()).keys().any(|name| name.contains(".part-")), "{:?}", sizes(folder.path()));
    let mut second = Streaming::new(&path, 1 << 20, 32);
    second.begin();
    second.record();
    let said = second.end();
    assert!(
        said.contains("another process records into ")
            && said.contains("recorded into ")
            && said.contains("a.2.memtrack"),
        "{said}"
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
fn a_bound_too_small_for_what_is_live_ends_the_stream_and_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let output = run_well(CHILD, &["too_small", path.to_str().unwrap()], folder.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "still here\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("is too small for what is live").count(), 1, "{said}");
    let files = sizes(folder.path());
    assert!(
        files.values().sum::<u64>() <= 1 << 20 && !files.contains_key("a.memtrack.part-new"),
        "{files:?}"
    );
    let (snapshot, report) = Snapshot::load(&path).unwrap();
    assert!(!report.complete && !snapshot.events.is_empty());
    replay(&snapshot, DeviceId(0)).assert_blocks_of(&snapshot, DeviceId(0));
}
