//! Kits for capturing stacks, about 430 KB each: buffers for captures and a cache of stack ids. The first threads, about
//! as many as a machine keeps busy, each own a kit until they end. Further threads share a few kits, one capture at a
//! time. So the memory of all kits is bounded for any number of threads.
//!
//! **Why not a kit for each thread?** 4,000 threads took 1.6 GB that way.

use super::current_thread::lock_any;
use super::fork::ForkCell;
use crate::python::PythonFrames;
use crate::settings;
use crate::stack::capture::Capture;
use crate::stack::intern::StackCache;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The maximum number of threads that own a kit. All kits together take at most 24 MB.
const MAX_OWNED_KITS: usize = 40;
/// The number of kits that all other threads share.
const SHARED_KIT_COUNT: usize = 8;

/// The buffers for captures, and a cache of stack ids.
pub(crate) struct Kit {
    pub(crate) capture: Box<Capture>,
    pub(crate) python: Box<PythonFrames>,
    pub(crate) stacks: StackCache,
    /// The value of [`GENERATION`] for which `stacks` is valid.
    generation: u32,
}

/// A number that changes when code is unloaded, because cached stacks that contain the code are then invalid.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Invalidates the cached stacks of all kits.
pub(super) fn invalidate_stacks() {
    GENERATION.fetch_add(1, Ordering::Release);
}

/// The heap memory of a kit, rounded up.
const KIT_BYTES: usize = 512 << 10;

impl Kit {
    fn new() -> Self {
        crate::internal_bytes::add(KIT_BYTES);
        let generation = GENERATION.load(Ordering::Acquire);
        Self {
            capture: Capture::new(),
            python: Box::new(PythonFrames::new()),
            stacks: StackCache::new(),
            generation,
        }
    }

    /// Returns the number that changes when code is unloaded.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Drops the cached stacks if code has been unloaded since the last call.
    #[inline(always)]
    pub(super) fn refresh(&mut self) {
        let now = GENERATION.load(Ordering::Relaxed);
        if now != self.generation {
            self.reset(now);
        }
    }

    #[cold]
    fn reset(&mut self, generation: u32) {
        self.generation = generation;
        self.stacks.clear();
        self.capture.forget();
    }
}

/// The maximum memory of all kits.
#[cfg(test)]
pub(super) const fn max_bytes(divisor: usize) -> usize {
    (MAX_OWNED_KITS / divisor + SHARED_KIT_COUNT) * KIT_BYTES
}

/// The kits that threads own.
struct Pool {
    made: usize,
    /// The kits of threads that have ended. Has capacity for all kits, so that it never grows under the lock.
    free: Vec<Kit>,
}

impl Pool {
    fn new() -> Mutex<Self> {
        Mutex::new(Self { made: 0, free: Vec::with_capacity(MAX_OWNED_KITS) })
    }
}

static POOL: ForkCell<Mutex<Pool>> = ForkCell::new(Pool::new);

type SharedKits = [Mutex<Option<Kit>>; SHARED_KIT_COUNT];
static SHARED_KITS: ForkCell<SharedKits> = ForkCell::new(|| std::array::from_fn(|_| Mutex::default()));

/// Returns a kit for the calling thread, to be [released](release) when the thread ends; `None` if the limit is
/// reached.
#[cold]
pub(super) fn acquire() -> Option<Kit> {
    let mut pool = POOL.lock();
    if let Some(mut kit) = pool.free.pop() {
        kit.capture.forget();
        return Some(kit);
    }
    if pool.made >= settings::eighth_if_small(MAX_OWNED_KITS) {
        return None;
    }
    pool.made += 1;
    drop(pool);
    Some(Kit::new())
}

/// Returns a thread's kit to the pool, for the next thread.
pub(super) fn release(kit: Kit) {
    POOL.lock().free.push(kit);
}

/// Calls `work` with one of the shared kits. The thread's `number` chooses the kit, so that threads that run at the
/// same time mostly use different ones. If all kits are in use, the thread waits for one capture.
#[cold]
pub(super) fn with_shared<R>(number: usize, work: impl FnOnce(&mut Kit) -> R) -> R {
    let mut kit = lock_any(SHARED_KITS.get(), number);
    let kit = kit.get_or_insert_with(Kit::new);
    // The previous capture may have been made by another thread, on another stack.
    kit.capture.forget();
    work(kit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kits_are_bounded_and_reused() {
        let all: Vec<Kit> = std::iter::from_fn(acquire).collect();
        // Other tests in this process may have acquired some.
        assert!(!all.is_empty() && all.len() <= MAX_OWNED_KITS);
        let addresses: Vec<*const Capture> = all.iter().map(|kit| &raw const *kit.capture).collect();
        all.into_iter().for_each(release);
        let again = acquire().expect("one was given back");
        assert!(addresses.contains(&(&raw const *again.capture)));
        release(again);
    }

    #[test]
    fn threads_take_turns_if_they_outnumber_the_shared_kits() {
        let sum = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for number in 0..3 * SHARED_KIT_COUNT {
                let sum = &sum;
                scope.spawn(move || {
                    for _ in 0..100 {
                        with_shared(number, |_| sum.fetch_add(1, Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 3 * SHARED_KIT_COUNT * 100);
    }
}
