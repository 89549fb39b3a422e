//! What a program does to its allocator, and what it knows about it: several threads allocate, zeroed and aligned blocks too,
//! reallocate, and free each other's blocks; some blocks are freed as their thread ends. memtrack's sums, live blocks and reports
//! are compared with the program's own sums: to the byte in exact mode, and within the error otherwise.
//!
//! Only blocks that are allocated in the scope `WORK` are compared. The lists that refer to them are allocated outside.

mod block;

use block::Block;
use memtrack_core::analysis::estimate::Estimate;
use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::top::TopReport;
use memtrack_core::event::DeviceId;
use memtrack_core::{By, Options, Recording, scope};
use std::cell::RefCell;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// The scope of all compared blocks.
const WORK: &str = "work";
const THREADS: u64 = 4;
/// The blocks that each thread may have at a time.
const PLACES: usize = 500;

/// The sums of the blocks in the scope, as the program knows them. A reallocation is a free and an allocation, as for memtrack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    allocated_bytes: u64,
    allocations: u64,
    freed_bytes: u64,
    frees: u64,
}

impl Sums {
    fn allocated(&mut self, bytes: usize) {
        self.allocated_bytes += bytes as u64;
        self.allocations += 1;
    }

    fn freed(&mut self, bytes: usize) {
        self.freed_bytes += bytes as u64;
        self.frees += 1;
    }

    fn with(self, other: Self) -> Self {
        Self {
            allocated_bytes: self.allocated_bytes + other.allocated_bytes,
            allocations: self.allocations + other.allocations,
            freed_bytes: self.freed_bytes + other.freed_bytes,
            frees: self.frees + other.frees,
        }
    }

    fn live(self) -> (u64, u64) {
        (self.allocated_bytes - self.freed_bytes, self.allocations - self.frees)
    }
}

/// Pseudo-random numbers, the same in each run (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// Returns the size of a block: mostly small, sometimes beyond every size class of an allocator.
    fn size(&mut self) -> usize {
        match self.below(1000) {
            0 => 1 + self.below(3 << 20),
            1..20 => 1 + self.below(40_000),
            _ => 1 + self.below(300),
        }
    }
}

thread_local! {
    /// A block that is freed when the thread has ended, as the thread's other destructors run.
    static AT_THREAD_END: RefCell<Option<Block>> = const { RefCell::new(None) };
}

/// Allocates, reallocates and frees for a number of `rounds`, and passes some blocks to the next thread, which frees them.
/// Returns the blocks that are still live, and the sums.
fn work(seed: u64, rounds: usize, next: &SyncSender<Block>, passed: &Receiver<Block>) -> (Vec<Block>, Sums) {
    let (mut random, mut sums) = (Random(seed), Sums::default());
    let mut blocks: Vec<Option<Block>> = Vec::new();
    blocks.resize_with(PLACES, || None);
    let free = |block: Block, sums: &mut Sums| sums.freed(block.free());
    for _ in 0..rounds {
        let size = random.size();
        let place = random.below(PLACES);
        let how = random.below(10);
        match (blocks[place].take(), how) {
            (None, _) => {
                let _work = scope::operator(WORK);
                let block = Block::allocate(how, size);
                sums.allocated(block.size());
                blocks[place] = Some(block);
            }
            (Some(mut block), 0..3) => {
                let _work = scope::operator(WORK);
                let before = block.size();
                if block.reallocate(size) {
                    sums.freed(before);
                    sums.allocated(block.size());
                }
                blocks[place] = Some(block);
            }
            (Some(block), 3..6) => {
                if let Err(error) = next.try_send(block) {
                    let (std::sync::mpsc::TrySendError::Full(block)
                    | std::sync::mpsc::TrySendError::Disconnected(block)) = error;
                    free(block, &mut sums);
                }
            }
            (Some(block), _) => free(block, &mut sums),
        }
        passed.try_iter().for_each(|block| free(block, &mut sums));
    }
    let block = {
        let _work = scope::operator(WORK);
        Block::allocate(0, random.size())
    };
    sums.allocated(block.size());
    // It is freed before the thread has been joined.
    sums.freed(block.size());
    AT_THREAD_END.set(Some(block));
    (blocks.into_iter().flatten().collect(), sums)
}

/// Records `rounds` of work on several threads. Returns the recording and the sums; all blocks are live when it ends.
fn record(options: &Options, rounds: usize) -> (Recording, Sums) {
    memtrack_core::start_monitor_with(options).expect("no file is written");
    let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel(64)).unzip();
    receivers.rotate_left(1);
    let threads: Vec<_> = std::iter::zip(senders, receivers)
        .zip(1..)
        .map(|((next, passed), seed)| {
            thread::spawn(move || {
                let (blocks, sums) = work(seed, rounds, &next, &passed);
                drop(next);
                // Blocks that arrived after this thread's last round, until the thread before it has ended.
                (
                    blocks,
                    passed.iter().fold(sums, |mut sums, block| {
                        sums.freed(block.free());
                        sums
                    }),
                )
            })
        })
        .collect();
    let (mut kept, mut sums) = (Vec::new(), Sums::default());
    for thread in threads {
        let (blocks, of_thread) = thread.join().expect("a thread's blocks have their content");
        kept.push(blocks);
        sums = sums.with(of_thread);
    }
    let recording = memtrack_core::stop();
    let blocks: usize = kept.iter().map(Vec::len).sum();
    assert_eq!(blocks as u64, sums.live().1);
    for block in kept.into_iter().flatten() {
        block.free();
    }
    (recording, sums)
}

/// Returns the scope's bytes and blocks in a ranking, each with its error.
fn row(ranking: &TopReport) -> ((u64, Estimate), (u64, Estimate)) {
    let row = ranking
        .rows
        .iter()
        .find(|row| row.name.trim_start_matches('.') == WORK)
        .expect("the scope has a row");
    ((row.allocated_bytes, row.allocated_error), (row.count, row.count_error))
}

/// Every number equals the program's.
fn exact() {
    let (recording, sums) = record(&Options::new().exact().max_entries(1 << 22), 20_000);
    let snapshot = recording.snapshot();
    let of_work = |id| snapshot.scopes.place(id).full_name() == WORK;
    let live = snapshot.blocks.iter().filter(|block| of_work(block.scope));
    let live = live.fold((0, 0), |(bytes, count), block| (bytes + block.size_bytes, count + 1));
    assert_eq!(live, sums.live());

    let ((bytes, bytes_error), (count, count_error)) =
        row(&recording.top_of(DeviceId::HOST, By::Operator, 100));
    assert_eq!((bytes, count), (sums.allocated_bytes, sums.allocations));
    assert!(bytes_error.is_exact() && count_error.is_exact());

    let ((bytes, bytes_error), (count, count_error)) =
        row(&recording.top_at_of(DeviceId::HOST, Moment::End, By::Operator, 100));
    assert_eq!((bytes, count), sums.live());
    assert!(bytes_error.is_exact() && count_error.is_exact());
}

/// Sums of a scope are exact, and what is live is within its error.
fn sampled() {
    let (recording, sums) = record(&Options::new().max_entries(1 << 22), 100_000);
    let sampling = recording.snapshot().sampling.expect("the default mode has a budget");
    assert!(sampling.unrecorded_blocks > 0, "the work is too little for the budget: {sampling:?}");

    let ((bytes, _), (_, _)) = row(&recording.top_of(DeviceId::HOST, By::Operator, 100));
    assert_eq!(bytes, sums.allocated_bytes);

    let (bytes, blocks) = row(&recording.top_at_of(DeviceId::HOST, Moment::End, By::Operator, 100));
    let (live_bytes, live_blocks) = sums.live();
    for ((found, error), known) in [(bytes, live_bytes), (blocks, live_blocks)] {
        assert!(!error.is_exact());
        // Three times the error, which is given with 95 % confidence: about six standard deviations.
        let (found, known) = (found as f64, known as f64);
        let (below, above) = (3.0 * (found - error.low), 3.0 * (error.high - found));
        assert!(found - below <= known && known <= found + above, "{found}, exactly {known}: {error:?}");
    }
}

/// Checks exact sums, then sampled ones, then exact ones in a session after a sampled one.
///
/// # Panics
/// When a block loses its content or its alignment, or when a number differs from the program's.
pub fn check_all() {
    exact();
    sampled();
    exact();
}
