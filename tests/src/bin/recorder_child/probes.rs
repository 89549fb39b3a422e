//! The events of which static probes report the details to tools outside the program.

use memtrack_core::event::{Action, DeviceId, StreamId};
use memtrack_core::recorder::{Options, record_alloc, record_free};
use memtrack_core::recorder::{record_free_completed, record_free_requested};
use std::hint::black_box;
use std::thread;

const DEVICE: DeviceId = DeviceId(3);
const STREAM: StreamId = StreamId(9);

/// Allocates and frees on the host heap and on a device while a tool is attached, and prints what the recording contains, as
/// `NAME NUMBER` lines: what the probes of the same events must add up to. `how` is `exact` or `sampled`.
pub fn events(how: &str, rounds: u64) {
    let options = match how {
        "exact" => Options::new().exact(),
        _ => Options::new().sample(64 << 10, 8 << 10),
    };
    memtrack_core::start_monitor_with(&options).unwrap();
    let kept = thread::scope(|threads| {
        let workers: Vec<_> = (0..2).map(|seed| threads.spawn(move || blocks(seed, rounds))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    device_blocks();
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    let (mut allocs, mut frees, mut size, mut weighted) = (0_u64, 0_u64, 0, 0);
    for row in snapshot.events.rows_of(DeviceId::HOST) {
        match snapshot.events.action[row] {
            Action::Alloc => {
                let block = snapshot.weighed_event(row);
                allocs += 1;
                size += block.size_bytes;
                weighted += block.bytes;
            }
            Action::Free => frees += 1,
            _ => {}
        }
    }
    let requested: u64 = kept.iter().map(|(requested, _)| requested).sum();
    println!("allocs {allocs}\nfrees {frees}\nsize {size}\nweighted {weighted}\nrequested {requested}");
}

/// Allocates, reallocates and frees blocks of many sizes. Returns the bytes that were requested, and the blocks that are
/// left.
fn blocks(seed: u64, rounds: u64) -> (u64, Vec<Vec<u8>>) {
    let mut requested = 0;
    let mut kept: Vec<Vec<u8>> = Vec::with_capacity(64);
    for round in 0..rounds {
        let size_bytes = match round % 16 {
            15 => 100_000,
            step => 40 + 97 * step + seed,
        };
        let mut block: Vec<u8> = Vec::with_capacity(size_bytes as usize);
        requested += size_bytes;
        if round % 5 == 0 {
            black_box(&mut block).reserve_exact(2 * size_bytes as usize);
            requested += 2 * size_bytes;
        }
        match kept.len() {
            64 => drop(kept.swap_remove((round * 7 % 64) as usize)),
            _ => kept.push(black_box(block)),
        }
    }
    (requested, kept)
}

/// Reports blocks of a device: freed at once, freed while another stream uses them, and still live at the end.
fn device_blocks() {
    let block = |number: u64| (0x7000_0000 + 4096 * number, 1000 + number);
    for (address, size_bytes) in (0..30).map(block) {
        record_alloc(DEVICE, STREAM, address, size_bytes);
    }
    for (address, size_bytes) in (0..10).map(block) {
        record_free(DEVICE, STREAM, address, size_bytes);
    }
    for (address, size_bytes) in (10..20).map(block) {
        record_free_requested(DEVICE, STREAM, address, size_bytes);
        record_free_completed(DEVICE, STREAM, address, size_bytes);
    }
}
