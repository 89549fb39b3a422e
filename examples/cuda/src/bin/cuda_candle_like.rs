//! A training step's buffers on a CUDA device, as candle allocates them: each operator's output is a separate buffer,
//! kept for the backward pass. Nothing is computed, so no kernels are needed and it runs on every machine: on a GPU if
//! there is a driver, otherwise on the mock.
//!
//! The program reports no memory to memtrack: memtrack's hook records cudarc's calls to the driver.

use std::error::Error;
use std::fs;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};
use memtrack_core::analysis::units::human_bytes;
use memtrack_core::cuda::{mem_get_info, pool_statistics};
use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;
use memtrack_core::{By, scope, start_monitor_with, stop, track_memory};
use memtrack_examples_cuda::driver;

const BATCH: usize = 512;
const WIDTH: usize = 1024;
const BLOCKS: usize = 4;
const STEPS: usize = 3;

type Buffer = CudaSlice<f32>;
type Result<T> = std::result::Result<T, DriverError>;

/// A linear layer's parameters.
struct Linear {
    weight: Buffer,
    bias: Buffer,
    outputs: usize,
}

impl Linear {
    fn new(stream: &Arc<CudaStream>, inputs: usize, outputs: usize) -> Result<Self> {
        Ok(Self {
            weight: stream.alloc_zeros(inputs * outputs)?,
            bias: stream.alloc_zeros(outputs)?,
            outputs,
        })
    }

    #[track_memory(module, name = "linear")]
    fn forward(&self, stream: &Arc<CudaStream>) -> Result<[Buffer; 2]> {
        Ok([matmul(stream, BATCH * self.outputs)?, add(stream, BATCH * self.outputs)?])
    }
}

#[track_memory]
fn matmul(stream: &Arc<CudaStream>, numbers: usize) -> Result<Buffer> {
    stream.alloc_zeros(numbers)
}

#[track_memory]
fn add(stream: &Arc<CudaStream>, numbers: usize) -> Result<Buffer> {
    stream.alloc_zeros(numbers)
}

#[track_memory]
fn gelu(stream: &Arc<CudaStream>, numbers: usize) -> Result<Buffer> {
    stream.alloc_zeros(numbers)
}

/// Two linear layers with four times the width between them, like those of a transformer.
struct Block {
    up: Linear,
    down: Linear,
}

struct Model {
    blocks: Vec<Block>,
}

impl Model {
    fn new(stream: &Arc<CudaStream>) -> Result<Self> {
        let block = |_| {
            Ok(Block {
                up: Linear::new(stream, WIDTH, 4 * WIDTH)?,
                down: Linear::new(stream, 4 * WIDTH, WIDTH)?,
            })
        };
        Ok(Self { blocks: (0..BLOCKS).map(block).collect::<Result<_>>()? })
    }

    /// Returns all outputs, which the backward pass needs.
    #[track_memory(root)]
    fn forward(&self, stream: &Arc<CudaStream>) -> Result<Vec<Buffer>> {
        let mut outputs = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            let _scope = scope::module(&format!("block.{index}"));
            outputs.extend(block.up.forward(stream)?);
            outputs.push(gelu(stream, BATCH * block.up.outputs)?);
            outputs.extend(block.down.forward(stream)?);
        }
        Ok(outputs)
    }

    fn parameters(&self) -> impl Iterator<Item = &Buffer> {
        let layers = self.blocks.iter().flat_map(|block| [&block.up, &block.down]);
        layers.flat_map(|layer| [&layer.weight, &layer.bias])
    }
}

/// Allocates a gradient for each parameter, and one for each output, from the last to the first, freeing the output.
#[track_memory(backward)]
fn backward(stream: &Arc<CudaStream>, model: &Model, outputs: Vec<Buffer>) -> Result<Vec<Buffer>> {
    let mut of_output: Option<Buffer> = None;
    for output in outputs.into_iter().rev() {
        // The previous gradient is freed after this one is allocated.
        of_output.replace(stream.alloc_zeros(output.len())?);
    }
    model.parameters().map(|parameter| stream.alloc_zeros(parameter.len())).collect()
}

/// AdamW's two moments of each parameter.
#[derive(Default)]
struct AdamW {
    moments: Vec<[Buffer; 2]>,
}

impl AdamW {
    #[track_memory(optimizer)]
    fn step(&mut self, stream: &Arc<CudaStream>, gradients: &[Buffer]) -> Result<()> {
        if self.moments.is_empty() {
            let moments = gradients.iter().map(|gradient| {
                Ok([stream.alloc_zeros(gradient.len())?, stream.alloc_zeros(gradient.len())?])
            });
            self.moments = moments.collect::<Result<_>>()?;
        }
        gradients.iter().try_for_each(|gradient| stream.clone_dtod(gradient).map(drop))
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    println!("{STEPS} steps on {}\n", driver::open()?);
    start_monitor_with(&Options::new().without_host_heap())?;

    let stream = CudaContext::new(0)?.default_stream();
    let model = Model::new(&stream)?;
    let mut optimizer = AdamW::default();
    for _ in 0..STEPS {
        let outputs = model.forward(&stream)?;
        let gradients = backward(&stream, &model, outputs)?;
        optimizer.step(&stream, &gradients)?;
    }

    let memory = mem_get_info(0)?;
    let pool = pool_statistics(0).ok();
    // Without an annotation, the innermost function of this program names the operator.
    let recording = stop().with_pattern("cuda_candle_like::*");
    let device = DeviceId(0);
    println!("{}", recording.top_of(device, By::Operator, 12));
    println!("{}", recording.phases());

    let snapshot = recording.snapshot();
    let live: u64 =
        snapshot.blocks.iter().filter(|block| block.device == device).map(|block| block.size_bytes).sum();
    println!("live at the end  {:>10}", human_bytes(live));
    if let Some(pool) = pool {
        println!("pool's cache     {:>10}", human_bytes(pool.cached_bytes()));
    }
    println!(
        "not this program's {:>8}",
        human_bytes(memory.untracked_bytes(live + pool.map_or(0, |pool| pool.cached_bytes())))
    );

    fs::create_dir_all("memtrack-out")?;
    recording.save("memtrack-out/cuda.memtrack")?;
    println!("\nwritten: memtrack-out/cuda.memtrack");
    Ok(())
}
