//! `memtrack gpus`: the machine's NVIDIA devices, their free memory, and the processes that use the rest.

use super::prelude::*;
use memtrack_core::cuda::{Gpus, gpus};

/// Show the machine's NVIDIA devices: used and free memory, pools, processes (needs the NVIDIA driver)
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack gpus                                      each device: used, free, pools, processes
  memtrack gpus --json                               the same as JSON

Queries NVML, which uses no device memory, or without it the CUDA driver, which needs a context on each device.
Exit codes: 0 success, 2 wrong usage, 3 no driver, or one that does not respond.")]
pub(crate) struct GpusArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

pub(super) const ANSWER: Answer<Gpus> = Answer::new("gpus", 1);

/// Queries the driver and NVML, and prints the results. Failed queries are reported on standard error.
pub(super) fn run(args: &GpusArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let page: Gpus = match gpus() {
        Ok(page) => page,
        Err(error) => {
            if args.format.json {
                // Scripts expect JSON even on a machine without a device or driver.
                ANSWER.print(&Gpus::none(error.clone()), streams)?;
            }
            return Err(CliError::Io(error.to_string()));
        }
    };
    if args.format.json {
        ANSWER.print(&page, streams)?;
    } else {
        write!(streams.stdout, "{page}")?;
    }
    if let Some(missing) = &page.missing {
        writeln!(streams.stderr, "memtrack: {missing}")?;
    }
    Ok(Exit::Success)
}
