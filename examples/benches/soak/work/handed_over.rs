//! Blocks that one thread allocates and another frees. The freeing thread runs as long as the service. Occasionally,
//! many blocks are live at once.

use super::{Lap, Outcome, pseudo_random};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Blocks per lap; `MANY_BLOCKS` in every eighth lap.
const BLOCKS: u64 = 60_000;
const MANY_BLOCKS: u64 = 300_000;
/// Large blocks per lap, which are always recorded, whatever the budget: the ring is full after some thirty laps.
const LARGE_BLOCKS: u64 = 15_000;
const LARGE_BYTES: usize = 64 << 10;
/// Blocks that are handed over together.
const BATCH: usize = 1000;

type Batch = Vec<Vec<u8>>;

/// The thread that frees the blocks.
pub struct Freeing {
    thread: Option<JoinHandle<()>>,
    channel: Mutex<Option<(SyncSender<Batch>, Receiver<()>)>>,
}

impl Freeing {
    pub fn start() -> Self {
        let (blocks, batches) = sync_channel::<Batch>(MANY_BLOCKS as usize / BATCH);
        let (done, freed) = sync_channel(1);
        let free = move || {
            for batch in batches {
                // An empty batch requests a reply.
                if batch.is_empty() && done.send(()).is_err() {
                    return;
                }
            }
        };
        let thread =
            thread::Builder::new().name("freeing".to_owned()).spawn(free).expect("a thread can start");
        Self { thread: Some(thread), channel: Mutex::new(Some((blocks, freed))) }
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        drop(self.channel.lock().ok().and_then(|mut channel| channel.take()));
        self.thread.take().map(JoinHandle::join);
    }
}

pub fn run(lap: &Lap<'_>) -> Outcome {
    for _ in 0..LARGE_BLOCKS {
        drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
    }
    let channel = lap.freeing.channel.lock().map_err(|_| "the freeing thread has ended")?;
    let (blocks, freed) = channel.as_ref().ok_or("the freeing thread has ended")?;
    // In every eighth lap, all blocks are live at the same time.
    let keeps_all = lap.number.is_multiple_of(8);
    let count = if keeps_all { MANY_BLOCKS } else { BLOCKS };
    let mut batches: Vec<Batch> = Vec::new();
    for number in 0..count {
        let size = if number % 300 == 0 { LARGE_BYTES } else { 16 + pseudo_random(number, 300) as usize };
        if batches.last().is_none_or(|batch| batch.len() == BATCH) {
            batches.push(Vec::with_capacity(BATCH));
            if !keeps_all && batches.len() > 1 {
                blocks.send(batches.swap_remove(0))?;
            }
        }
        if let Some(batch) = batches.last_mut() {
            batch.push(Vec::with_capacity(size));
        }
    }
    for batch in batches {
        blocks.send(batch)?;
    }
    blocks.send(Vec::new())?;
    Ok(freed.recv()?)
}
