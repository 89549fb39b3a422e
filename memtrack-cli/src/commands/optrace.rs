//! How the verbs about operator traces get theirs, and the device they are about.

use crate::Streams;
use crate::args::TraceArgs;
use crate::error::CliError;
use memtrack_core::profile::Repairs;
use memtrack_core::profile::analysis::{AnalysisError, Profile, analyse};
use memtrack_core::profile::optrace::{self, Mode, ReadTrace};
use memtrack_core::profile::optrace_model::DeviceIndex;
use std::fs::File;
use std::path::Path;

/// Reads the trace.
///
/// # Errors
/// When it cannot be read.
pub(super) fn load(args: &TraceArgs, streams: &mut Streams<'_>) -> Result<ReadTrace, CliError> {
    let (path, most) = (&args.path, args.input.max_input);
    let failed = |error: &dyn std::fmt::Display| CliError::input(path, error);
    let read = if path == Path::new("-") {
        optrace::read(&mut *streams.stdin, mode(args), most)
    } else {
        optrace::read(File::open(path).map_err(|error| failed(&error))?, mode(args), most)
    };
    read.map_err(|error| failed(&error))
}

/// How the trace is treated.
pub(super) fn mode(args: &TraceArgs) -> Mode {
    if args.compat { Mode::Compat } else { Mode::Tolerant }
}

/// Analyses the trace, and says what was put right.
///
/// # Errors
/// When the trace has no allocations, or PyTorch would refuse it and is to be imitated.
pub(super) fn analysed<'a>(
    args: &TraceArgs,
    read: &'a ReadTrace,
    streams: &mut Streams<'_>,
) -> Result<(Profile<'a>, Repairs), CliError> {
    let profile = analyse(&read.trace, mode(args))
        .map_err(|error: AnalysisError| CliError::input(&args.path, error))?;
    let repairs = read.repairs.and(profile.repairs());
    for line in repairs.to_string().lines() {
        // A warning; when nobody can read it, the answer is right all the same.
        let _ = writeln!(streams.stderr, "memtrack: warning: {line}");
    }
    Ok((profile, repairs))
}

/// The device that was asked for, or the only one with memory.
///
/// # Errors
/// A usage error that lists the devices when the trace has no such device, or several and none was named.
pub(super) fn device(args: &TraceArgs, profile: &Profile<'_>) -> Result<DeviceIndex, CliError> {
    let devices = profile.devices();
    let name = |device: &DeviceIndex| profile.device_name(*device);
    let list = || devices.iter().map(name).collect::<Vec<_>>().join(", ");
    match (&args.device, &devices[..]) {
        (Some(asked), _) => devices
            .iter()
            .copied()
            .find(|device| name(device) == asked)
            .ok_or_else(|| CliError::Usage(format!("the trace has no device {asked}: it has {}", list()))),
        (None, [only]) => Ok(*only),
        (None, _) => {
            Err(CliError::Usage(format!("the trace has several devices: choose one by --device: {}", list())))
        }
    }
}
