//! Typed device memory from memtrack's caching allocator in a program that uses cudarc: a `DeviceBuffer` can be copied, can be
//! passed to a kernel, and returns to the cache when it is dropped. So a loop with temporaries requests memory from the driver
//! only once. Runs on a GPU if there is a driver, otherwise on the mock, whose kernels do nothing.
#![allow(unsafe_code)]

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use memtrack_core::allocator::{Backend, CachingAllocator, CudaMemory, DeviceBuffer, Settings};
use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;
use memtrack_core::{By, start_monitor_with, stop, track_memory};
use memtrack_examples_cuda::driver::{self, Driver};

const NUMBERS: usize = 1 << 20;
const STEPS: usize = 50;

/// `y[i] += a * x[i]` in PTX, so that no compiler is needed.
const AXPY: &str = include_str!("../axpy.ptx");

type Allocator = CachingAllocator<CudaMemory>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The device objects that every operator needs.
struct Machine {
    allocator: Allocator,
    stream: Arc<CudaStream>,
    axpy: CudaFunction,
}

/// Computes `y += a * x`.
fn add_scaled(machine: &Machine, y: &mut DeviceBuffer<f32>, a: f32, x: &DeviceBuffer<f32>) -> Result<()> {
    let count = NUMBERS as u32;
    let mut launch = machine.stream.launch_builder(&machine.axpy);
    launch.arg(y).arg(x).arg(&a).arg(&count);
    // SAFETY: the arguments match the kernel's signature, both buffers have `count` elements, and all work is on one stream.
    unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }?;
    Ok(())
}

/// Returns `x` times one half in new memory, a temporary.
#[track_memory]
fn half(machine: &Machine, x: &DeviceBuffer<f32>) -> Result<DeviceBuffer<f32>> {
    let mut result = DeviceBuffer::zeros(&machine.allocator, &machine.stream, NUMBERS)?;
    add_scaled(machine, &mut result, 0.5, x)?;
    Ok(result)
}

#[track_memory(module)]
fn step(machine: &Machine, sum: &mut DeviceBuffer<f32>, x: &DeviceBuffer<f32>) -> Result<()> {
    let half = half(machine, x)?;
    add_scaled(machine, sum, 2.0, &half)
}

fn main() -> Result<()> {
    let driver = driver::open()?;
    println!("{STEPS} steps on {driver}\n");
    start_monitor_with(&Options::new().without_host_heap())?;

    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let axpy = context.load_module(Ptx::from_src(AXPY))?.load_function("axpy")?;
    let allocator = CachingAllocator::new(CudaMemory::all()?, &Settings::from_environment()?)?;
    let machine = Machine { allocator, stream, axpy };

    let ones = vec![1.0f32; NUMBERS];
    let x = DeviceBuffer::from_host(&machine.allocator, &machine.stream, &ones)?;
    let mut sum = DeviceBuffer::zeros(&machine.allocator, &machine.stream, NUMBERS)?;
    for _ in 0..STEPS {
        step(&machine, &mut sum, &x)?;
    }
    // A copy on another stream waits for the buffer's stream, and the memory is not reused until the copy is done.
    let other = context.new_stream()?;
    let mut copy = DeviceBuffer::zeros(&machine.allocator, &other, NUMBERS)?;
    other.memcpy_dtod(&sum, &mut copy)?;
    let result = copy.to_host()?;
    let expected = if driver == Driver::Real { STEPS as f32 } else { 0.0 };
    assert!(result.iter().all(|&number| number == expected), "{STEPS} steps of 1 make {STEPS}");

    let device = DeviceId(0);
    let stats = machine.allocator.statistics(device)?;
    println!("{}", machine.allocator.memory_summary(device, true)?);
    println!("requests met         {:>6}", stats.allocation.all.allocated);
    println!("asked of the driver  {:>6}\n", stats.num_device_alloc);
    drop((x, sum, copy));
    machine.allocator.empty_cache()?;
    println!("{}", stop().top_of(device, By::Operator, 5));
    Ok(())
}
