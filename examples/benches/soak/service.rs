//! The service: laps of the same work with names and stacks that are new to memtrack. Between laps no work runs and the service
//! has freed all of its memory, so that the measurements show memtrack's memory, which should stay constant.

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

/// The minimum number of laps: memtrack reaches all of its bounds in the first third of them.
pub const MIN_LAPS: u64 = 90;
/// The approximate maximum number of rows: a long run does not measure after every lap.
const ROWS: u32 = 300;
/// The maximum size of the recording on disk.
pub const MAX_BYTES: u64 = 24 << 20;
/// The prefix of the service's last line, which contains the number of blocks that the device has reported.
pub const END: &str = "end: ";

/// Returns the folder of the recordings.
pub fn recordings(folder: &Path) -> PathBuf {
    folder.join("recordings")
}

/// Returns the path of the service's recording.
pub fn recording(folder: &Path) -> PathBuf {
    recordings(folder).join("soak.memtrack")
}

/// Runs laps until the planned time is over, and prints rows.
pub fn serve(plan: &Plan) -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = std::path::absolute(&plan.folder)?;
    let (recordings, plugins) = (recordings(&folder), folder.join("plugins"));
    fs::create_dir_all(&plugins)?;
    let plugin = Plugin::build(&plugins)?;
    if plugin.is_none() {
        eprintln!("soak: there is no C compiler `cc`, so no plugins are loaded");
    }
    keep_few_arenas();
    // The work panics often; all panics are caught and need no message.
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
        if now >= plan.lasts && number >= MIN_LAPS {
            break;
        }
    }
    drop(freeing);
    drop(memtrack_core::stop());
    println!("{END}{}", work::device_blocks());
    Ok(())
}

/// Limits the C library to two arenas. By default it creates many, one per thread, and retains free memory in each, so that the
/// resident set of a program with many short threads depends on the number of arenas instead of live memory.
#[allow(unsafe_code)]
fn keep_few_arenas() {
    // SAFETY: no other thread runs yet.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
}
