//! `memtrack cycles`: the references that keep device memory alive.

use super::prelude::*;
use crate::page::page_name;
use flate2::read::MultiGzDecoder;
use memtrack_core::analysis::units::human_bytes;
use memtrack_core::cycles::json::CyclesAnswer;
use memtrack_core::cycles::{Findings, Graph, begins_like_graph, dot, json, page, picture, read, text};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};

/// Show which Rust or Python references keep memory alive: the cycles, what each holds, and which reference to make weak
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack cycles cycles-1.json                      each cycle, what it keeps, and which reference to make weak
  memtrack cycles cycles-1.json -o cycles.html       look at it in the browser
  memtrack cycles cycles-1.json -o cycles.svg        the graph as a picture
  memtrack cycles cycles-1.json -o cycles.dot        … for Graphviz, as PyTorch writes it for graphs of Python programs
  memtrack cycles cycles-1.json --json               the findings as JSON; -o cycles.json has the graph too

A program in Rust writes such a graph with `Report::save_graph` of memtrack_core::cycles; for a program in Python, `memtrack export-script --cycles`
prints the script that does. The suffix of OUT selects the form: .html, .svg, .dot or .json.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct CyclesArgs {
    /// The reference graph; `-` reads standard input
    #[arg(value_name = "GRAPH.json")]
    pub(crate) path: PathBuf,
    /// Write the graph to this file instead of printing the findings
    #[arg(short, long, value_name = "OUT", conflicts_with_all = ["json", "nodes"])]
    pub(crate) output: Option<PathBuf>,
    /// Print the nodes that lead to device memory, as PyTorch's create_graph returns them
    #[arg(long, conflicts_with = "json")]
    pub(crate) nodes: bool,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Refuse inputs that are larger than this
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = parse_bytes)]
    pub(crate) max_input: u64,
}

pub(super) const ANSWER: Answer<CyclesAnswer> = Answer::new("cycles", 1);

/// The unpacked size of a compressed graph may be at most this many times its stored size, plus [`UNPACK_ALLOWANCE`].
const MAX_UNPACK_RATIO: u64 = 64;
/// The number of bytes that any compressed graph may unpack to, however small its file is.
const UNPACK_ALLOWANCE: u64 = 64 << 20;
/// The number of bytes to unpack between two checks of the limit on a graph's unpacked size.
const CHECK_INTERVAL_BYTES: u64 = 1 << 20;

/// A reader that counts the bytes read through it.
struct CountingReader<'a, R> {
    inner: R,
    read: &'a Cell<u64>,
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

/// An output format.
#[derive(Clone, Copy, Debug)]
enum Form {
    Page,
    Svg,
    Dot,
    Json,
}

/// Returns the form selected by the suffix of the output's name.
fn output_form(output: &Path) -> Result<Form, CliError> {
    match output.extension().map(|suffix| suffix.to_string_lossy().to_ascii_lowercase()).as_deref() {
        Some("html" | "htm") => Ok(Form::Page),
        Some("svg") => Ok(Form::Svg),
        Some("dot" | "gv") => Ok(Form::Dot),
        Some("json") => Ok(Form::Json),
        _ => {
            let what = "end the name in .html, .svg, .dot or .json";
            Err(CliError::Usage(format!("{}: {what}", output.display())))
        }
    }
}

/// Reads the graph, then prints its findings or writes them to the output.
pub(super) fn run(args: &CyclesArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let form = args.output.as_deref().map(output_form).transpose()?;
    check_targets(args.output.as_deref(), args.force)?;
    let whole = read_graph(&args.path, args.max_input, streams)?;
    let graph = whole.device_memory_subgraph();
    if args.nodes {
        json::write_nodes(&graph, streams.stdout)?;
        return Ok(Exit::Success);
    }
    let findings = Findings::of_subgraph(&graph, &whole);
    let Some((form, output)) = form.zip(args.output.as_ref()) else {
        let rows = args.rows.limit();
        if args.format.json {
            ANSWER.print(&json::findings(&graph, &findings), streams)?;
        } else {
            streams.stdout.write_all(text::text(&graph, &findings, rows).as_bytes())?;
        }
        return Ok(Exit::Success);
    };
    let mut content = Vec::new();
    match form {
        Form::Page => content.extend(page::html(&graph, &findings, &page_name(&args.path)).into_bytes()),
        Form::Svg => content.extend(picture::svg::svg(&graph, &findings).into_bytes()),
        Form::Dot => dot::write(&graph, &findings, &mut content)?,
        Form::Json => json::write(&graph, &findings, &mut content)?,
    }
    write_files(&[(output.clone(), content)])?;
    mention_written(output, streams);
    Ok(Exit::Success)
}

/// Reads a reference graph, which may be compressed with gzip.
pub(super) fn read_graph(path: &Path, max_input: u64, streams: &mut Streams<'_>) -> Result<Graph, CliError> {
    let failed = |error: &dyn std::fmt::Display| CliError::input(path, error);
    let mut file;
    let input: &mut dyn Read = if path == Path::new("-") {
        &mut *streams.stdin
    } else {
        file = File::open(path).map_err(|error| failed(&error))?;
        &mut file
    };
    let most = max_input.saturating_add(1);
    let mut bytes = Vec::new();
    // Read only the beginning at first, because a file of another kind may be endless.
    input.take(HEAD_BYTES).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.starts_with(&GZIP) {
        let head = std::mem::take(&mut bytes);
        let stored = Cell::new(0);
        let mut unpacked =
            MultiGzDecoder::new(CountingReader { inner: head.chain(input), read: &stored }).take(most);
        loop {
            let read = unpacked
                .by_ref()
                .take(CHECK_INTERVAL_BYTES)
                .read_to_end(&mut bytes)
                .map_err(|error| failed(&error))?;
            if read == 0 {
                break;
            }
            if bytes.len() as u64 > UNPACK_ALLOWANCE + MAX_UNPACK_RATIO * stored.get() {
                return Err(failed(
                    &"it unpacks to too much for its size: it repeats the same data endlessly",
                ));
            }
        }
    } else if begins_like_graph(&bytes) {
        input
            .take(most.saturating_sub(HEAD_BYTES))
            .read_to_end(&mut bytes)
            .map_err(|error| failed(&error))?;
    }
    if bytes.len() as u64 > max_input {
        let most = human_bytes(max_input);
        return Err(failed(&format_args!("it is larger than {most}: --max-input allows more")));
    }
    read(&bytes).map_err(|error| unusable_file_error(path, &bytes, &[Kind::Graph], error))
}

/// The number of bytes of a file that are inspected to determine its kind.
const HEAD_BYTES: u64 = 4096;
/// The first bytes of every gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
