//! The main example: trains a small transformer under memtrack and prints which operators allocated the memory.
//!
//! Prints the report, and writes `memtrack-out/{stats.pickle,train.memtrack,figures.html,view.html}` in the current folder.

use std::error::Error;
use std::fs;
use std::time::Instant;

use memtrack_core::recorder::Options;
use memtrack_core::{By, TrackingAllocator, start_monitor_with, stop};
use memtrack_examples::config::Config;
use memtrack_examples::training;

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();

fn main() -> Result<(), Box<dyn Error>> {
    let config = Config::default();

    // Also records operators with their tensors, from which reports derive the purpose of memory.
    start_monitor_with(&Options::new().operators())?;
    let start = Instant::now();
    let outcome = training::train(&config, |step, loss| println!("step {:>2}  loss {loss:.3}", step + 1))?;
    let seconds = start.elapsed().as_secs_f64();
    let recording = stop();

    outcome.check_learnt()?;

    fs::create_dir_all("memtrack-out")?;
    recording.tracker().save_stats("memtrack-out/stats.pickle")?;
    recording.save("memtrack-out/train.memtrack")?;
    recording.tracker().show_traces("memtrack-out/figures.html")?;
    recording.save_page("memtrack-out/view.html")?;

    let (first, last) = outcome.first_and_last_loss();
    println!(
        "{} parameters, {} steps in {seconds:.1} s, mean loss {first:.3} → {last:.3}\n",
        outcome.parameters, config.steps,
    );
    println!("{}", recording.top(By::Operator, 20));
    println!("{}", recording.phases());
    println!("{}", recording.top(By::Category, 20));

    println!("written: memtrack-out/{{stats.pickle,train.memtrack,figures.html,view.html}}");
    Ok(())
}
