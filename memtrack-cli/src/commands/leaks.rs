//! `memtrack leaks`: memory that grows and is never freed.

use super::cycles::read_graph;
use super::devices::select_devices;
use super::top::mention_missing;
use crate::Streams;
use crate::answers::{LEAKS, LeaksAnswer};
use crate::args::{InputArgs, LeaksArgs};
use crate::error::{CliError, Exit};
use crate::load::{check_places, load_with};
use crate::neighbours::{Kind, read_head};
use crate::ownership::read_rules;
use crate::report::{layout, mention_reordered};
use crate::unmatched::Unmatched;
use memtrack_core::analysis::framework_operators::Patterns;
use memtrack_core::analysis::leaks::{
    LeakOptions, LeakReport, ReducedSnapshot, Suppressions, leaks, leaks_over,
};
use memtrack_core::analysis::units::printable;
use memtrack_core::cycles::{Findings, Graph, json, text};
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::recording::ReadReport;
use memtrack_core::snapshot::{Loaded, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The maximum size of a pattern file in bytes. Real pattern files are short.
const MAX_PATTERN_FILE_BYTES: u64 = 1 << 20;

/// Reads the files, prints the leaks, and returns exit code 1 if there are any.
pub(crate) fn run(args: &LeaksArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
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
        // Ignore a failure to print this hint, because the report is complete without it.
        let _ =
            writeln!(streams.stderr, "memtrack: warning: no stack matches the pattern {}", printable(glob));
    }
    let blind = report.as_ref().and_then(LeakReport::blind);
    // If growth cannot be determined, the report is still useful if it lists what each step left behind (`generations`).
    let is_uninformative = |report: &LeakReport| {
        blind.is_some() && report.devices.iter().all(|device| device.generations.is_none())
    };
    let informative = report.as_ref().filter(|report| !is_uninformative(report));
    let cycles_leak = graphs.iter().any(|(_, findings)| findings.leaks() > 0);
    let leaking = cycles_leak || informative.is_some_and(LeakReport::is_leaking);
    let late = args.strict && informative.is_some_and(LeakReport::is_freed_only_at_the_end);
    if args.format.json {
        if informative.is_some() || !graphs.is_empty() {
            let answer = LeaksAnswer {
                leaking,
                memory: informative.map(LeakReport::answer_json),
                cycles: graphs
                    .iter()
                    .map(|(graph, findings)| {
                        serde_json::to_value(json::findings(graph, findings)).unwrap_or_default()
                    })
                    .collect(),
            };
            LEAKS.print(&answer, streams)?;
        }
    } else {
        if let Some(report) = informative {
            let text = report.to_text(layout(args.text));
            // Leave out the lines that state why leaks cannot be determined: the error below states it on standard error.
            let answers = if blind.is_some() && !leaking { report.answer().len() } else { 0 };
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
    let patterns = args.patterns.iter().fold(Patterns::default(), |patterns, glob| patterns.with(glob));
    let mut suppressions = Suppressions::new();
    for path in &args.suppress {
        suppressions = suppressions.with_lines(&read_patterns(path)?);
    }
    let options = LeakOptions::new()
        .rules(read_rules(&args.rules)?)
        .patterns(patterns)
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

/// A file that was read.
struct ReadFile {
    snapshot: Snapshot,
    devices: Vec<DeviceId>,
    symbols: Symbolizer,
    report: Option<ReadReport>,
}

/// Reads a file and sorts its events by time.
fn read(
    path: &Path,
    args: &LeaksArgs,
    input: &InputArgs,
    streams: &mut Streams<'_>,
) -> Result<ReadFile, CliError> {
    let Loaded { mut snapshot, report, .. } = load_with(path, input, &args.symbols, streams)?;
    mention_reordered(snapshot.order_by_time(), streams);
    let devices = select_devices(&snapshot, args.device.device)?;
    let symbols = Symbolizer::of(&snapshot);
    Ok(ReadFile { snapshot, devices, symbols, report })
}

fn find_leaks_in_file(
    path: &Path,
    args: &LeaksArgs,
    options: &LeakOptions,
    streams: &mut Streams<'_>,
) -> Result<LeakReport, CliError> {
    let ReadFile { snapshot, devices, mut symbols, .. } = read(path, args, &args.input, streams)?;
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
        let ReadFile { snapshot, devices, mut symbols, report } = read(path, args, &input, streams)?;
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
