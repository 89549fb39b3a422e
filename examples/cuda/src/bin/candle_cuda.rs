//! `train` on a CUDA device: the same model and the same annotations; the hook records the driver's allocations.
//!
//! Needs CUDA with nvcc to build, and a GPU to run.

use std::error::Error;
use std::fs;

use candle_core::Device;
use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;
use memtrack_core::{By, start_monitor_with, stop};
use memtrack_examples::config::Config;
use memtrack_examples::training;

fn main() -> Result<(), Box<dyn Error>> {
    let config = Config::default();
    start_monitor_with(&Options::new().without_host_heap())?;
    let device = Device::new_cuda(0)?;
    let outcome =
        training::train_on(&device, &config, |step, loss| println!("step {:>2}  loss {loss:.3}", step + 1))?;
    let recording = stop();
    outcome.check_learnt()?;

    println!("{}", recording.top_of(DeviceId(0), By::Operator, 20));
    println!("{}", recording.phases());
    fs::create_dir_all("memtrack-out")?;
    recording.save("memtrack-out/candle_cuda.memtrack")?;
    println!("written: memtrack-out/candle_cuda.memtrack");
    Ok(())
}
