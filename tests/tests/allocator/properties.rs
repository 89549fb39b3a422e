//! After any operations on the caching allocator, no blocks overlap, no byte is lost, and the statistics agree.

use memtrack_core::allocator::{
    AllocatorError, Backend, CachingAllocator, MemPool, MemPoolOptions, MempoolId, Settings, SimulatedMemory,
};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_tests::allocator::check_books;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Mutex;

const MIB: u64 = 1 << 20;
const DEVICES: u16 = 2;

#[derive(Clone, Debug)]
enum Step {
    Alloc {
        size: u64,
        device: u16,
        stream: u64,
    },
    Free {
        which: usize,
    },
    RecordStream {
        which: usize,
        stream: u64,
    },
    Ready(bool),
    EmptyCache,
    Settings(&'static str),
    Fraction {
        device: u16,
        fraction: f64,
    },
    /// Creates a pool and allocates from it.
    Pool {
        size: u64,
        device: u16,
        options: MemPoolOptions,
    },
    DropPool {
        which: usize,
    },
    /// Captures a graph, and allocates and frees during the capture.
    Capture {
        size: u64,
        device: u16,
        which: usize,
        stream: u64,
        kept: bool,
    },
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..4096u64,
        3 => 1..(2 * MIB),
        3 => MIB..(24 * MIB),
        1 => (24 * MIB)..(90 * MIB),
        1 => prop::sample::select(vec![0, 512, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 20 * MIB, 1 << 60, u64::MAX]),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let settings = prop::sample::select(vec![
        "",
        "expandable_segments:True",
        "expandable_segments:False",
        "max_split_size_mb:20",
        "max_split_size_mb:40,max_non_split_rounding_mb:30",
        "garbage_collection_threshold:0.3",
        "roundup_power2_divisions:4",
        "large_segment_size_mb:32",
        "expandable_segments_reserve:0.2",
        "unknown:1",
    ]);
    let options = (any::<bool>(), any::<bool>())
        .prop_map(|(use_on_oom, no_split)| MemPoolOptions::new().use_on_oom(use_on_oom).no_split(no_split));
    prop_oneof![
        20 => (sizes(), 0..DEVICES, 0..3u64)
            .prop_map(|(size, device, stream)| Step::Alloc { size, device, stream }),
        14 => any::<usize>().prop_map(|which| Step::Free { which }),
        3 => (any::<usize>(), 0..4u64).prop_map(|(which, stream)| Step::RecordStream { which, stream }),
        1 => any::<bool>().prop_map(Step::Ready),
        1 => Just(Step::EmptyCache),
        1 => settings.prop_map(Step::Settings),
        1 => (0..DEVICES, 0.0..1.2f64).prop_map(|(device, fraction)| Step::Fraction { device, fraction }),
        2 => (sizes(), 0..DEVICES, options)
            .prop_map(|(size, device, options)| Step::Pool { size, device, options }),
        1 => any::<usize>().prop_map(|which| Step::DropPool { which }),
        1 => (sizes(), 0..DEVICES, any::<usize>(), 0..3u64, any::<bool>()).prop_map(
            |(size, device, which, stream, kept)| Step::Capture { size, device, which, stream, kept }
        ),
    ]
}

struct World {
    allocator: CachingAllocator<SimulatedMemory>,
    memories: Vec<SimulatedMemory>,
    live: BTreeMap<u64, u64>,
    pools: Vec<MemPool<SimulatedMemory>>,
    /// Pools of graphs that may still be replayed.
    graphs: Vec<(DeviceId, MempoolId)>,
}

impl World {
    fn new(settings: &str) -> Self {
        let memories: Vec<_> = (0..DEVICES).map(|device| SimulatedMemory::new(device, 300 * MIB)).collect();
        let settings = Settings::parse(settings).unwrap();
        let allocator = CachingAllocator::new(memories.iter().cloned(), &settings).unwrap();
        Self { allocator, memories, live: BTreeMap::new(), pools: Vec::new(), graphs: Vec::new() }
    }

    fn alloc(&mut self, size: u64, device: u16, stream: u64) {
        match self.allocator.allocate(size, DeviceId(device), StreamId(stream)) {
            Ok(block) if size == 0 => assert_eq!((block.address, block.size), (0, 0)),
            Ok(block) => {
                assert!(block.size >= size);
                let before = self.live.range(..block.address + block.size).next_back();
                if let Some((address, length)) = before {
                    assert!(address + length <= block.address, "two live blocks overlap");
                }
                self.live.insert(block.address, block.size);
            }
            Err(AllocatorError::OutOfMemory(_) | AllocatorError::TooLarge) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn drop_graphs(&mut self) {
        for (device, graph) in std::mem::take(&mut self.graphs) {
            self.allocator.release_pool(device, graph).unwrap();
        }
    }

    fn pick(&self, which: usize) -> Option<u64> {
        self.live.keys().nth(which.checked_rem(self.live.len())?).copied()
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Alloc { size, device, stream } => self.alloc(size, device, stream),
            Step::Free { which } => {
                if let Some(address) = self.pick(which) {
                    self.live.remove(&address);
                    self.allocator.free(address).unwrap();
                    // A second free is refused and changes nothing.
                    assert_eq!(self.allocator.free(address), Err(AllocatorError::InvalidPointer(address)));
                }
            }
            Step::RecordStream { which, stream } => {
                if let Some(address) = self.pick(which) {
                    self.allocator.record_stream(address, StreamId(stream));
                }
            }
            Step::Ready(ready) => self.memories.iter().for_each(|memory| memory.set_events_ready(ready)),
            Step::EmptyCache => self.allocator.empty_cache().unwrap(),
            Step::Settings(text) => {
                let applied = self.allocator.set_allocator_settings(text);
                // A split limit below the segment size is refused, too.
                assert!(applied.is_err() || !text.starts_with("unknown"));
            }
            Step::Fraction { device, fraction } => {
                let set = self.allocator.set_per_process_memory_fraction(fraction, DeviceId(device));
                assert_eq!(set.is_err(), fraction > 1.0);
            }
            Step::Pool { size, device, options } => {
                let pool = self.allocator.mem_pool(DeviceId(device), options).unwrap();
                let route = pool.use_mem_pool().unwrap();
                self.alloc(size, device, 0);
                drop(route);
                self.pools.push(pool);
            }
            Step::Capture { size, device, which, stream, kept } => {
                let graph = self.allocator.capture_pool_id();
                let on = DeviceId(device);
                let is_captured = move |other| other == StreamId(stream);
                self.allocator.begin_allocate_to_pool(on, graph, is_captured).unwrap();
                self.step(&Step::RecordStream { which, stream });
                self.alloc(size, device, stream);
                self.step(&Step::Free { which });
                check_books(&self.allocator);
                self.step(&Step::EmptyCache);
                self.allocator.end_allocate_to_pool(on, graph).unwrap();
                self.graphs.push((on, graph));
                if !kept {
                    self.drop_graphs();
                }
            }
            Step::DropPool { which } => {
                if let Some(which) = which.checked_rem(self.pools.len()) {
                    self.pools.swap_remove(which);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(160) })]

    #[test]
    fn statistics_agree_after_every_step(
        settings in prop::sample::select(vec![
            "", "expandable_segments:True", "max_split_size_mb:30", "garbage_collection_threshold:0.5",
        ]),
        steps in prop::collection::vec(steps(), 1..120),
    ) {
        let mut world = World::new(settings);
        for step in &steps {
            world.step(step);
            check_books(&world.allocator);
        }
        // Nothing is lost: once every block is freed, the devices are empty.
        for address in std::mem::take(&mut world.live).into_keys() {
            world.allocator.free(address).unwrap();
        }
        world.pools.clear();
        world.drop_graphs();
        world.allocator.empty_cache().unwrap();
        check_books(&world.allocator);
        for memory in 0..DEVICES {
            prop_assert_eq!(world.allocator.memory_reserved(DeviceId(memory)).unwrap(), 0);
        }
    }
}

#[test]
fn threads_share_an_allocator() {
    const THREADS: u64 = 4;
    let settings = Settings::parse("expandable_segments:True").unwrap();
    let allocator = CachingAllocator::simulated(DEVICES, 4 << 30, &settings).unwrap();
    // Each thread frees blocks that any thread allocated.
    let shared: Mutex<Vec<u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (allocator, shared) = (&allocator, &shared);
            scope.spawn(move || {
                let mut state = thread + 1;
                for step in 0..4000 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let device = DeviceId((state >> 40) as u16 % DEVICES);
                    let size = 1 + (state >> 33) % (3 * MIB);
                    let block = allocator.allocate(size, device, StreamId(thread % 2)).unwrap();
                    allocator.record_stream(block.address, StreamId(step % 3));
                    let mut shared = shared.lock().unwrap();
                    shared.push(block.address);
                    let chosen = (shared.len() > 64).then_some((state >> 20) as usize % 64);
                    let taken = chosen.map(|place| shared.swap_remove(place));
                    drop(shared);
                    if let Some(taken) = taken {
                        allocator.free(taken).unwrap();
                    }
                    if step % 1000 == 999 {
                        allocator.empty_cache().unwrap();
                        check_while_in_use(allocator);
                    }
                }
            });
        }
    });
    check_books(&allocator);
    for address in shared.into_inner().unwrap() {
        allocator.free(address).unwrap();
    }
    allocator.empty_cache().unwrap();
    check_books(&allocator);
    assert_eq!(allocator.memory_reserved(DeviceId(0)).unwrap(), 0);
}

/// Checks that one device's statistics agree while other threads use the allocator.
fn check_while_in_use(allocator: &CachingAllocator<SimulatedMemory>) {
    let stats = allocator.statistics(DeviceId(0)).unwrap();
    assert!(stats.allocated_bytes.all.current <= stats.active_bytes.all.current);
    assert!(stats.active_bytes.all.current <= stats.reserved_bytes.all.current);
    assert!(stats.requested_bytes.all.current <= stats.active_bytes.all.current);
}
