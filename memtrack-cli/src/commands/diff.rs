//! `memtrack diff`: what changed between two files.

use super::devices::select_devices;
use super::top::mention_missing;
use crate::Streams;
use crate::answers::{self, DiffFileAnswer, FilesDiffAnswer};
use crate::args::device::DeviceSelector;
use crate::args::{DiffArgs, InputArgs};
use crate::error::{CliError, Exit};
use crate::load::{check_places, load};
use crate::output::{check_targets, write_files};
use crate::ownership::read_rules;
use crate::report::{layout, mention_reordered};
use crate::scrub;
use crate::unmatched::Unmatched;
use memtrack_core::analysis::diff::{Diff, DiffAt, DiffBy, Side, flame_graph};
use memtrack_core::analysis::ownership::Rules;
use memtrack_core::scrub::Scrub;
use memtrack_core::snapshot::recording::ReadReport;
use memtrack_core::snapshot::{Loaded, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use std::path::{Path, PathBuf};

/// The kind of file that `-o` writes.
#[derive(Clone, Copy)]
enum Picture {
    Svg,
    Folded,
}

/// The memory of a file, added up in groups such as lines or operators.
pub(super) struct ReducedFile {
    /// The groups that the report compares.
    pub(super) side: Side,
    /// The memory grouped by stack, for the picture; `None` if no picture is written.
    stacks: Option<Side>,
    /// For a recording, which part of it was read; `None` for other files.
    report: Option<ReadReport>,
}

/// Adds up each file's memory in groups, one file after the other, then compares the groups and prints the differences.
pub(crate) fn run(args: &DiffArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    check_inputs(&args.before, &args.after)?;
    check_places(&args.symbols)?;
    let picture = args.output.as_deref().map(picture_kind).transpose()?;
    check_targets(args.output.as_deref(), args.force)?;
    let rules = read_rules(&args.rules)?;
    let mut reduce_options = ReduceOptions {
        by: args.by,
        at: args.at,
        device: args.device.device,
        symbols: &args.symbols.places,
        rules: &rules,
        stacks: picture.is_some(),
    };
    let mut unmatched = Unmatched::new(&args.rules);
    let mut pseudonyms = scrub::from_args(&args.scrub);
    let before =
        reduce_options.read(&args.before, &args.input, pseudonyms.as_mut(), &mut unmatched, streams)?;
    reduce_options.by = Some(before.side.by);
    let input = args.input.matching(before.report.as_ref());
    let after = reduce_options.read(&args.after, &input, pseudonyms.as_mut(), &mut unmatched, streams)?;
    unmatched.mention(streams);
    scrub::mention_security(&args.scrub, pseudonyms.as_ref(), streams);
    let diff = Diff::of(&before.side, &after.side, args.rows.limit());
    check_common(&diff, [&args.before, &args.after], [&before.side, &after.side])?;
    if args.format.json {
        let mut file = |path: &Path, file: &ReducedFile| DiffFileAnswer {
            path: match &mut pseudonyms {
                Some(scrub) => scrub.file(path),
                None => path.to_string_lossy().into_owned(),
            },
            is_pytorch: file.side.is_pytorch,
            complete: file.report.as_ref().is_none_or(|report| report.complete),
        };
        let (before, after) = (file(&args.before, &before), file(&args.after, &after));
        answers::DIFF.print(&FilesDiffAnswer { before, after, diff: diff.answer_json() }, streams)?;
    } else {
        write!(streams.stdout, "{}", diff.to_text(layout(args.text)))?;
    }
    if let (Some(target), Some(picture), Some(earlier), Some(later)) =
        (&args.output, picture, &before.stacks, &after.stacks)
    {
        let stacks = Diff::of(earlier, later, usize::MAX);
        let mut content = Vec::new();
        match picture {
            Picture::Svg => {
                flame_graph(&stacks, &diff, &mut content).map_err(|error| CliError::output(target, error))?
            }
            Picture::Folded => {
                content = stacks.folded().into_iter().flat_map(|line| (line + "\n").into_bytes()).collect();
            }
        }
        write_files(&[(target.clone(), content)])?;
        // Ignore a failure to print this hint, because the file is complete without it.
        let _ = writeln!(streams.stderr, "wrote {}", target.display());
    }
    Ok(Exit::Success)
}

/// The options for reducing files.
pub(super) struct ReduceOptions<'a> {
    /// The grouping, or `None` for the file's default.
    pub(super) by: Option<DiffBy>,
    /// The blocks to count: those live at the peak or at the end, or all.
    pub(super) at: DiffAt,
    /// The requested device; `None` for all devices.
    pub(super) device: Option<DeviceSelector>,
    /// Folders with the recorded program's binaries.
    pub(super) symbols: &'a [PathBuf],
    /// The rules that distinguish the user's code.
    pub(super) rules: &'a Rules,
    /// Whether to group by stack as well, for the picture.
    pub(super) stacks: bool,
}

impl ReduceOptions<'_> {
    /// Reads a file and adds up its memory in groups, so that the file itself can be dropped from memory. If `pseudonyms` is
    /// given, names are replaced with pseudonyms.
    ///
    /// # Errors
    /// Fails if the file cannot be read, has neither memory nor events, or does not have the device.
    fn read(
        &self,
        path: &Path,
        input: &InputArgs,
        pseudonyms: Option<&mut Scrub>,
        unmatched: &mut Unmatched,
        streams: &mut Streams<'_>,
    ) -> Result<ReducedFile, CliError> {
        let Loaded { mut snapshot, report, .. } = load(path, input, streams)?;
        mention_reordered(snapshot.order_by_time(), streams);
        let snapshot = scrub::scrub_snapshot_with(snapshot, pseudonyms, self.symbols);
        let (side, stacks) = self.reduce(path, &snapshot, streams)?;
        unmatched.scan(&snapshot, &mut self.symbolizer(&snapshot));
        Ok(ReducedFile { side, stacks, report })
    }

    fn symbolizer(&self, snapshot: &Snapshot) -> Symbolizer {
        self.symbols.iter().fold(Symbolizer::of(snapshot), |symbols, folder| symbols.with_folder(folder))
    }

    /// Adds up a loaded file's memory in groups. The file's events must be in chronological order.
    ///
    /// # Errors
    /// Fails if the file has neither memory nor events, or does not have the device.
    pub(super) fn reduce(
        &self,
        path: &Path,
        snapshot: &Snapshot,
        streams: &mut Streams<'_>,
    ) -> Result<(Side, Option<Side>), CliError> {
        let devices = select_devices(snapshot, self.device)?;
        let by = self.by.unwrap_or_else(|| DiffBy::default_for(snapshot));
        let mut symbols = self.symbolizer(snapshot);
        let mut side = |by| Side::of(snapshot, &mut symbols, &devices, by, self.at, self.rules);
        let groups = side(by);
        if groups.is_empty() {
            let why = match self.at {
                DiffAt::Total => {
                    "it holds no allocation, so there is nothing to compare; --at end compares what is live"
                }
                _ => "it holds no memory and no events, so there is nothing to compare",
            };
            return Err(CliError::input(path, why));
        }
        let stacks = self.stacks.then(|| side(DiffBy::Stack));
        mention_missing(&symbols, streams);
        Ok((groups, stacks))
    }
}

/// Rejects reading both files from standard input.
///
/// # Errors
/// Returns a usage error if both files are standard input.
pub(super) fn check_inputs(before: &Path, after: &Path) -> Result<(), CliError> {
    match before == Path::new("-") && after == Path::new("-") {
        true => Err(CliError::Usage("only one of the two can be standard input".into())),
        false => Ok(()),
    }
}

/// Rejects files that have no device in common.
///
/// # Errors
/// Returns a usage error that lists the devices of both files.
pub(super) fn check_common(diff: &Diff, paths: [&Path; 2], sides: [&Side; 2]) -> Result<(), CliError> {
    if !diff.devices.is_empty() {
        return Ok(());
    }
    let devices = |side: usize| {
        let names: Vec<&str> = sides[side].devices.iter().map(|device| device.device.name.as_str()).collect();
        format!("{} has {}", paths[side].display(), names.join(", "))
    };
    Err(CliError::Usage(format!("the two files have no device in common: {}; {}", devices(0), devices(1))))
}

/// Returns the kind of picture selected by the suffix of a file name.
fn picture_kind(target: &Path) -> Result<Picture, CliError> {
    match target.extension().and_then(|suffix| suffix.to_str()) {
        Some("svg") => Ok(Picture::Svg),
        Some("folded") => Ok(Picture::Folded),
        _ => Err(CliError::Usage(format!(
            "{} must end in .svg (a flame graph) or .folded (its lines)",
            target.display()
        ))),
    }
}
