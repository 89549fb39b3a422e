//! `memtrack leaks`: memory that grows and is never freed.

use super::cycles::read_graph;
use super::prelude::*;
use memtrack_core::analysis::leaks::{
    LeakOptions, LeakReport, MIN_PERIODS, PERIODS, ReducedSnapshot, Suppressions, leaks, leaks_over,
};
use memtrack_core::analysis::top::By;
use memtrack_core::analysis::units::printable;
use memtrack_core::cycles::{Findings, Graph, json, text};
use serde_json::Value;
use std::fs::File;
use std::io::Read;

/// Find what leaks: which lines grow from period to period and are never freed, or what each step left behind
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack leaks server.memtrack                     which lines of your code leak, and how much in each period
  memtrack leaks train.memtrack --per step           what each step left behind; marked by memtrack_core::mark(\"step\")
  memtrack leaks 1.pickle 2.pickle 3.pickle          several snapshots of one process, in order
  memtrack leaks server.memtrack --by stack -n 5     whole stacks, the five that leak most
  memtrack leaks server.memtrack --suppress known.txt
                                                     … without what the patterns in known.txt match
  memtrack leaks run.memtrack cycles.json            with the findings of memtrack cycles
  memtrack leaks server.memtrack --json              the same as JSON

A group leaks when it grew in at least four of five periods, to the end, and little of the memory that stayed was freed later.
Caches that have filled up, buffers that are emptied now and then and vectors that grow are merely alive. The documentation
has the full rule.
Patterns: one glob a line, # begins a comment; each is compared with the functions and files of all frames of a stack.
Exit codes: 0 nothing leaks, 1 something leaks (with --strict: or was freed only at the end), 2 wrong usage, or snapshots that
are not of one process and in order, 3 unreadable input, or a recording that is too short or incomplete to judge.")]
pub(crate) struct LeaksArgs {
    /// A recording or PyTorch snapshot with its trace, or at least three from one process, in order; `-` reads standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// How to group memory [default: by line of your own code, or by stack where no line is yours]
    #[arg(long, value_parser = by_parser())]
    pub(crate) by: Option<By>,
    /// Use these intervals as periods, and show what each left behind: the name of a mark, scope or profiler range, or forward,
    /// backward, optimizer, step
    #[arg(long, value_name = "NAME")]
    pub(crate) per: Option<String>,
    /// How many periods to divide the recording into
    #[arg(long, value_name = "N", default_value_t = PERIODS, value_parser = parse_periods)]
    pub(crate) periods: usize,
    /// Also exit with 1 if something grew in every period and was freed only at the end
    #[arg(long)]
    pub(crate) strict: bool,
    /// Leave out blocks whose stacks match a pattern in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) suppress: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) patterns: PatternsArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
}

/// The maximum number of periods. With more, each would be too short.
const MAX_PERIODS: usize = 1000;

fn parse_periods(text: &str) -> Result<usize, String> {
    let periods = text.parse().ok().filter(|periods| (MIN_PERIODS..=MAX_PERIODS).contains(periods));
    periods.ok_or_else(|| format!("expected a whole number from {MIN_PERIODS} to {MAX_PERIODS}"))
}

pub(super) const ANSWER: Answer<LeaksAnswer> = Answer::new("leaks", 3);

/// The findings of `memtrack leaks`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LeaksAnswer {
    /// Whether something leaks: memory that grows, or a cycle that nothing else holds.
    pub(crate) leaking: bool,
    /// The leaks in the recordings or snapshots; null if only reference graphs were given.
    pub(crate) memory: Option<LeakReport>,
    /// The findings in the reference graphs, each as `memtrack cycles --json` prints it.
    pub(crate) cycles: Vec<Value>,
}

/// The maximum size of a pattern file in bytes. Real pattern files are short.
const MAX_PATTERN_FILE_BYTES: u64 = 1 << 20;

/// Reads the files, prints the leaks, and returns exit code 1 if there are any.
pub(super) fn run(args: &LeaksArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    if args.files.iter().filter(|file| *file == Path::new("-")).count() > 1 {
        return Err(CliError::Usage("only one of the files can be standard input".into()));
    }
    check_places(&args.symbols)?;
    let options = leak_options(args)?;
    let (graphs, files): (Vec<&PathBuf>, Vec<&PathBuf>) = args.files.iter().partition(|file| is_graph(file));
    let report = match &files[..] {
        [] => None,
        [file] => Some(find_leaks_in_file(file, args, &options, streams)?),
        files => Some(find_leaks_in_files(files, args, &options, streams)?),
    };
    let graphs: Vec<(Graph, Findings)> = graphs
        .into_iter()
        .map(|path| {
            let whole = read_graph(path, args.input.size.max_input, streams)?;
            let graph = whole.device_memory_subgraph();
            let findings = Findings::of_subgraph(&graph, &whole);
            Ok((graph, findings))
        })
        .collect::<Result<_, CliError>>()?;
    for glob in report.iter().flat_map(|report| &report.unused_suppressions) {
        streams.note(format_args!("memtrack: warning: no stack matches the pattern {}", printable(glob)));
    }
    let blind = report.as_ref().and_then(|report| report.blind.clone());
    // If growth cannot be determined, the report is still useful if it lists what each step left behind (`generations`).
    let is_uninformative = |report: &LeakReport| {
        blind.is_some() && report.devices.iter().all(|device| device.generations.is_none())
    };
    let informative = report.as_ref().filter(|report| !is_uninformative(report));
    let cycles_leak = graphs.iter().any(|(_, findings)| findings.leaks() > 0);
    let leaking = cycles_leak || informative.is_some_and(|report| report.leaking);
    let late = args.strict && informative.is_some_and(LeakReport::is_freed_only_at_the_end);
    if args.format.json {
        if informative.is_some() || !graphs.is_empty() {
            let answer = LeaksAnswer {
                leaking,
                memory: informative.cloned(),
                cycles: graphs
                    .iter()
                    .map(|(graph, findings)| {
                        serde_json::to_value(json::findings(graph, findings)).unwrap_or_default()
                    })
                    .collect(),
            };
            ANSWER.print(&answer, streams)?;
        }
    } else {
        if let Some(report) = informative {
            let text = report.to_text(layout(args.text));
            // Leave out the lines that state why leaks cannot be determined: the error below states it on standard error.
            let answers = if blind.is_some() && !leaking { report.answer.len() } else { 0 };
            let text: String = text.split_inclusive('\n').skip(answers).collect();
            write!(streams.stdout, "{}", if answers > 0 { text.trim_start() } else { &text })?;
        }
        for (place, (graph, findings)) in graphs.iter().enumerate() {
            let between = if place > 0 || informative.is_some() { "\n" } else { "" };
            let text = text::text(graph, findings, args.rows.limit());
            write!(streams.stdout, "{between}{text}")?;
        }
    }
    match blind {
        // The exit code must not suggest that nothing leaks.
        Some(why) if !leaking => {
            let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            Err(CliError::Io(format!("cannot determine what leaks in {}: {why}", files.join(", "))))
        }
        _ => Ok(if leaking || late { Exit::Finding } else { Exit::Success }),
    }
}

/// Returns whether a file is a reference graph for the cycle finder.
fn is_graph(path: &Path) -> bool {
    path != Path::new("-") && Kind::detect(path, &read_head(path)) == Some(Kind::Graph)
}

fn leak_options(args: &LeaksArgs) -> Result<LeakOptions, CliError> {
    let mut suppressions = Suppressions::new();
    for path in &args.suppress {
        suppressions = suppressions.with_lines(&read_patterns(path)?);
    }
    let options = LeakOptions::new()
        .rules(read_rules(&args.rules)?)
        .patterns(args.patterns.patterns())
        .periods(args.periods)
        .suppressions(suppressions)
        .limit(args.rows.limit());
    let options = match args.by {
        Some(by) => options.by(by),
        None => options,
    };
    Ok(match &args.per {
        Some(name) => options.per(name),
        None => options,
    })
}

fn read_patterns(path: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(MAX_PATTERN_FILE_BYTES + 1).read_to_string(&mut text));
    read.map_err(|error| CliError::input(path, error))?;
    if text.len() as u64 > MAX_PATTERN_FILE_BYTES {
        return Err(CliError::input(path, "a pattern file has at most a megabyte"));
    }
    Ok(text)
}

fn find_leaks_in_file(
    path: &Path,
    args: &LeaksArgs,
    options: &LeakOptions,
    streams: &mut Streams<'_>,
) -> Result<LeakReport, CliError> {
    let (context, _) = Context::read(path, &args.input, &args.symbols, args.device.device, streams)?;
    let Context { snapshot, devices, mut symbols, .. } = context;
    let mut unmatched = Unmatched::new(&args.rules);
    unmatched.scan(&snapshot, &mut symbols);
    unmatched.mention(streams);
    let report = leaks(&snapshot, &mut symbols, &devices, options);
    let report = report.map_err(|error| CliError::Usage(format!("--per: {}: {error}", path.display())))?;
    mention_missing(&symbols, streams);
    Ok(report)
}

fn find_leaks_in_files(
    files: &[&PathBuf],
    args: &LeaksArgs,
    options: &LeakOptions,
    streams: &mut Streams<'_>,
) -> Result<LeakReport, CliError> {
    if args.per.is_some() {
        return Err(CliError::Usage("--per is about one recording, and several files were given".into()));
    }
    let mut snaps = Vec::with_capacity(files.len());
    let mut unmatched = Unmatched::new(&args.rules);
    let mut input = args.input.clone();
    for path in files {
        let (context, report) = Context::read(path, &input, &args.symbols, args.device.device, streams)?;
        let Context { snapshot, devices, mut symbols, .. } = context;
        if snaps.is_empty() {
            input = input.matching(report.as_ref());
        }
        unmatched.scan(&snapshot, &mut symbols);
        snaps.push(ReducedSnapshot::of(&snapshot, &mut symbols, &devices, path.to_string_lossy(), options));
        mention_missing(&symbols, streams);
    }
    unmatched.mention(streams);
    leaks_over(snaps, options).map_err(|error| CliError::Usage(error.to_string()))
}
