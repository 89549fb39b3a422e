//! The caching allocator makes the same decisions on the mock driver as on a simulated device: the same blocks at the same
//! offsets, and the same history, statistics and messages, with plain and with expandable segments. No memory is leaked.
//!
//! Here both devices identify streams by their handles. By default, `SimulatedMemory` numbers streams as PyTorch numbers the
//! streams of its pool; PyTorch identifies streams that the program created by their handles, and `CudaMemory` has only such
//! streams. The numbers affect only the order in which blocks that wait for several streams complete.

use cudarc::driver::{CudaContext, CudaStream};
use memtrack_core::allocator::{
    AllocatorError, Backend, CachingAllocator, Context, CudaMemory, DeviceMemory, DeviceStats,
    HistoryOptions, MemPool, MemPoolOptions, MemoryInfo, MempoolId, SegmentInfo, Settings, SimulatedMemory,
};
use memtrack_core::event::{Action, DeviceId, StreamId};
use memtrack_tests::allocator::check_books;
use memtrack_tests::mock_cuda;
use memtrack_tests::watched::{Offset, Places, Watched};
use std::collections::BTreeMap;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 512 * MIB;
const DEVICES: u16 = 2;
/// The number of queries for which an event reports that it is not done.
const QUERIES: u32 = 3;
const STEPS: u64 = 3000;

/// One step of a run. Streams are numbered; 0 is the default stream.
#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc {
        size: u64,
        device: DeviceId,
        stream: usize,
    },
    /// Frees the block at this index of the live blocks (modulo their number), after the streams in this bit set used it.
    Free {
        which: usize,
        used_on: u64,
    },
    /// Allocates from a new pool with these options, or from an existing pool.
    Pool {
        options: Option<MemPoolOptions>,
        size: u64,
        device: DeviceId,
        stream: usize,
    },
    DropPool,
    EmptyCache,
    Fraction(f64, DeviceId),
    Reset(DeviceId),
}

fn step(random: &mut u64) -> Step {
    let mut below = |end: u64| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) % end
    };
    let device = DeviceId(below(DEVICES.into()) as u16);
    let stream = [0, 0, 1, 2][below(4) as usize];
    let most = [4096, 2 * MIB, 24 * MIB, 80 * MIB][below(4) as usize];
    let size = 1 + below(most);
    match below(100) {
        0..50 => Step::Alloc { size, device, stream },
        50..90 => {
            let used_on = if below(3) == 0 { below(16) } else { 0 };
            Step::Free { which: below(1 << 30) as usize, used_on }
        }
        90..94 => {
            let options = MemPoolOptions::new().use_on_oom(below(2) == 0).no_split(below(2) == 0);
            Step::Pool { options: (below(2) == 0).then_some(options), size, device, stream }
        }
        94 => Step::DropPool,
        95 => Step::EmptyCache,
        96 => Step::Reset(device),
        _ => Step::Fraction([0.6, 0.9, 1.0][below(3) as usize], device),
    }
}

type Event = (Action, Offset, u64, StreamId, MempoolId);
/// A segment without addresses: the offsets of the segment and of its blocks.
type Segment = (DeviceId, Offset, SegmentInfo, Vec<Offset>);

/// The outcome of a step, without addresses.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// The offset and size of the block, or the error.
    result: Result<(Offset, u64), String>,
    events: Vec<Vec<Event>>,
    statistics: Vec<DeviceStats>,
    memory: Vec<MemoryInfo>,
    segments: Vec<Segment>,
}

/// One of the two compared allocators, with the blocks and pools that are live in it.
struct Side<M: DeviceMemory> {
    allocator: CachingAllocator<Watched<M>>,
    places: Vec<Places>,
    streams: Vec<Vec<StreamId>>,
    live: Vec<(u64, DeviceId)>,
    pools: Vec<MemPool<Watched<M>>>,
}

impl<M: DeviceMemory> Side<M> {
    fn new(memories: Vec<M>, queries: u32, settings: &Settings, streams: Vec<Vec<StreamId>>) -> Self {
        let (memories, places): (Vec<_>, _) =
            memories.into_iter().map(|memory| Watched::new(memory, queries)).unzip();
        let allocator = CachingAllocator::new(memories, settings).unwrap();
        let history = HistoryOptions::new().context(Context::None);
        allocator.record_memory_history(Some(&history));
        Self { allocator, places, streams, live: Vec::new(), pools: Vec::new() }
    }

    fn run(&mut self, step: &Step) -> Outcome {
        let mut allocated = Ok(None);
        match *step {
            Step::Alloc { size, device, stream } => allocated = self.allocate(size, device, stream).map(Some),
            Step::Free { which, used_on } if !self.live.is_empty() => {
                let (address, device) = self.live.swap_remove(which % self.live.len());
                let streams = &self.streams[usize::from(device.0)];
                for (_, stream) in streams.iter().enumerate().filter(|(number, _)| used_on >> number & 1 == 1)
                {
                    self.allocator.record_stream(address, *stream);
                }
                self.allocator.free(address).unwrap();
            }
            Step::Pool { options, size, device, stream } => {
                if let Some(options) = options {
                    self.pools.push(self.allocator.mem_pool(device, options).unwrap());
                }
                if let Some(pool) = self.pools.last() {
                    let (device, route) = (pool.device(), pool.use_mem_pool().unwrap());
                    allocated = self.allocate(size, device, stream).map(Some);
                    drop(route);
                }
            }
            Step::DropPool if !self.pools.is_empty() => drop(self.pools.remove(0)),
            Step::EmptyCache => self.allocator.empty_cache().unwrap(),
            Step::Fraction(fraction, device) => {
                self.allocator.set_per_process_memory_fraction(fraction, device).unwrap();
            }
            Step::Reset(device) => {
                self.allocator.reset_peak_memory_stats(device).unwrap();
                self.allocator.reset_accumulated_memory_stats(device).unwrap();
            }
            Step::Free { .. } | Step::DropPool => {}
        }
        self.outcome(allocated)
    }

    fn allocate(
        &mut self,
        size: u64,
        device: DeviceId,
        stream: usize,
    ) -> Result<(u64, u64, DeviceId), String> {
        let stream = self.streams[usize::from(device.0)][stream];
        match self.allocator.allocate(size, device, stream) {
            Ok(allocation) => {
                self.live.push((allocation.address, device));
                Ok((allocation.address, allocation.size, device))
            }
            Err(error @ AllocatorError::OutOfMemory(_)) => Err(error.to_string()),
            Err(error) => panic!("{error}"),
        }
    }

    fn outcome(&mut self, allocated: Result<Option<(u64, u64, DeviceId)>, String>) -> Outcome {
        let devices = || (0..DEVICES).map(DeviceId);
        let segments = self.allocator.memory_snapshot();
        let mut events = Vec::new();
        for (device, places) in devices().zip(&mut self.places) {
            let entries = self.allocator.take_history(device).unwrap();
            let of_device = entries
                .iter()
                .map(|entry| (entry.action, places.of_event(entry), entry.size, entry.stream, entry.pool));
            events.push(of_device.collect());
            places.settle();
        }
        let mut segments: Vec<Segment> = segments.into_iter().map(|segment| self.placed(segment)).collect();
        segments.sort_by_key(|(device, place, ..)| (*device, *place));
        let result = allocated.map(|block| match block {
            Some((address, size, device)) => (self.places[usize::from(device.0)].find(address), size),
            None => ((0, 0), 0),
        });
        Outcome {
            result,
            events,
            statistics: devices().map(|device| self.allocator.statistics(device).unwrap()).collect(),
            memory: devices().map(|device| self.allocator.mem_get_info(device).unwrap()).collect(),
            segments,
        }
    }

    fn placed(&self, mut segment: SegmentInfo) -> Segment {
        let places = &self.places[usize::from(segment.device.0)];
        let place = places.find(std::mem::take(&mut segment.address));
        let blocks = segment.blocks.iter_mut();
        let blocks = blocks.map(|block| places.find(std::mem::take(&mut block.address))).collect();
        (segment.device, place, segment, blocks)
    }
}

/// Returns the handles of each device's streams, and the objects that keep the streams alive.
fn streams() -> (Vec<Vec<StreamId>>, Vec<Arc<CudaStream>>) {
    let mut kept = Vec::new();
    let of_device = |device: u16| {
        let context = CudaContext::new(device.into()).unwrap();
        let side: Vec<_> = (0..3).map(|_| context.new_stream().unwrap()).collect();
        let handles = side.iter().map(|stream| StreamId(stream.cu_stream() as u64));
        let handles = std::iter::once(StreamId(0)).chain(handles).collect();
        kept.extend(side);
        handles
    };
    ((0..DEVICES).map(of_device).collect(), kept)
}

/// Runs the same steps on both allocators, compares the outcomes, and returns how often each action happened.
fn compare(settings: &str, streams: &[Vec<StreamId>]) -> BTreeMap<&'static str, usize> {
    let parsed = Settings::parse(settings).unwrap();
    let memories = (0..DEVICES).map(|device| SimulatedMemory::new(device, TOTAL)).collect();
    let mut simulated = Side::new(memories, QUERIES, &parsed, streams.to_vec());
    // The mock itself counts the queries of its events.
    let mut cuda = Side::new(CudaMemory::all().unwrap(), 0, &parsed, streams.to_vec());
    let mut random = 1;
    let mut seen = BTreeMap::new();
    for number in 0..STEPS {
        let step = step(&mut random);
        let (expected, found) = (simulated.run(&step), cuda.run(&step));
        assert!(expected == found, "{settings:?}, step {number}, {step:?}:\n{expected:#?}\n{found:#?}");
        for (action, ..) in expected.events.iter().flatten() {
            *seen.entry(action.name()).or_default() += 1;
        }
        let pending =
            expected.statistics.iter().any(|stats| stats.active.all.current > stats.allocation.all.current);
        *seen.entry("pending").or_default() += usize::from(pending);
    }
    check_books(&cuda.allocator);
    drop(cuda);
    // Dropping the allocator frees live blocks.
    for memory in CudaMemory::all().unwrap() {
        assert_eq!(memory.memory_info().unwrap().free_bytes, TOTAL);
    }
    seen
}

/// Runs in its own process, which loads the mock driver.
#[test]
#[ignore = "is run by the test below"]
fn decisions_are_the_same() {
    let (streams, _kept) = streams();
    for settings in [
        "",
        "expandable_segments:True",
        "max_split_size_mb:32,roundup_power2_divisions:4",
        "garbage_collection_threshold:0.4",
    ] {
        let seen = compare(settings, &streams);
        let often = |what: &str| seen.get(what).copied().unwrap_or(0);
        let released = if settings.starts_with("expandable") { "segment_unmap" } else { "segment_free" };
        assert!(often("oom") > 5 && often(released) > 50 && often("pending") > 100, "{settings:?}: {seen:?}");
    }
    let error = CudaMemory::new(7).unwrap_err();
    assert_eq!(error.to_string(), "there is no CUDA device 7; there are 2, counted from 0");
}

#[test]
fn the_mock_driver_and_the_simulated_device_agree() {
    let settings = [
        ("MEMTRACK_MOCK_TOTAL", TOTAL.to_string()),
        ("MEMTRACK_MOCK_DEVICES", DEVICES.to_string()),
        ("MEMTRACK_MOCK_EVENT_QUERIES", QUERIES.to_string()),
    ];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    mock_cuda::run_ignored_test(decisions_are_the_same, &settings);
}
