//! What it takes to take stacks, some 430 KB: room for captures and the ids of the newest stacks. So many threads as a
//! machine keeps busy have a kit of their own until they end; where there are more, the others share a few, one capture
//! at a time. What this comes to is bounded whatever number of threads a program has.
//!
//! **Why not a kit for each thread?** 4,000 threads took 1.6 GB that way.

use super::fork::ForkCell;
use super::mine::one_of;
use crate::stack::capture::Capture;
use crate::stack::intern::StackCache;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Threads that have a kit of their own. All kits together take 24 MB at most.
const MOST_OWN: usize = 40;
/// Kits that the other threads share.
const SHARED: usize = 8;

/// Room for captures, and one thread's newest stacks.
pub(crate) struct Kit {
    pub(crate) capture: Box<Capture>,
    pub(crate) stacks: StackCache,
    /// Of which generation of code `stacks` is.
    generation: u32,
}

/// Changes when code is unloaded: what kits remember of stacks through it means nothing any more.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Has all kits forget the stacks that they remember.
pub(super) fn forget_stacks() {
    GENERATION.fetch_add(1, Ordering::Release);
}

/// What a kit takes of the heap, rounded up.
const KIT_BYTES: usize = 512 << 10;

impl Kit {
    fn new() -> Self {
        crate::own::hold(KIT_BYTES);
        let generation = GENERATION.load(Ordering::Acquire);
        Self { capture: Capture::new(), stacks: StackCache::new(), generation }
    }

    /// Forgets what code that was unloaded since has made of it.
    #[inline(always)]
    pub(super) fn keep_up(&mut self) {
        let now = GENERATION.load(Ordering::Relaxed);
        if now != self.generation {
            self.begin_anew(now);
        }
    }

    #[cold]
    fn begin_anew(&mut self, generation: u32) {
        self.generation = generation;
        self.stacks.clear();
        self.capture.forget();
    }
}

/// What all kits may take.
#[cfg(test)]
pub(super) const MOST_BYTES: usize = (MOST_OWN + SHARED) * KIT_BYTES;

/// Kits for single threads.
struct Pool {
    made: usize,
    /// Those of threads that have ended. Has room for all, so that it never grows under the lock.
    free: Vec<Kit>,
}

impl Pool {
    fn new() -> Mutex<Self> {
        Mutex::new(Self { made: 0, free: Vec::with_capacity(MOST_OWN) })
    }
}

static POOL: ForkCell<Mutex<Pool>> = ForkCell::new(Pool::new);

type Shared = [Mutex<Option<Kit>>; SHARED];
static SHARED_KITS: ForkCell<Shared> = ForkCell::new(|| std::array::from_fn(|_| Mutex::default()));

fn pool() -> MutexGuard<'static, Pool> {
    POOL.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// A kit for the calling thread, to be given back when it ends; `None` when as many are out as there may be.
#[cold]
pub(super) fn take() -> Option<Kit> {
    let mut pool = pool();
    if let Some(mut kit) = pool.free.pop() {
        kit.capture.forget();
        return Some(kit);
    }
    if pool.made == MOST_OWN {
        return None;
    }
    pool.made += 1;
    drop(pool);
    Some(Kit::new())
}

/// A thread's kit, for the next thread.
pub(super) fn give_back(kit: Kit) {
    pool().free.push(kit);
}

/// Does something with one of the kits that threads share. `number` tells the threads apart: mostly two that run at a
/// time do not meet. Who meets another waits for one capture.
#[cold]
pub(super) fn with_shared<R>(number: usize, work: impl FnOnce(&mut Kit) -> R) -> R {
    let mut kit = one_of(SHARED_KITS.get(), number);
    let kit = kit.get_or_insert_with(Kit::new);
    // Whoever had it before was another thread, on another stack.
    kit.capture.forget();
    work(kit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kits_are_bounded_and_used_again() {
        let all: Vec<Kit> = std::iter::from_fn(take).collect();
        // Other tests of this process may hold some.
        assert!(!all.is_empty() && all.len() <= MOST_OWN);
        let places: Vec<*const Capture> = all.iter().map(|kit| &raw const *kit.capture).collect();
        all.into_iter().for_each(give_back);
        let again = take().expect("one was given back");
        assert!(places.contains(&(&raw const *again.capture)));
        give_back(again);
    }

    #[test]
    fn more_threads_than_shared_kits_each_get_one_in_turn() {
        let sum = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for number in 0..3 * SHARED {
                let sum = &sum;
                scope.spawn(move || {
                    for _ in 0..100 {
                        with_shared(number, |_| sum.fetch_add(1, Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 3 * SHARED * 100);
    }
}
