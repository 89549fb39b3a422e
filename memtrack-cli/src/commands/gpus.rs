//! `memtrack gpus`: the machine's NVIDIA devices, their free memory, and the processes that use the rest.

use crate::Streams;
use crate::answers;
use crate::args::GpusArgs;
use crate::error::{CliError, Exit};
use memtrack_core::cuda::{Gpus, gpus};

/// Queries the driver and NVML, and prints the results. Failed queries are reported on standard error.
pub(crate) fn run(args: &GpusArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let page: Gpus = match gpus() {
        Ok(page) => page,
        Err(error) => {
            if args.format.json {
                // Scripts expect JSON even on a machine without a device or driver.
                answers::GPUS.print(&Gpus::none(error.clone()), streams)?;
            }
            return Err(CliError::Io(error.to_string()));
        }
    };
    if args.format.json {
        answers::GPUS.print(&page, streams)?;
    } else {
        write!(streams.stdout, "{page}")?;
    }
    if let Some(missing) = &page.missing {
        writeln!(streams.stderr, "memtrack: {missing}")?;
    }
    Ok(Exit::Success)
}
