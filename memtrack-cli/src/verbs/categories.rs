//! `memtrack categories`: the categories of memory.

use super::prelude::*;
use crate::optrace::Source;
use memtrack_core::analysis::attribution::EventNames;
use memtrack_core::profile::analysis::Profile;
use memtrack_core::profile::optrace::looks_like_trace;
use memtrack_core::profile::reading::{BlockCategories, CategoryReading};
use memtrack_core::profile::report::{CategoryReport, ReportMoment};
use std::io::Read;

/// Show what a training run's memory is for: parameters, gradients, activations and more
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack categories run.optrace.jsonl.gz                  what the peak is made of, and what is left at the end
  memtrack categories run.optrace.jsonl.gz --at 12.5ms      … 12.5 ms after the start of the trace
  memtrack categories run.optrace.jsonl.gz --json           the same as JSON
  memtrack categories run.optrace.jsonl.gz --tensors        every version of every tensor with its category
  memtrack categories snapshot.pickle                       what can be inferred from stacks, sizes and the order of events

Categories of an operator trace are as exact as the trace: each piece of memory has the category that PyTorch's profiler
assigns, or one of memtrack's own; memory that no rule covers is UNKNOWN. Those of a snapshot or a recording are inferred by
named rules, which the report lists; they are not exact, and the report shows how much has no category.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct CategoriesArgs {
    #[command(flatten)]
    pub(crate) trace: OptraceArgs,
    /// The moment: peak, end, or a time after the start of the trace such as 12.5ms [default: peak and end]
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment, allow_hyphen_values = true, conflicts_with = "tensors")]
    pub(crate) at: Option<ReportMoment>,
    /// List every version of every tensor instead
    #[arg(long)]
    pub(crate) tensors: bool,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    /// Do not shorten names
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

fn moments(args: &CategoriesArgs) -> Vec<ReportMoment> {
    args.at.map_or_else(|| vec![ReportMoment::Peak, ReportMoment::End], |at| vec![at])
}

fn parse_moment(text: &str) -> Result<ReportMoment, String> {
    const UNITS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    match text {
        "peak" => return Ok(ReportMoment::Peak),
        "end" => return Ok(ReportMoment::End),
        _ => {}
    }
    let time = UNITS.iter().find_map(|(unit, ns)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0 && number * ns < 9e18).then_some((number * ns) as i64)
    });
    time.map(ReportMoment::After)
        .ok_or_else(|| "expected peak, end, or a time with its unit, such as 12.5ms".into())
}

pub(super) const ANSWER: Answer<CategoriesAnswer> = Answer::new("categories", 3);

/// The categories of memory.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CategoriesAnswer {
    /// The devices; only one for an operator trace.
    pub(crate) devices: Vec<DeviceCategories>,
}

/// The categories of a device's memory.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum DeviceCategories {
    /// The categories of an operator trace.
    Traced(CategoryReport),
    /// Categories inferred from stacks and the order of events.
    Read(Box<CategoryReading>),
}

/// Prints the categories of an operator trace or of a recording that has operators, or the categories that can be
/// inferred from any other recording or from a snapshot.
pub(super) fn run(args: &CategoriesArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let head = optrace::read_head(&args.trace, streams)?;
    // Put the head back in front of standard input, so that it is read again.
    let mut stdin = head.as_slice().chain(&mut *streams.stdin);
    let streams =
        &mut Streams { stdin: &mut stdin, stdout: &mut *streams.stdout, stderr: &mut *streams.stderr };
    if looks_like_trace(&head) {
        return print_trace_categories(args, &optrace::load(&args.trace, streams)?, streams);
    }
    let Loaded { snapshot, .. } =
        load_with(&args.trace.path, &args.trace.input, &args.trace.symbols, streams)?;
    match optrace::from_recording(snapshot) {
        Ok(source) => print_trace_categories(args, &source, streams),
        Err(snapshot) => print_inferred_categories(args, *snapshot, streams),
    }
}

/// Analyses the trace and prints its categories. If it comes from a recording, the device is named as in reports about
/// recordings rather than as in operator traces (`cuda:0`).
fn print_trace_categories(
    args: &CategoriesArgs,
    source: &Source,
    streams: &mut Streams<'_>,
) -> Result<Exit, CliError> {
    let (profile, repairs) = optrace::analyse_trace(&args.trace, source, streams)?;
    if args.tensors {
        return print_tensors(args, &profile, streams);
    }
    let device = optrace::select_device(&args.trace, &profile)?;
    let mut report = CategoryReport::of(&profile, device, &moments(args), repairs);
    if source.recording.is_some() {
        optrace::rename_device(&mut report.device);
    }
    if args.format.json {
        let devices = vec![DeviceCategories::Traced(report.listed(args.rows.limit()))];
        ANSWER.print(&CategoriesAnswer { devices }, streams)?;
    } else {
        let width = width(args.wide);
        streams.stdout.write_all(report.to_text(args.rows.limit(), width).as_bytes())?;
    }
    Ok(Exit::Success)
}

/// Prints every version of every tensor.
fn print_tensors(
    args: &CategoriesArgs,
    profile: &Profile<'_>,
    streams: &mut Streams<'_>,
) -> Result<Exit, CliError> {
    let device =
        args.trace.device.as_ref().map(|_| optrace::select_device(&args.trace, profile)).transpose()?;
    let mut first = true;
    if args.format.json {
        streams.stdout.write_all(b"[")?;
    }
    for labelled in profile.labelled() {
        let Some(storage) = profile.storages()[labelled.storage as usize] else { continue };
        if device.is_some_and(|device| device != storage.device) {
            continue;
        }
        let category = labelled.category.map(|category| category.name());
        if args.format.json {
            let separator = if std::mem::take(&mut first) { "" } else { ",\n " };
            let row = serde_json::json!({
                "id": storage.tensor,
                "ptr": storage.address,
                "alloc": labelled.storage,
                "device": profile.device_name(storage.device),
                "version": labelled.version,
                "category": category,
            });
            write!(streams.stdout, "{separator}{row}")?;
        } else {
            if std::mem::take(&mut first) {
                writeln!(
                    streams.stdout,
                    "{:>8} {:>10} {:>18}  {:>7}  category",
                    "tensor", "allocation", "address", "version"
                )?;
            }
            writeln!(
                streams.stdout,
                "{:>8} {:>10} {:#18x}  {:>7}  {}",
                storage.tensor,
                labelled.storage,
                storage.address,
                labelled.version,
                category.unwrap_or("UNKNOWN"),
            )?;
        }
    }
    if args.format.json {
        streams.stdout.write_all(b"]\n")?;
    }
    Ok(Exit::Success)
}

/// Infers the categories of each device from stacks, scopes and the order of events, and prints them.
fn print_inferred_categories(
    args: &CategoriesArgs,
    snapshot: Snapshot,
    streams: &mut Streams<'_>,
) -> Result<Exit, CliError> {
    let only_traces = [(args.trace.compat, "--compat"), (args.tensors, "--tensors")];
    if let Some((_, option)) = only_traces.into_iter().find(|&(is_given, _)| is_given) {
        let path = args.trace.path.display();
        let why = "is not an operator trace; `memtrack export-script` prints the script that records one";
        return Err(CliError::Usage(format!("{option}: {path} {why}")));
    }
    let requested = args.trace.device.as_deref().map(parse_device_selector).transpose()?;
    let Context { snapshot, devices, mut symbols, .. } = Context::of(snapshot, requested, None, streams)?;
    if matches!(args.at, Some(ReportMoment::After(_))) && !snapshot.has_times() {
        let path = args.trace.path.display();
        let why = "its events have no times: use --at peak or --at end";
        return Err(CliError::Usage(format!("--at: {path}: {why}")));
    }
    let names = EventNames::of(&snapshot, &mut symbols);
    let read = |device| {
        let blocks = BlockCategories::infer(&snapshot, &mut symbols, device);
        CategoryReading::of(&snapshot, device, &blocks, &moments(args), &names)
    };
    let mut devices: Vec<CategoryReading> = devices.into_iter().map(read).collect();
    let is_used = |device: &CategoryReading| device.all.blocks > 0;
    if requested.is_none() && devices.iter().any(is_used) {
        devices.retain(is_used);
    }
    if args.format.json {
        let devices = devices.into_iter().map(|device| DeviceCategories::Read(Box::new(device))).collect();
        ANSWER.print(&CategoriesAnswer { devices }, streams)?;
    } else {
        print_devices(&devices, streams)?;
    }
    Ok(Exit::Success)
}

/// Parses a device name as used in reports (`0`) or in operator traces (`cuda:0`).
fn parse_device_selector(text: &str) -> Result<DeviceSelector, CliError> {
    let number = text.strip_prefix("cuda:").unwrap_or(text);
    parse_device(number).map_err(|error| CliError::Usage(format!("--device {text}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_word_or_a_time_with_its_unit() {
        assert_eq!(parse_moment("peak"), Ok(ReportMoment::Peak));
        assert_eq!(parse_moment("12.5ms"), Ok(ReportMoment::After(12_500_000)));
        assert_eq!(parse_moment("3 s"), Ok(ReportMoment::After(3_000_000_000)));
        for wrong in ["", "12", "ms", "-1ms", "1e300s", "nans"] {
            assert!(parse_moment(wrong).is_err(), "{wrong}");
        }
    }
}
