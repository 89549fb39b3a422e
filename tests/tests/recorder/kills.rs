//! However and whenever a program ends, the file of its stream can be opened and contains all recorded events, except those in
//! the queue and in partly filled chunks. By default, thirty programs are ended. For a thousand, run `MEMTRACK_KILLS=1000 cargo
//! test -p memtrack-tests --test recorder kills` on an idle machine: the documented delay holds only there, and is then checked,
//! too.

use memtrack_core::event::{Action, DeviceId, Event};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::child::start;
use memtrack_tests::replay::replay;
use memtrack_tests::time::HANG;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");
/// The number of concurrent children. Each child runs for its random time, whatever its share of the processors.
const AT_ONCE: usize = 10;
/// The interval at which a child stores its progress: the value of the constant `MOMENT` of the program `recorder_child`.
const MOMENT: Duration = Duration::from_millis(50);
/// The documented delay, plus the delay that ten concurrent programs add.
const DELAY: Duration = Duration::from_millis(500 + 1500);

/// The number of threads of a child; each thread uses a separate device.
const THREADS: u64 = 3;
const CHUNK_EVENTS: u64 = 4096;
/// The number of chunks that may wait to be written: first for a file of unlimited size, then for a recording that is limited
/// to `PARTS_BYTES`.
const MAX_WAITING: u64 = 64;
const MOST_WAITING_OF_PARTS: u64 = 3;
const PARTS_BYTES: &str = "4000000";

const WAYS: [&str; 6] = ["signal", "kill", "abort", "segv", "memory", "disk"];

/// Returns a pseudorandom number below `below`.
fn pseudorandom(number: usize, below: u64) -> u64 {
    let mixed = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) % below
}

fn end_one(number: usize, is_idle: bool) {
    let way = WAYS[number % WAYS.len()];
    let folder = tempfile::tempdir().unwrap();
    let (path, progress) = (folder.path().join("a.memtrack"), folder.path().join("progress"));
    let after = pseudorandom(number, 3500);
    // The rounds through all `WAYS` alternate between a single file and a recording in several parts.
    let max_bytes = if (number / WAYS.len()).is_multiple_of(2) { "0" } else { PARTS_BYTES };
    let how = if way == "signal" { "kill" } else { way };
    let in_child = if way == "signal" { 60_000 } else { after };
    let in_child = in_child.to_string();
    let arguments =
        ["until_the_end", how, &in_child, max_bytes, path.to_str().unwrap(), progress.to_str().unwrap()];
    let mut child = start(CHILD, &arguments, folder.path());
    let begin = Instant::now();
    let mut signalled = false;
    loop {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        // The signal is not sent before the child records.
        let records = fs::metadata(&path).is_ok_and(|data| data.len() > 0);
        if way == "signal" && records && !signalled && begin.elapsed() >= Duration::from_millis(after) {
            child.kill().unwrap();
            signalled = true;
        }
        assert!(begin.elapsed() < HANG, "{number} ({way}) hangs");
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let what = format!("{number} ({way} after {after} ms, bound {max_bytes}): {stderr}");
    let (snapshot, report) = Snapshot::load(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!report.damaged && report.unknown_ids == 0, "{what}: {report:?}");
    let words: Vec<u64> = fs::read(&progress)
        .unwrap()
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let moments = words[0] as usize;
    let recorded = |moment: usize, device: usize| words[1 + 3 * moment + device];
    let (mut kept, mut lost) = (0, 0);
    for device in 0..3_usize {
        let id = DeviceId(device as u16);
        replay(&snapshot, id).assert_blocks_of(&snapshot, id);
        // Blocks that were live when the oldest part began come first; they have no thread, and their numbers have gaps.
        let has_thread = |event: &Event| event.action == Action::Alloc && !event.thread.is_none();
        let numbers: Vec<u64> = snapshot
            .events
            .rows_of(id)
            .map(|row| snapshot.events.get(row))
            .filter(has_thread)
            .map(|event| number_at(event.address))
            .collect();
        // The numbers in the threads' events have no gaps, and start at 1 unless a part was deleted.
        assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{what}: device {device}");
        let allocs = snapshot.events.rows_of(id).map(|row| snapshot.events.get(row));
        let allocs = allocs.filter(|event| event.action == Action::Alloc);
        let newest = allocs.map(|event| number_at(event.address)).max().unwrap_or(0);
        kept += numbers.len();
        if snapshot.meta.earlier_parts == 0 {
            assert!(numbers.is_empty() || numbers[0] == 1, "{what}: device {device}");
        }
        if moments > 0 {
            lost += recorded(moments - 1, device).saturating_sub(newest);
        }
        let lost_moments = (DELAY.as_millis() / MOMENT.as_millis()) as usize;
        if is_idle && way != "disk" && moments > lost_moments {
            let before = recorded(moments - 1 - lost_moments, device);
            assert!(newest >= before, "{what}: {newest} of device {device}, {before} recorded in time");
        }
    }
    assert!(snapshot.meta.earlier_parts == 0 || kept > 1000, "{what}: {kept} blocks");
    if way != "disk" {
        // Nearly every block has two events. For each thread, one more chunk may wait for the queue, and one is being filled.
        let waiting = if max_bytes == PARTS_BYTES { MOST_WAITING_OF_PARTS } else { MAX_WAITING };
        let most = (waiting + 2 * THREADS) * CHUNK_EVENTS;
        assert!(lost * 3 / 2 <= most, "{what}: {lost} blocks lost, of at most {most} events");
    }
    if way == "disk" {
        assert!(output.status.success(), "{what}");
    }
}

/// Returns the number of the block that the child allocates at an address.
fn number_at(address: u64) -> u64 {
    let unmix = |mixed: u64| (mixed ^ mixed >> 32).wrapping_mul(0xF1DE_83E1_9937_733D);
    let number = unmix(unmix(address));
    number ^ number >> 32
}

#[test]
fn a_stream_contains_all_but_queued_and_partly_filled_chunks_however_a_program_ends() {
    let kills: Option<usize> = std::env::var("MEMTRACK_KILLS").ok().and_then(|kills| kills.parse().ok());
    let (is_idle, kills) = (kills.is_some(), kills.unwrap_or(30));
    thread::scope(|scope| {
        for lane in 0..AT_ONCE {
            scope.spawn(move || (lane..kills).step_by(AT_ONCE).for_each(|number| end_one(number, is_idle)));
        }
    });
}
