//! Trains a model that leaks through a cycle, and prints what each step leaves on the device. With `fixed`, nothing leaks.
//!
//! Writes its pages into `memtrack-out/autodiff/` in the current folder, replacing those of earlier runs.

use std::error::Error;
use std::{env, fs, io};

use memtrack_core::cycles::{self, WatchOptions};
use memtrack_core::recorder::Options;
use memtrack_core::{start_monitor_with, stop};
use memtrack_examples_autodiff::Variant;
use memtrack_examples_autodiff::device::Device;
use memtrack_examples_autodiff::training::Training;

const STEPS: usize = 8;
const FOLDER: &str = "memtrack-out/autodiff";

fn main() -> Result<(), Box<dyn Error>> {
    let variant = match env::args().nth(1).as_deref() {
        None => Variant::Mistake,
        Some("fixed") => Variant::Fixed,
        Some(other) => return Err(format!("`{other}`: the only argument is `fixed`").into()),
    };
    match fs::remove_dir_all(FOLDER) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir_all(FOLDER)?,
    }

    // memtrack: records device allocations with their stacks, which the pages show …
    start_monitor_with(&Options::new().without_host_heap())?;
    // … and looks for cycles at the end of each step. `warn_device_cycles()` would write the pages into the temporary folder.
    cycles::warn_device_cycles_with(WatchOptions::new().folder(FOLDER));

    let training = Training::new(&Device::new(), variant);
    for step in 1..=STEPS {
        let loss = training.step();
        println!("step {step}  loss {loss:.4}  on the device {:>10} bytes", training.in_use_bytes());
    }

    // memtrack: finds all cycles of all steps.
    let report = cycles::find()?;
    println!("\n{report}\n");
    if !report.graph.nodes.is_empty() {
        report.save_page(format!("{FOLDER}/cycles.html"))?;
        println!("written: {FOLDER}/cycles.html");
    }
    stop();
    Ok(())
}
