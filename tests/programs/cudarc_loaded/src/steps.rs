//! The ways in which programs use cudarc's safe layer. All sizes differ, to distinguish the recorded events.

use crate::counts::{compare, of_driver};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use memtrack_core::cuda::{mem_get_info, pool_statistics, reset_pool_peaks};
use memtrack_core::{scope, track_memory};
use std::sync::Arc;

fn stream_of(device: usize) -> Arc<CudaStream> {
    CudaContext::new(device).expect("a device").default_stream()
}

pub fn one_buffer() {
    let stream = stream_of(0);
    compare("a context");
    let numbers: Vec<u8> = (0..=255).cycle().take(1_000_001).collect();
    let buffer = stream.clone_htod(&numbers).expect("a buffer");
    assert_eq!(of_driver(0).live_bytes, 1_000_001);
    compare("a buffer");
    let copy = buffer.clone();
    compare("its copy");
    drop(buffer);
    compare("the buffer's end");
    assert!(stream.clone_dtoh(&copy).expect("the copy") == numbers, "the mock's memory keeps its content");
    drop(copy);
    compare("the copy's end");
}

struct Layer {
    weights: CudaSlice<f32>,
}

impl Layer {
    #[inline(never)]
    fn new(stream: &Arc<CudaStream>, width: usize) -> Self {
        Self { weights: stream.alloc_zeros(width * width).expect("weights") }
    }

    #[track_memory(module, name = "layer")]
    #[inline(never)]
    fn forward(&self, stream: &Arc<CudaStream>, input: &CudaSlice<f32>) -> CudaSlice<f32> {
        scores(stream, input.len() + self.weights.len())
    }
}

#[track_memory]
#[inline(never)]
fn scores(stream: &Arc<CudaStream>, count: usize) -> CudaSlice<f32> {
    stream.alloc_zeros(count).expect("scores")
}

#[inline(never)]
fn gradient_of(stream: &Arc<CudaStream>, of: &CudaSlice<f32>) -> CudaSlice<f32> {
    stream.alloc_zeros(of.len() + 1).expect("a gradient")
}

/// Allocates a model's weights (40,000 bytes), scores (40,400 and 80,400 bytes), and gradients, which are one element longer.
pub fn a_model() {
    let stream = stream_of(0);
    let layer = Layer::new(&stream, 100);
    let input = stream.alloc_zeros::<f32>(100).expect("an input");
    let _root = scope::root("model");
    let hidden = layer.forward(&stream, &input);
    let output = layer.forward(&stream, &hidden);
    compare("forward");
    {
        let _backward = scope::backward();
        let _gradients = [gradient_of(&stream, &output), gradient_of(&stream, &hidden)];
        compare("backward");
    }
    drop((input, output));
    compare("the end of activations");
}

pub fn kinds_of_memory() {
    let context = CudaContext::new(0).expect("a device");
    let stream = context.default_stream();
    // SAFETY: the memory is never read before it is written.
    let pinned = unsafe { context.alloc_pinned::<u8>(4_097) }.expect("pinned memory");
    compare("pinned memory");
    // SAFETY: the memory is never read.
    let unified = unsafe { context.alloc_unified::<u8>(70_001, true) }.expect("unified memory");
    compare("unified memory");
    if context.has_async_alloc() {
        // Without pools, the driver returns an error for this call.
        let empty = stream.null::<f32>().expect("nothing");
        compare("nothing");
        drop(empty);
    }
    drop(unified);
    drop(pinned);
    compare("the end of kinds");
}

pub fn streams() {
    let context = CudaContext::new(0).expect("a device");
    let streams: Vec<_> = (0..3).map(|_| context.new_stream().expect("a stream")).collect();
    let mut buffers: Vec<CudaSlice<u8>> = Vec::new();
    for round in 1..20 {
        let stream = &streams[round % streams.len()];
        buffers.push(stream.alloc_zeros(round * 5_003).expect("a buffer"));
        if round % 3 == 0 {
            buffers.remove(round / 3);
        }
        compare("streams");
    }
    streams[0].join(&streams[1]).expect("waits");
    drop(buffers);
    compare("the end of streams");
}

pub fn devices() {
    let (first, second) = (stream_of(0), stream_of(1));
    let there = second.clone_htod(&[1u8, 2, 3]).expect("a buffer");
    compare("the second device");
    // Uses the second device's stream while the first device's context is current.
    first.context().bind_to_thread().expect("a context");
    let beside = second.alloc_zeros::<u8>(9_001).expect("a buffer");
    compare("the second device from the first");
    let here = first.clone_dtod(&there).expect("a copy across");
    compare("a copy across devices");
    assert_eq!(first.clone_dtoh(&here).expect("the copy"), [1, 2, 3]);
    drop((there, beside, here));
    compare("the end of devices");
}

/// Threads that pass buffers to each other, so that most buffers are freed on another thread.
pub fn threads() {
    let (send, receive) = std::sync::mpsc::channel::<CudaSlice<u8>>();
    let receive = Arc::new(std::sync::Mutex::new(receive));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (send, receive) = (send.clone(), receive.clone());
            std::thread::spawn(move || {
                let stream = stream_of(worker % 2);
                for round in 0..500 {
                    send.send(stream.alloc_zeros(round * 7 + 1).expect("a buffer")).expect("a receiver");
                    if round % 2 == 0 {
                        drop(receive.lock().expect("no panic").recv());
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("a worker ends well");
    }
    compare("threads");
    assert!(of_driver(0).live_bytes + of_driver(1).live_bytes > 0, "every other buffer was kept");
    drop(send);
    while receive.lock().expect("no panic").recv().is_ok() {}
    compare("the end of threads");
}

/// Checks that the driver's statistics agree with memtrack's hook.
pub fn statistics() {
    let stream = stream_of(0);
    stream.synchronize().expect("a stream");
    reset_pool_peaks(0).expect("pools");
    let before = (mem_get_info(0).expect("memory"), pool_statistics(0).expect("a pool"));
    let buffers = [
        stream.alloc_zeros::<u8>(8 << 20).expect("a buffer"),
        stream.alloc_zeros(4 << 20).expect("a buffer"),
    ];
    let tracked = of_driver(0).live_bytes as u64;
    let (memory, pool) = (mem_get_info(0).expect("memory"), pool_statistics(0).expect("a pool"));
    assert_eq!(pool.used_bytes, tracked, "these sizes are multiples of the pool's rounding");
    assert_eq!(memory.used_bytes(), pool.reserved_bytes, "nothing else uses memory");
    assert_eq!(memory.untracked_bytes(tracked), pool.cached_bytes());
    drop(buffers);
    let after = pool_statistics(0).expect("a pool");
    assert_eq!((after.used_bytes, after.used_peak_bytes), (0, 12 << 20));
    stream.synchronize().expect("a stream");
    assert_eq!(
        (mem_get_info(0).expect("memory"), pool_statistics(0).expect("a pool").reserved_bytes),
        (before.0, 0)
    );
    reset_pool_peaks(0).expect("pools");
    assert_eq!(pool_statistics(0).expect("a pool").used_peak_bytes, 0);
    // Called on a thread without a context.
    let elsewhere = std::thread::spawn(|| mem_get_info(1)).join().expect("no panic");
    let cached = pool_statistics(1).expect("a pool").reserved_bytes;
    assert_eq!(elsewhere.map(|memory| memory.used_bytes()), Ok(cached));
    compare("statistics");
}
