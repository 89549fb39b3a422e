//! Several threads use one allocator concurrently: requests and frees on several devices, uses on other streams, pools, captures,
//! releases, snapshots, histories, settings, limits, and a callback that frees blocks on demand. No block is allocated twice,
//! nothing is lost, and no thread deadlocks: a thread holds one device's lock at a time, and acquires the lock of the settings
//! only before a device's lock.

use memtrack_core::allocator::{
    AllocatorError, Backend, CachingAllocator, Context, HistoryOptions, MemPool, MemPoolOptions, Settings,
    SimulatedMemory,
};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_tests::allocator::check_books;
use memtrack_tests::time::HANG;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

const MIB: u64 = 1 << 20;
const DEVICES: u16 = 3;
const THREADS: u64 = 6;
const STEPS: usize = 400;

struct World {
    allocator: CachingAllocator<SimulatedMemory>,
    memories: Vec<SimulatedMemory>,
    /// Addresses of the live blocks of all threads.
    live: Mutex<BTreeSet<u64>>,
    ooms: AtomicU64,
    /// Unused blocks that a callback frees when a request needs memory.
    unused: Mutex<Vec<u64>>,
    /// The number of blocks that the callback freed.
    freed_on_demand: AtomicU64,
}

/// A simple random number generator, one for each thread.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

impl World {
    fn new() -> Arc<Self> {
        let memories: Vec<_> = (0..DEVICES).map(|device| SimulatedMemory::new(device, 400 * MIB)).collect();
        let allocator = CachingAllocator::new(memories.iter().cloned(), &Settings::default()).unwrap();
        let world = Arc::new(Self {
            allocator,
            memories,
            live: Mutex::default(),
            ooms: AtomicU64::new(0),
            unused: Mutex::default(),
            freed_on_demand: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&world);
        // The observer uses the allocator while other threads do.
        world.allocator.attach_out_of_memory_observer(move |error| {
            let Some(world) = weak.upgrade() else { return };
            assert!(world.allocator.statistics(error.facts.device).unwrap().num_ooms > 0);
            world.allocator.memory_snapshot();
            world.ooms.fetch_add(1, Ordering::Relaxed);
        });
        world
    }

    fn alloc(&self, random: &mut Random) {
        let most = [4096, 2 * MIB, 24 * MIB, 150 * MIB][random.below(4) as usize];
        let device = DeviceId(random.below(DEVICES.into()) as u16);
        let stream = StreamId(random.below(3));
        match self.allocator.allocate(1 + random.below(most), device, stream) {
            Ok(block) => {
                assert!(self.live.lock().unwrap().insert(block.address), "a live block was allocated again");
                if random.below(4) == 0 {
                    self.allocator.record_stream(block.address, StreamId(random.below(4)));
                }
            }
            Err(AllocatorError::OutOfMemory(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Removes a random block from the list of live blocks, which all threads share, and returns it. Returns `None` if the list
    /// is empty, and sometimes if it is not.
    fn take(&self, random: &mut Random) -> Option<u64> {
        let mut live = self.live.lock().unwrap();
        let address = live.iter().nth(random.below(1 + live.len() as u64) as usize).copied()?;
        live.remove(&address);
        Some(address)
    }

    /// Frees a live block, or leaves it for the callback to free.
    fn free(&self, random: &mut Random) {
        let Some(address) = self.take(random) else { return };
        if random.below(8) == 0 {
            return self.unused.lock().unwrap().push(address);
        }
        self.allocator.free(address).unwrap();
        // No second free is tried here: another thread may already have allocated the same address.
    }

    /// Registers a callback that frees an unused block whenever the cache cannot serve a request.
    fn free_on_demand(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.allocator.add_free_memory_callback(move || {
            let Some(world) = weak.upgrade() else { return false };
            let Some(address) = world.unused.lock().unwrap().pop() else { return false };
            world.allocator.free(address).unwrap();
            world.freed_on_demand.fetch_add(1, Ordering::Relaxed);
            true
        });
    }

    /// Checks that the blocks of every segment are contiguous.
    fn check_segments(&self) {
        for segment in self.allocator.memory_snapshot() {
            let mut next = segment.address;
            for block in &segment.blocks {
                assert_eq!(block.address, next);
                next += block.size;
            }
            assert_eq!(next, segment.address + segment.total_size);
        }
        for device in (0..DEVICES).map(DeviceId) {
            let stats = self.allocator.statistics(device).unwrap();
            assert!(stats.requested_bytes.all.current <= stats.active_bytes.all.current);
            assert!(stats.allocated_bytes.all.current <= stats.active_bytes.all.current);
            assert!(stats.active_bytes.all.current <= stats.reserved_bytes.all.current);
        }
    }

    fn step(&self, random: &mut Random, pools: &mut Vec<MemPool<SimulatedMemory>>) {
        let allocator = &self.allocator;
        let device = DeviceId(random.below(DEVICES.into()) as u16);
        match random.below(1000) {
            0..520 => self.alloc(random),
            520..900 => self.free(random),
            900..910 => allocator.empty_cache().unwrap(),
            910..925 => self.check_segments(),
            925..930 => drop(allocator.snapshot()),
            930..945 => {
                let settings = [
                    "",
                    "expandable_segments:True",
                    "expandable_segments:False",
                    "max_split_size_mb:40",
                    "garbage_collection_threshold:0.5",
                    "roundup_power2_divisions:4",
                    "no_such:1",
                ];
                let text = settings[random.below(settings.len() as u64) as usize];
                assert_eq!(allocator.set_allocator_settings(text).is_err(), text.starts_with("no_such"));
            }
            945..955 => {
                let fraction = [0.5, 0.9, 1.0][random.below(3) as usize];
                allocator.set_per_process_memory_fraction(fraction, device).unwrap();
            }
            955..965 => {
                let options = HistoryOptions::new()
                    .context([Context::None, Context::All][random.below(2) as usize])
                    .max_entries(100);
                allocator.record_memory_history((random.below(3) > 0).then_some(&options));
            }
            965..980 => {
                let ready = random.below(2) == 0;
                self.memories.iter().for_each(|memory| memory.set_events_ready(ready));
            }
            980..990 => {
                let options =
                    MemPoolOptions::new().use_on_oom(random.below(2) == 0).no_split(random.below(2) == 0);
                let pool = allocator.mem_pool(device, options).unwrap();
                let route = pool.use_mem_pool().unwrap();
                (0..3).for_each(|_| self.alloc(random));
                drop(route);
                pools.push(pool);
                if pools.len() > 4 {
                    pools.remove(0);
                }
            }
            _ => {
                let graph = allocator.capture_pool_id();
                let stream = StreamId(random.below(3));
                allocator.begin_allocate_to_pool(device, graph, move |other| other == stream).unwrap();
                (0..3).for_each(|_| self.alloc(random));
                self.free(random);
                allocator.end_allocate_to_pool(device, graph).unwrap();
                allocator.release_pool(device, graph).unwrap();
            }
        }
    }
}

#[test]
fn concurrent_operations_keep_the_allocator_consistent() {
    let world = World::new();
    let (done, finished) = mpsc::channel();
    for thread in 0..THREADS {
        let (world, done) = (Arc::clone(&world), done.clone());
        thread::spawn(move || {
            let mut random = Random(thread + 1);
            let mut pools = Vec::new();
            for step in 0..STEPS {
                // The callback is registered halfway through the steps.
                if (thread, step) == (0, STEPS / 2) {
                    world.free_on_demand();
                }
                world.step(&mut random, &mut pools);
            }
            drop(pools);
            done.send(()).unwrap();
        });
    }
    drop(done);
    for _ in 0..THREADS {
        // A thread that panics drops its sender without sending; a deadlocked thread sends nothing and keeps its sender.
        match finished.recv_timeout(HANG) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("a thread is deadlocked"),
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("a thread has failed, see above"),
        }
    }
    assert!(world.ooms.load(Ordering::Relaxed) > 0, "memory must run out at times");
    assert!(world.freed_on_demand.load(Ordering::Relaxed) > 0, "the callback must free blocks at times");
    check_books(&world.allocator);
    let unused = std::mem::take(&mut *world.unused.lock().unwrap());
    let live = std::mem::take(&mut *world.live.lock().unwrap());
    for address in unused.into_iter().chain(live) {
        world.allocator.free(address).unwrap();
    }
    world.allocator.empty_cache().unwrap();
    check_books(&world.allocator);
    for device in (0..DEVICES).map(DeviceId) {
        let stats = world.allocator.statistics(device).unwrap();
        assert_eq!((stats.reserved_bytes.all.current, stats.active.all.current), (0, 0));
    }
}
