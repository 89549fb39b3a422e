//! Trains a small transformer, and says where its memory went.

use std::error::Error;
use std::time::Instant;

use memtrack_examples::config::Config;
use memtrack_examples::training;

fn main() -> Result<(), Box<dyn Error>> {
    let config = Config::default();
    let start = Instant::now();
    let outcome = training::train(&config, |step, loss| println!("step {:>2}  loss {loss:.3}", step + 1))?;
    outcome.check_learnt()?;
    let (first, last) = outcome.first_and_last_loss();
    println!(
        "{} parameters, {} steps in {:.1} s, mean loss {first:.3} → {last:.3}",
        outcome.parameters,
        config.steps,
        start.elapsed().as_secs_f64(),
    );
    Ok(())
}
