//! `memtrack timeline`: the categories of memory over time, in the formats of PyTorch's exports.

use super::prelude::*;
use crate::page::page_name;
use crate::png;
use flate2::Compression;
use flate2::write::GzEncoder;
use memtrack_core::analysis::reserved::ReservedPeak;
use memtrack_core::event::DeviceId;
use memtrack_core::page::{Page, View};
use memtrack_core::profile::export::{CoalescedTimeline, write_raw};
use memtrack_core::profile::figure;
use memtrack_core::profile::snapshot::snapshot;
use memtrack_core::snapshot::pytorch::{self, Encoding};
use std::io::Write;

/// Write what memory was for over time: PyTorch's exports, a picture, a page or a snapshot, from an operator trace
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack timeline run.optrace.jsonl.gz -o memory.html        look at it in the browser
  memtrack timeline run.optrace.jsonl.gz -o memory.svg         the picture that PyTorch's profiler draws
  memtrack timeline run.optrace.jsonl.gz -o memory.json        PyTorch's export: bytes by category over time
  memtrack timeline run.optrace.jsonl.gz --device cuda:1 -o memory.raw.json.gz    each change, in ns
  memtrack timeline run.optrace.jsonl.gz -o profile.pickle     a snapshot with categories, for every other verb

The suffix selects the form: .html, .svg, .png, .json, .json.gz, .raw.json.gz or .pickle. `memtrack export-script` prints the
script that records an operator trace of a PyTorch program.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    pub(crate) trace: OptraceArgs,
    /// The file to write; `-` prints the JSON export
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) written: WrittenArgs,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

pub(super) const ANSWER: Answer<WrittenAnswer> = Answer::new("timeline", 1);

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Coalesced,
    Raw,
    Svg,
    Png,
    Page,
    Pickle,
}

/// The formats with their suffixes, and whether they may be compressed.
const FORMS: [(&str, Form, bool); 6] = [
    ("raw.json", Form::Raw, true),
    ("json", Form::Coalesced, true),
    ("svg", Form::Svg, false),
    ("png", Form::Png, false),
    ("html", Form::Page, false),
    ("pickle", Form::Pickle, true),
];

/// Returns the format selected by the suffix of the output's name, that suffix, and whether the file is compressed.
fn output_form(output: &Path) -> Result<(Form, &'static str, bool), CliError> {
    let name = output.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let found = FORMS.into_iter().find_map(|(suffix, form, may_be_packed)| {
        let plain = name.strip_suffix(".gz").filter(|_| may_be_packed);
        let is_named = plain.unwrap_or(&name).strip_suffix(suffix).is_some_and(|stem| stem.ends_with('.'));
        is_named.then_some((form, suffix, plain.is_some()))
    });
    found.ok_or_else(|| {
        CliError::Usage(format!(
            "{}: end the name in .html, .svg, .png, .json, .json.gz, .raw.json.gz or .pickle",
            output.display()
        ))
    })
}

/// Analyses the trace and writes the output.
pub(super) fn run(args: &TimelineArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let to_stdout = args.output == Path::new("-");
    let (form, suffix, packed) =
        if to_stdout { (Form::Coalesced, "json", false) } else { output_form(&args.output)? };
    check_output(&args.output, args.force)?;
    let mut source = optrace::load(&args.trace, streams)?;
    if let Some(scrub) = scrub::from_args(&args.scrub) {
        scrub.times(&mut source.read.trace);
    }
    let recording = source.recording.take();
    let drawn = |error: String| CliError::output(&args.output, error);
    let (profile, _) = optrace::analyse_trace(&args.trace, &source, streams)?;
    // These forms are snapshots, which contain all devices.
    let device = match (form, &args.trace.device) {
        (Form::Page | Form::Pickle, None) => profile.devices().first().copied().unwrap_or_default(),
        _ => optrace::select_device(&args.trace, &profile)?,
    };
    // Print the error of an estimate here, because PyTorch's formats have no field for it.
    let estimate = profile.attribution().and_then(|attribution| attribution.peak_error(device));
    if let Some(peak) = estimate.filter(|_| !matches!(form, Form::Page | Form::Pickle)) {
        streams.note(format_args!(
            "memtrack: note: small blocks were sampled, so that sums are estimates; the peak: {}",
            peak.as_bytes(peak.value as u64)
        ));
    }
    let devices = if args.trace.device.is_some() { vec![device] } else { profile.devices() };
    let reserved =
        recording.as_ref().and_then(|recording| reserved_peak(recording, profile.device_name(device)));
    let in_pytorch_form = |streams: &mut Streams<'_>| {
        let snapshot = match recording {
            // A recording has stacks and segments, which its operator trace lacks.
            Some(recording) if args.trace.device.is_none() => convert_to_pytorch(recording),
            _ => snapshot(&profile, &devices),
        };
        scrub::scrub_pytorch(snapshot, &args.scrub, streams)
    };
    let mut content = Vec::new();
    match form {
        Form::Coalesced => CoalescedTimeline::of(&profile, device).write(&mut content)?,
        Form::Raw => write_raw(&profile, device, &mut content)?,
        Form::Svg => content.extend(figure::svg(&profile, device, reserved).map_err(drawn)?.into_bytes()),
        Form::Png => {
            content = png::render_image(figure::WIDTH, figure::HEIGHT, |root, scale| {
                figure::draw(&profile, device, reserved, root, scale).map_err(|error| error.to_string())
            })
            .map_err(drawn)?;
        }
        Form::Page => {
            let name = scrub::scrub_name(page_name(&args.trace.path), &args.scrub);
            Page::of(&in_pytorch_form(streams), &name).showing(View::Categories).write(&mut content)?;
        }
        Form::Pickle => content = pytorch::write(&in_pytorch_form(streams), content, Encoding::Pickle)?,
    }
    if to_stdout {
        content.push(b'\n');
    }
    let mut name = suffix.to_owned();
    if packed {
        let failed = |error| CliError::output(&args.output, error);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        content = gzip.write_all(&content).and_then(|()| gzip.finish()).map_err(failed)?;
        name += ".gz";
    }
    write_output(&args.output, streams, |out| out.write_all(&content))?;
    ANSWER.report_written(&args.output, &name, args.written, streams)?;
    Ok(Exit::Success)
}

/// Returns the peak of reserved memory on a device in bytes, or `None` if the recording has no segments on that device.
fn reserved_peak(recording: &Snapshot, device: &str) -> Option<u64> {
    let number = device.rsplit_once(':').and_then(|(_, number)| number.parse().ok())?;
    Some(ReservedPeak::of(recording, DeviceId(number)).bytes).filter(|&bytes| bytes > 0)
}
