//! The arguments for `memtrack cycles`.

use super::{FormatArgs, RowsArgs};
use crate::sizes::parse_bytes;
use clap::Args;
use std::path::PathBuf;

/// Arguments for `memtrack cycles`.
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
