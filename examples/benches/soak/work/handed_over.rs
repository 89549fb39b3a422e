//! Blocks that one thread takes and another, which lives as long as the service, gives back; many of them now and then.

use super::{Lap, Outcome, drawn};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Blocks of a lap, and of one in eight laps.
const BLOCKS: u64 = 60_000;
const MANY_BLOCKS: u64 = 300_000;
/// Large blocks of a lap, each of which is recorded whatever the budget is: the ring is full after some thirty laps.
const LARGE_BLOCKS: u64 = 15_000;
const LARGE_BYTES: usize = 64 << 10;
/// Blocks that are handed over at once.
const BATCH: usize = 1000;

type Batch = Vec<Vec<u8>>;

/// The thread that frees what it is given.
pub struct Freeing {
    thread: Option<JoinHandle<()>>,
    line: Mutex<Option<(SyncSender<Batch>, Receiver<()>)>>,
}

impl Freeing {
    pub fn start() -> Self {
        let (blocks, take) = sync_channel::<Batch>(MANY_BLOCKS as usize / BATCH);
        let (tell, freed) = sync_channel(1);
        let free = move || {
            for batch in take {
                // An empty one asks for an answer.
                if batch.is_empty() && tell.send(()).is_err() {
                    return;
                }
            }
        };
        let thread =
            thread::Builder::new().name("freeing".to_owned()).spawn(free).expect("a thread can be had");
        Self { thread: Some(thread), line: Mutex::new(Some((blocks, freed))) }
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        drop(self.line.lock().ok().and_then(|mut line| line.take()));
        self.thread.take().map(JoinHandle::join);
    }
}

pub fn run(lap: &Lap<'_>) -> Outcome {
    for _ in 0..LARGE_BLOCKS {
        drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
    }
    let line = lap.freeing.line.lock().map_err(|_| "nobody frees any more")?;
    let (blocks, freed) = line.as_ref().ok_or("nobody frees any more")?;
    // One in eight laps holds all of its blocks first.
    let holds_many = lap.number.is_multiple_of(8);
    let count = if holds_many { MANY_BLOCKS } else { BLOCKS };
    let mut batches: Vec<Batch> = Vec::new();
    for number in 0..count {
        let size = if number % 300 == 0 { LARGE_BYTES } else { 16 + drawn(number, 300) as usize };
        if batches.last().is_none_or(|batch| batch.len() == BATCH) {
            batches.push(Vec::with_capacity(BATCH));
            if !holds_many && batches.len() > 1 {
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
