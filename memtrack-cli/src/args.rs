//! The groups of arguments that several verbs share.

use crate::sizes::parse_bytes;
use clap::Args;
use clap::builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use memtrack_core::analysis::framework_operators::Patterns;
use memtrack_core::analysis::layout::DEFAULT_FRAMES;
use memtrack_core::analysis::top::By;
use memtrack_core::event::DeviceKind;
use memtrack_core::snapshot::recording::{ProcessChoice, ReadReport};
use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;

/// Where to find a recording's binaries.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SymbolsArgs {
    /// Also search this folder for binaries, by build id, or use this binary
    #[arg(long = "symbols", value_name = "DIR")]
    pub(crate) places: Vec<PathBuf>,
}

/// The limits of an input, and what is read of it.
#[derive(Clone, Debug, Args)]
pub(crate) struct InputArgs {
    #[command(flatten)]
    pub(crate) size: InputSizeArgs,
    /// In the recording of a run, the process to report on, by id, name or command line [default: the program]; `memtrack processes`
    /// lists them
    #[arg(long, value_name = "PID|NAME")]
    pub(crate) process: Option<String>,
    /// In the recording of a run, report on all processes together, on one clock
    #[arg(long, conflicts_with = "process")]
    pub(crate) all: bool,
    /// The process that the command itself has chosen.
    #[arg(skip)]
    pub(crate) chosen: Option<ProcessChoice>,
}

impl InputArgs {
    /// Returns which processes of a run to read.
    pub(crate) fn process_choice(&self) -> ProcessChoice {
        match (&self.chosen, &self.process) {
            (Some(chosen), _) => chosen.clone(),
            _ if self.all => ProcessChoice::All,
            (_, Some(name)) => ProcessChoice::Named(name.clone()),
            _ => ProcessChoice::Program,
        }
    }

    /// Returns the arguments for reading another run to compare with. They select the process with the same command line. If
    /// the user chose the process by name, that name applies to both runs.
    pub(crate) fn matching(&self, report: Option<&ReadReport>) -> Self {
        let is_by_name = self.process.as_ref().is_some_and(|process| process.parse::<u32>().is_err());
        let report = report.filter(|_| !is_by_name && !self.all);
        let chosen = report.and_then(ReadReport::chosen_process);
        Self { chosen: chosen.map(|row| ProcessChoice::Like(row.short_command_line())), ..self.clone() }
    }
}

/// The maximum size of an input.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct InputSizeArgs {
    /// Refuse inputs that are larger than this once unpacked
    #[arg(long, value_name = "SIZE", default_value = "64GiB", value_parser = parse_bytes)]
    pub(crate) max_input: u64,
}

/// The recording or snapshot that a verb reads.
#[derive(Clone, Debug, Args)]
pub(crate) struct FileArgs {
    /// The recording or PyTorch snapshot; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
}

/// The device that a report covers.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Only this device: its number, host (the heap), mapped (memory that the program mapped itself) or
    /// pinned (pinned host memory)
    #[arg(long, value_name = "DEVICE", value_parser = parse_device, allow_hyphen_values = true)]
    pub(crate) device: Option<DeviceSelector>,
}

/// The requested device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceSelector {
    /// The device with this number in reports.
    Ordinal(u16),
    /// The only device of this kind.
    Kind(DeviceKind),
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordinal(ordinal) => write!(f, "device {ordinal}"),
            Self::Kind(kind) => f.write_str(kind.name().unwrap_or("device")),
        }
    }
}

/// Returns the name of the only device of a kind on the command line; `None` for devices that are numbered.
pub(crate) fn selector_name(kind: DeviceKind) -> Option<&'static str> {
    match kind {
        DeviceKind::Device => None,
        DeviceKind::Host => Some("host"),
        DeviceKind::Mapped => Some("mapped"),
        DeviceKind::Pinned => Some("pinned"),
    }
}

/// Parses a device, ignoring case. Also accepts the form that reports print.
pub(crate) fn parse_device(text: &str) -> Result<DeviceSelector, String> {
    let lower = text.trim().to_ascii_lowercase();
    let is_named = |kind: &DeviceKind| {
        let names = [selector_name(*kind), kind.name()];
        names.into_iter().flatten().any(|name| name == lower)
    };
    if let Some(kind) = DeviceKind::ALL.into_iter().find(is_named) {
        return Ok(DeviceSelector::Kind(kind));
    }
    let number = lower.strip_prefix("device ").unwrap_or(&lower).parse();
    number.map(DeviceSelector::Ordinal).map_err(|_| "write a device's number, host, mapped or pinned".into())
}

/// Returns a parser for the names of `values`, each of which has a name, its help and its meaning.
pub(crate) fn named<T: Clone + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let names = values.each_ref().map(|(name, about, _)| PossibleValue::new(*name).help(*about));
    PossibleValuesParser::new(names).map(move |name| {
        let found = values.iter().find(|(known, _, _)| *known == name);
        found.expect("the parser accepts only these names").2.clone()
    })
}

/// Returns a parser for the names of the groupings.
pub(crate) fn by_parser() -> impl TypedValueParser<Value = By> {
    named(By::ALL.map(|by| (by.name(), by.about(), by)))
}

/// A moment on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The moment with the most live bytes.
    Peak,
    /// After the last event.
    End,
    /// The last time that memory ran out.
    Oom,
    /// After the event with this number.
    Event(usize),
}

pub(crate) fn parse_at(text: &str) -> Result<At, String> {
    match text {
        "peak" => Ok(At::Peak),
        "end" => Ok(At::End),
        "oom" => Ok(At::Oom),
        number => number
            .parse()
            .map(At::Event)
            .map_err(|_| "expected peak, end, oom or the number of an event".into()),
    }
}

/// The number of rows that a report shows.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RowsArgs {
    /// How many rows to show; 0 shows all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = parse_count, allow_hyphen_values = true)]
    rows: usize,
}

impl RowsArgs {
    /// Returns the maximum number of rows to show.
    pub(crate) fn limit(self) -> usize {
        if self.rows == 0 { usize::MAX } else { self.rows }
    }
}

/// Parses a count. The error message describes the expected value.
pub(crate) fn parse_count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a whole number, 0 or more".into())
}

/// The format of the output on standard output.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FormatArgs {
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whether a verb that writes a file prints what it wrote as JSON.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WrittenArgs {
    /// Print what was written as JSON, on standard error if the data goes to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much of names and stacks the text output shows.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TextArgs {
    /// How many frames of a stack to show, leaving out internal ones; 0 shows all
    #[arg(long, value_name = "N", default_value_t = DEFAULT_FRAMES, value_parser = parse_count, allow_hyphen_values = true)]
    pub(crate) frames: usize,
    /// Do not shorten names; by default, lines are as wide as COLUMNS, else the terminal, else 120 characters
    #[arg(long)]
    pub(crate) wide: bool,
}

/// How to name operators.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PatternsArgs {
    /// Name operators after functions that match, such as 'my_crate::ops::*'
    #[arg(long = "pattern", value_name = "GLOB")]
    patterns: Vec<String>,
}

impl PatternsArgs {
    /// Returns the built-in patterns with those of the command line.
    pub(crate) fn patterns(&self) -> Patterns {
        self.patterns.iter().fold(Patterns::default(), |patterns, glob| patterns.with(glob))
    }
}

pub(crate) fn parse_jobs(text: &str) -> Result<NonZero<usize>, String> {
    text.parse().map_err(|_| "expected a whole number, 1 or more".into())
}

/// Which code is the user's own.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RulesArgs {
    /// Code that is yours: a folder, file, function or binary, such as 'site-packages/mylib', 'my_crate::*' or libmine.so
    #[arg(long, value_name = "GLOB", help_heading = "Code ownership")]
    pub(crate) mine: Vec<String>,
    /// Code that is not yours, such as 'third_party', '*/generated/*' or libvendor.so; the longest matching glob decides
    #[arg(long, value_name = "GLOB", help_heading = "Code ownership")]
    pub(crate) not_mine: Vec<String>,
    /// Read ownership globs from this file [default: memtrack.toml in the current folder, if there is one]
    #[arg(long, value_name = "FILE", help_heading = "Code ownership")]
    pub(crate) rules: Option<PathBuf>,
}

impl RulesArgs {
    /// Returns the name of an option that is given, if there is one.
    pub(crate) fn given(&self) -> Option<&'static str> {
        match self {
            Self { mine, .. } if !mine.is_empty() => Some("--mine"),
            Self { not_mine, .. } if !not_mine.is_empty() => Some("--not-mine"),
            Self { rules, .. } => rules.as_ref().map(|_| "--rules"),
        }
    }
}

/// The code ownership rules for a report that can explain which rule decided.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OwnershipArgs {
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// For the first rows, show the rule that classified each frame
    #[arg(long, help_heading = "Code ownership")]
    pub(crate) explain: bool,
}

/// Whether and how to replace names in the output.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ScrubArgs {
    /// Replace paths, names, process ids and the time of day with pseudonyms, except those of public libraries
    #[arg(long, help_heading = "Sharing")]
    pub(crate) scrub: bool,
    /// With --scrub: also keep the names of this code, such as 'my_crate::*', or of these scopes; repeatable
    #[arg(long, value_name = "GLOB", requires = "scrub", help_heading = "Sharing")]
    pub(crate) scrub_keep: Vec<String>,
    /// With --scrub: a secret without which no guessed name can be confirmed; the same secret gives the same pseudonyms
    #[arg(
        long,
        value_name = "TEXT",
        requires = "scrub",
        help_heading = "Sharing",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) scrub_key: Option<String>,
}

/// Whether to draw a flame graph or print its data.
#[derive(Clone, Debug, Args)]
pub(crate) struct FlameArgs {
    /// The picture to write
    #[arg(short, long, value_name = "FILE.svg", default_value = "output.svg")]
    pub(crate) output: PathBuf,
    /// Replace the picture if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Print PyTorch's folded lines instead of drawing
    #[arg(long, conflicts_with = "json")]
    pub(crate) folded: bool,
    /// Print JSON instead of drawing
    #[arg(long)]
    pub(crate) json: bool,
}
