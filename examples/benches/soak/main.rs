//! A soak test: a service that runs under memtrack for minutes or hours, while another process checks that memtrack's memory,
//! the cost of an event and the files on disk stay constant. See `README.md` in this folder.
//!
//! The program runs as two processes: the watcher, and the service, which the watcher starts with `--serve`.
#![allow(missing_docs)]

mod judge;
mod picture;
mod plugin;
mod probe;
mod rows;
mod service;
mod watch;
mod work;

use memtrack_core::TrackingAllocator;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();

const USAGE: &str = "usage: soak [--seconds N | --minutes N | --hours N] [--without-times] [--output FOLDER]

  --seconds, --minutes, --hours   how long; 3 minutes by default, and at least 90 laps
  --without-times                 on a loaded machine: times are shown, and not checked
  --output FOLDER                 folder of the picture, the rows and the recording; memtrack-out/soak by default

Exit codes: 0 all stays flat, 1 something grows or fails, 2 wrong usage.";

/// The command line.
#[derive(Clone, Debug)]
pub struct Plan {
    pub lasts: Duration,
    pub checks_times: bool,
    pub folder: PathBuf,
    /// Whether this process is the service.
    pub serves: bool,
}

impl Plan {
    fn of_arguments() -> Result<Option<Self>, String> {
        let mut plan = Self {
            lasts: Duration::from_secs(180),
            checks_times: true,
            folder: PathBuf::from("memtrack-out/soak"),
            serves: false,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            let mut time = |seconds: f64| {
                let number = value()?;
                let long = number.parse().ok().map(|number: f64| number * seconds);
                long.and_then(|long| Duration::try_from_secs_f64(long).ok())
                    .ok_or(format!("{argument} needs a number, not '{number}'"))
            };
            match argument.as_str() {
                "--seconds" => plan.lasts = time(1.0)?,
                "--minutes" => plan.lasts = time(60.0)?,
                "--hours" => plan.lasts = time(3600.0)?,
                "--without-times" => plan.checks_times = false,
                "--output" => plan.folder = value()?.into(),
                "--serve" => plan.serves = true,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown argument '{argument}'")),
            }
        }
        Ok(Some(plan))
    }
}

fn main() -> ExitCode {
    let plan = match Plan::of_arguments() {
        Ok(Some(plan)) => plan,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("soak: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = if plan.serves { service::serve(&plan).map(|()| true) } else { watch::watch(&plan) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("soak: {why}");
            ExitCode::FAILURE
        }
    }
}
