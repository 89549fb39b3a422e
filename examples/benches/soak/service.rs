//! The service: lap after lap of the same work, all of it new to memtrack. Between two laps nothing runs and nothing that
//! the service took is still held, so that what is measured then is memtrack's, and should stay what it was.

use crate::plugin::Plugin;
use crate::rows::{Column, Row};
use crate::work::{self, Lap};
use crate::{Plan, probe};
use memtrack_core::recorder::Options;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Laps at least: in the first third of them all bounds are reached.
pub const LEAST_LAPS: u64 = 90;
/// Rows at most, about: a long run leaves some laps out.
const ROWS: u32 = 300;
/// What the recording may take on disk.
pub const MAX_BYTES: u64 = 24 << 20;
/// Before the line that says how many blocks of the device there were.
pub const END: &str = "end: ";

/// Where the recordings lie.
pub fn recordings(folder: &Path) -> PathBuf {
    folder.join("recordings")
}

/// The recording of the service itself.
pub fn recording(folder: &Path) -> PathBuf {
    recordings(folder).join("soak.memtrack")
}

/// Runs until the time is over, and prints rows.
pub fn serve(plan: &Plan) -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = std::path::absolute(&plan.folder)?;
    let (recordings, plugins) = (recordings(&folder), folder.join("plugins"));
    fs::create_dir_all(&plugins)?;
    let plugin = Plugin::build(&plugins)?;
    if plugin.is_none() {
        eprintln!("soak: there is no C compiler `cc`, so no plugins come and go");
    }
    keep_few_arenas();
    // Panics are caught, and many.
    std::panic::set_hook(Box::new(|_| {}));
    let options = Options::new()
        .stream_to(recording(&folder))
        .max_bytes(MAX_BYTES)
        .dump_on_oom(recordings.join("out-of-memory.memtrack"));
    memtrack_core::start_monitor_with(&options)?;
    let freeing = work::handed_over::Freeing::start();
    let begin = Instant::now();
    let between_rows = plan.lasts / ROWS;
    let mut next_row = Duration::ZERO;
    for number in 1.. {
        let lap = Lap { number, plugin: plugin.as_ref(), freeing: &freeing, recordings: &recordings };
        work::one_lap(&lap)?;
        let now = begin.elapsed();
        if now >= next_row {
            next_row = now + between_rows;
            let mut row = Row::of_now(&recordings);
            row[Column::Lap] = number as f64;
            row[Column::Seconds] = now.as_secs_f64();
            probe::measure(&mut row);
            println!("{row}");
            std::io::stdout().flush()?;
        }
        if now >= plan.lasts && number >= LEAST_LAPS {
            break;
        }
    }
    drop(freeing);
    drop(memtrack_core::stop());
    println!("{END}{}", work::device_blocks());
    Ok(())
}

/// The C library keeps a heap of its own for each of many threads, and in each what was free once: so the resident set of
/// a program that has a new thread for everything says how many of them there are, and not what is held.
#[allow(unsafe_code)]
fn keep_few_arenas() {
    // SAFETY: before there is a second thread.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
}
