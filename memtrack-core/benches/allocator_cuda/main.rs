//! Compares an alloc/free pair that the caching allocator serves from its cache with a pair in cudarc, which calls the
//! driver's pool each time. The two kinds of pairs alternate within one run.
//!
//! Run `cargo bench -p memtrack-core --features cuda-stats --bench allocator_cuda`. Uses the machine's driver if there
//! is one, and otherwise the mock driver. The mock's pool only counts, so a real pool costs more. Prints medians of
//! batches in processor time; asserts nothing.
#![allow(unsafe_code)]

use cudarc::driver::{CudaContext, CudaStream};
use libloading::Library;
use memtrack_core::allocator::{Backend, CachingAllocator, CudaMemory, DeviceBuffer, Settings};
use memtrack_core::event::{DeviceId, StreamId};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

const BATCHES: usize = 41;
const CALLS: usize = 10_000;

/// Returns the processor time of this thread, which is hardly affected by other work on the machine.
fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out-pointer is a local variable; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Opens the machine's driver, or the mock that cargo built next to this program, and returns its name. The library is
/// never closed.
fn open_driver() -> &'static str {
    // SAFETY: loading a library runs its initialization code. Every CUDA program runs the driver's, and the mock has none.
    let open = |path: &std::path::Path| unsafe { Library::new(path) };
    let real = open("libcuda.so.1".as_ref());
    let name = if real.is_ok() { "the machine's driver" } else { "the mock driver" };
    let library = real.unwrap_or_else(|_| {
        let program = std::env::current_exe().expect("the path of this program");
        let mock = program.with_file_name("libmemtrack_mock_cuda.so");
        open(&mock).expect("the mock is beside this program, where cargo puts it")
    });
    // If the library were closed, cudarc could not find the mock by name.
    std::mem::forget(library);
    name
}

fn time_per_pair(mut pair: impl FnMut()) -> f64 {
    let start = cpu_time();
    (0..CALLS).for_each(|_| pair());
    cpu_time().saturating_sub(start).as_nanos() as f64 / CALLS as f64
}

fn main() {
    println!("a pair of alloc and free on {}, one thread, nothing recorded", open_driver());
    let context = CudaContext::new(0).expect("a device");
    let stream: Arc<CudaStream> = context.new_stream().expect("a stream");
    let memories = CudaMemory::all().expect("a driver");
    let allocator = CachingAllocator::new(memories, &Settings::default()).expect("default settings");
    for (name, size) in [("4 KiB", 4096), ("1 MiB", 1 << 20), ("30 MiB", 30 << 20)] {
        let (device, queue) = (DeviceId(0), StreamId(stream.cu_stream() as u64));
        let cudarc = || {
            // SAFETY: the memory is never read.
            drop(black_box(unsafe { stream.alloc::<u8>(size) }.expect("memory")));
        };
        let buffer = || {
            // SAFETY: the memory is never read.
            drop(black_box(
                unsafe { DeviceBuffer::<u8>::uninit(&allocator, &stream, size) }.expect("memory"),
            ));
        };
        let bare = || {
            let address = allocator.caching_allocator_alloc(size as u64, device, queue).expect("memory");
            allocator.caching_allocator_delete(black_box(address)).expect("a live block");
        };
        let mut samples = [const { Vec::new() }; 3];
        for _ in 0..BATCHES {
            samples[0].push(time_per_pair(cudarc));
            samples[1].push(time_per_pair(buffer));
            samples[2].push(time_per_pair(bare));
        }
        let [cudarc, buffer, bare] = samples.map(median);
        println!("\n{name:<44} {:>10} {:>16}", "ns/pair", "share of cudarc's");
        for (row, ns) in [
            ("cudarc: cuMemAllocAsync, cuMemFreeAsync", cudarc),
            ("DeviceBuffer from the cache", buffer),
            ("caching_allocator_alloc and _delete", bare),
        ] {
            println!("  {row:<42} {ns:>10.1} {:>16.2}", ns / cudarc);
        }
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
