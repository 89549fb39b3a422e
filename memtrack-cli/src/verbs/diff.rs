//! `memtrack diff`: what changed between two files.

use super::prelude::*;
use crate::flame::folded_text;
use memtrack_core::analysis::diff::{Diff, DiffAt, DiffBy, Side, flame_graph};
use memtrack_core::analysis::ownership::Rules;
use memtrack_core::snapshot::recording::ReadReport;

/// Show what changed between two snapshots or recordings: which lines, modules or operators grew, shrank, are new or gone
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack diff before.pickle after.pickle               which is worse at its peak, and which lines made it so
  memtrack diff old.memtrack new.memtrack --by module    … which modules; layers of one kind are one group
  memtrack diff start.pickle later.pickle --at end       what came in between: leaks, caches
  memtrack diff a.memtrack b.memtrack --at total         what was allocated in all
  memtrack diff a.pickle b.pickle -o diff.svg            a flame graph: red grew, blue shrank
  memtrack diff a.pickle b.pickle -o diff.folded         its lines, for other tools
  memtrack diff a.pickle b.pickle --json                 the same as JSON

Each file is a recording or a PyTorch snapshot. Groups are matched by the names and files of functions: addresses do not
matter, lines may have moved, and layers.0, layers.1, … are one group, layers.*, of which there may be more than before.
Bytes are requested bytes. Where blocks were sampled, differences within the error of the numbers are ignored.
`memtrack compare` shows which segments differ, by address, as PyTorch does.
Exit codes: 0 success, 2 wrong usage or no device in common, 3 unreadable or empty input, or unwritable output.")]
pub(crate) struct DiffArgs {
    /// The earlier recording or PyTorch snapshot; `-` reads standard input
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// The later recording or PyTorch snapshot
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// How to group memory [default: line if BEFORE has stacks, else operator]
    #[arg(long, value_parser = named(DiffBy::ALL.map(|by| (by.name(), by.about(), by))))]
    pub(crate) by: Option<DiffBy>,
    /// Which blocks to compare
    #[arg(
        long,
        value_name = "MOMENT",
        value_parser = named(DiffAt::ALL.map(|at| (at.name(), at.about(), at))),
        default_value = DiffAt::Peak.name()
    )]
    pub(crate) at: DiffAt,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Also write the differences by stack: a flame graph (.svg), or its folded lines (.folded)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

pub(super) const ANSWER: Answer<FilesDiffAnswer> = Answer::new("diff", 2);

/// The changes between two files.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FilesDiffAnswer {
    /// The earlier file.
    pub(crate) before: DiffFileAnswer,
    /// The later file.
    pub(crate) after: DiffFileAnswer,
    /// The changes from the earlier file to the later one.
    #[serde(flatten)]
    pub(crate) diff: Diff,
}

/// One of the two compared files.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DiffFileAnswer {
    /// The file's path; `-` for standard input.
    pub(crate) path: String,
    /// Whether the file is a PyTorch snapshot.
    pub(crate) is_pytorch: bool,
    /// Whether the file is complete; false for a recording that was cut off.
    pub(crate) complete: bool,
}

/// The kind of file that `-o` writes.
#[derive(Clone, Copy)]
enum Picture {
    Svg,
    Folded,
}

/// The memory of a file, added up in groups such as lines or operators.
struct ReducedFile {
    /// The groups that the report compares.
    side: Side,
    /// The memory grouped by stack, for the picture; `None` if no picture is written.
    stacks: Option<Side>,
    /// For a recording, which part of it was read; `None` for other files.
    report: Option<ReadReport>,
}

/// Adds up each file's memory in groups, one file after the other, then compares the groups and prints the differences.
pub(super) fn run(args: &DiffArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    check_inputs(&args.before, &args.after)?;
    check_places(&args.symbols)?;
    let picture = args.output.as_deref().map(picture_kind).transpose()?;
    check_targets(args.output.as_deref(), args.force)?;
    let rules = read_rules(&args.rules)?;
    let mut unmatched = Unmatched::new(&args.rules);
    let mut pseudonyms = scrub::from_args(&args.scrub);
    // Each file is dropped from memory before the next one is read.
    let mut read = |path: &Path, input: &InputArgs, by, streams: &mut Streams<'_>| {
        let Loaded { snapshot, report, .. } = load_with(path, input, &args.symbols, streams)?;
        let snapshot = scrub::scrub_snapshot_with(snapshot, pseudonyms.as_mut());
        let mut context = Context::of(snapshot, args.device.device, None, streams)?;
        let options = ReduceOptions { by, at: args.at, rules: &rules, stacks: picture.is_some() };
        let (side, stacks) = options.reduce(path, &mut context, streams)?;
        unmatched.scan(&context.snapshot, &mut context.symbols);
        Ok::<_, CliError>(ReducedFile { side, stacks, report })
    };
    let before = read(&args.before, &args.input, args.by, streams)?;
    let input = args.input.matching(before.report.as_ref());
    let after = read(&args.after, &input, Some(before.side.by), streams)?;
    unmatched.mention(streams);
    scrub::mention_security(&args.scrub, pseudonyms.as_ref(), streams);
    let diff = Diff::of(&before.side, &after.side, args.rows.limit());
    check_common(&diff, [&args.before, &args.after], [&before.side, &after.side])?;
    if args.format.json {
        let mut file = |path: &Path, file: &ReducedFile| DiffFileAnswer {
            path: scrub::shown_path(path, pseudonyms.as_mut()),
            is_pytorch: file.side.is_pytorch,
            complete: file.report.as_ref().is_none_or(|report| report.complete),
        };
        let (before, after) = (file(&args.before, &before), file(&args.after, &after));
        ANSWER.print(&FilesDiffAnswer { before, after, diff: diff.clone() }, streams)?;
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
            Picture::Folded => content = folded_text(stacks.folded()),
        }
        write_files(&[(target.clone(), content)])?;
        mention_written(target, streams);
    }
    Ok(Exit::Success)
}

/// The options for reducing files.
pub(super) struct ReduceOptions<'a> {
    /// The grouping, or `None` for the file's default.
    pub(super) by: Option<DiffBy>,
    /// The blocks to count: those live at the peak or at the end, or all.
    pub(super) at: DiffAt,
    /// The rules that distinguish the user's code.
    pub(super) rules: &'a Rules,
    /// Whether to group by stack as well, for the picture.
    pub(super) stacks: bool,
}

impl ReduceOptions<'_> {
    /// Adds up a loaded file's memory in groups, of the requested devices.
    ///
    /// # Errors
    /// Fails if the file has neither memory nor events.
    pub(super) fn reduce(
        &self,
        path: &Path,
        context: &mut Context,
        streams: &mut Streams<'_>,
    ) -> Result<(Side, Option<Side>), CliError> {
        let Context { snapshot, devices, symbols, .. } = context;
        let by = self.by.unwrap_or_else(|| DiffBy::default_for(snapshot));
        let mut side = |by| Side::of(snapshot, symbols, devices, by, self.at, self.rules);
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
        mention_missing(symbols, streams);
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
