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

/// The JSON output.
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

impl Form {
    /// Returns the suffix of files in this form.
    fn name(self) -> &'static str {
        match self {
            Self::Coalesced => "json",
            Self::Raw => "raw.json",
            Self::Svg => "svg",
            Self::Png => "png",
            Self::Page => "html",
            Self::Pickle => "pickle",
        }
    }
}

/// Returns the form selected by the suffix of the output's name, and whether the file is compressed.
fn output_form(output: &Path) -> Result<(Form, bool), CliError> {
    let name = output.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let forms = [
        (".raw.json", Form::Raw, true),
        (".json", Form::Coalesced, true),
        (".svg", Form::Svg, false),
        (".png", Form::Png, false),
        (".html", Form::Page, false),
        (".pickle", Form::Pickle, true),
    ];
    let found = forms.into_iter().find_map(|(suffix, form, may_be_packed)| {
        let plain = name.strip_suffix(".gz").filter(|_| may_be_packed);
        plain.unwrap_or(&name).ends_with(suffix).then_some((form, plain.is_some()))
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
    let (form, packed) = if to_stdout { (Form::Coalesced, false) } else { output_form(&args.output)? };
    if !to_stdout {
        check_targets([args.output.as_path()], args.force)?;
    }
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
    let mut content = match form {
        Form::Coalesced => {
            let mut json = Vec::new();
            CoalescedTimeline::of(&profile, device).write(&mut json)?;
            json
        }
        Form::Raw => {
            let mut json = Vec::new();
            write_raw(&profile, device, &mut json)?;
            json
        }
        Form::Svg => figure::svg(&profile, device, reserved).map_err(drawn)?.into_bytes(),
        Form::Png => png::render_image(figure::WIDTH, figure::HEIGHT, |root, scale| {
            figure::draw(&profile, device, reserved, root, scale).map_err(|error| error.to_string())
        })
        .map_err(drawn)?,
        Form::Page => {
            let mut page = Vec::new();
            Page::of(&in_pytorch_form(streams), &scrub::scrub_name(page_name(&args.trace.path), &args.scrub))
                .showing(View::Categories)
                .write(&mut page)?;
            page
        }
        Form::Pickle => pytorch::write(&in_pytorch_form(streams), Vec::new(), Encoding::Pickle)?,
    };
    let mut name = form.name().to_owned();
    if to_stdout {
        content.push(b'\n');
        streams.stdout.write_all(&content)?;
        ANSWER.report_written(&args.output, &name, args.written, streams)?;
        return Ok(Exit::Success);
    }
    let failed = |error| CliError::output(&args.output, error);
    if packed {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        content = gzip.write_all(&content).and_then(|()| gzip.finish()).map_err(failed)?;
        name += ".gz";
    }
    write_files(&[(args.output.clone(), content)])?;
    ANSWER.report_written(&args.output, &name, args.written, streams)?;
    Ok(Exit::Success)
}

/// Returns the peak of reserved memory on a device in bytes, or `None` if the recording has no segments on that device.
fn reserved_peak(recording: &Snapshot, device: &str) -> Option<u64> {
    let number = device.rsplit_once(':').and_then(|(_, number)| number.parse().ok())?;
    Some(ReservedPeak::of(recording, DeviceId(number)).bytes).filter(|&bytes| bytes > 0)
}
