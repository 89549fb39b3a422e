//! The command line and its verbs, with one file for each. A verb's file has its arguments, whose documentation is its help, the
//! JSON that it prints, and `run`: it loads the input, makes one call into memtrack-core, and writes the result.
//!
//! To add a verb, add its file and, here, `mod` and a row of the table.

mod advise;
mod categories;
mod check;
mod compare;
mod completions;
mod convert;
mod cycles;
mod diff;
#[cfg(feature = "parquet")]
mod export;
mod export_script;
#[cfg(feature = "gpus")]
mod gpus;
mod leaks;
mod man;
mod memory;
mod modules;
mod peak;
mod prelude;
mod processes;
mod profile_plot;
mod ranks;
mod ranks_pages;
mod replay;
mod rss;
#[cfg(unix)]
pub(crate) mod run;
mod schema;
mod segment_plot;
mod segments;
mod simulate;
mod sizes;
mod stats;
mod summary;
mod tasks;
mod timeline;
mod top;
mod trace;
mod trace_plot;
mod tracker;
mod view;

use crate::Streams;
use crate::answers::AnswerSchema;
use crate::error::{CliError, Exit};
use clap::{Parser, Subcommand};
use std::ffi::OsString;

// Each row has a verb's name, its module and its arguments, and `ANSWER` if it prints JSON. `--help` lists the verbs in this order.
verbs! {
    Advise(advise::AdviseArgs), ANSWER;
    Convert(convert::ConvertArgs), ANSWER;
    Categories(categories::CategoriesArgs), ANSWER;
    Check(check::CheckArgs), ANSWER;
    Compare(compare::CompareArgs), ANSWER;
    Completions(completions::CompletionsArgs);
    Cycles(cycles::CyclesArgs), ANSWER;
    Diff(diff::DiffArgs), ANSWER;
    #[cfg(feature = "parquet")]
    Export(export::ExportArgs), ANSWER;
    ExportScript(export_script::ExportScriptArgs), ANSWER;
    #[cfg(feature = "gpus")]
    Gpus(gpus::GpusArgs), ANSWER;
    Leaks(leaks::LeaksArgs), ANSWER;
    Man(man::ManArgs);
    Memory(memory::MemoryArgs), ANSWER;
    Modules(modules::ModulesArgs), ANSWER;
    Peak(peak::PeakArgs), ANSWER;
    Processes(processes::ProcessesArgs), ANSWER;
    ProfilePlot(profile_plot::ProfilePlotArgs), ANSWER;
    Ranks(ranks::RanksArgs), ANSWER;
    Replay(replay::ReplayArgs), ANSWER;
    Rss(rss::RssArgs), ANSWER;
    #[cfg(unix)]
    Run(run::RunArgs), ANSWER;
    Schema(schema::SchemaArgs);
    Segments(segments::SegmentsArgs), ANSWER;
    SegmentPlot(segment_plot::SegmentPlotArgs), ANSWER;
    Simulate(simulate::SimulateArgs), ANSWER;
    Sizes(sizes::SizesArgs), ANSWER;
    Stats(stats::StatsArgs), ANSWER;
    Summary(summary::SummaryArgs), ANSWER;
    Tasks(tasks::TasksArgs), ANSWER;
    Timeline(timeline::TimelineArgs), ANSWER;
    Top(top::TopArgs), ANSWER;
    Trace(trace::TraceArgs), ANSWER;
    TracePlot(trace_plot::TracePlotArgs), ANSWER;
    Tracker(tracker::TrackerArgs), ANSWER;
    View(view::ViewArgs), ANSWER;
}

/// Defines the verbs, how each runs, and the list of their answers.
macro_rules! verbs {
    ($($(#[$cfg:meta])* $verb:ident($module:ident::$args:ident) $(, $answer:ident)?;)+) => {
        /// A verb with its arguments.
        #[derive(Debug, Subcommand)]
        enum Verb {
            $($(#[$cfg])* $verb($module::$args),)+
        }

        impl Verb {
            fn run(&self, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
                match self {
                    $($(#[$cfg])* Self::$verb(args) => $module::run(args, streams),)+
                }
            }
        }

        /// The answers, in the order of the rows.
        const ANSWERS: &[&dyn AnswerSchema] = &[$($(#[$cfg])* $(&$module::$answer,)?)+];
    };
}
use verbs;

/// Where did my device memory go?
#[derive(Debug, Parser)]
#[command(
    name = "memtrack",
    version,
    about,
    after_help = "\
Examples:
  memtrack run -- python3 train.py                   record a program's CUDA memory
  memtrack run --host -- ./server                    record its heap too
  memtrack summary snapshot.pickle                   one page about a PyTorch snapshot, or about a recording
  memtrack peak snapshot.pickle                      everything that was live at the peak
  memtrack top train.memtrack                        who allocated, in a recording
  memtrack diff before.pickle after.pickle           which of two is worse, and why
  memtrack leaks server.memtrack                     what grows and is never freed
  memtrack view snapshot.pickle -o page.html         look at it in the browser
  memtrack tracker stats.pickle -o figures.html      PyTorch's MemoryTracker summary, and its figures

Exit codes: 0 success, 1 a limit of `check` is exceeded or something leaks, 2 wrong usage, 3 unreadable input or unwritable output."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    verb: Verb,
}

/// The command line if its verb is `run`.
#[cfg(unix)]
#[derive(Debug, Parser)]
#[command(name = "memtrack", version)]
struct RunCli {
    #[command(subcommand)]
    verb: OnlyRun,
}

/// The verb `run`, as in [`Verb`].
#[cfg(unix)]
#[derive(Debug, Subcommand)]
enum OnlyRun {
    Run(run::RunArgs),
}

impl Cli {
    /// Parses a command line, which starts with the program's name.
    ///
    /// `run` is parsed without the other verbs: defining all their arguments takes a third of a millisecond, which would delay the
    /// program.
    ///
    /// # Errors
    /// Fails when the command line is invalid, or asks for help or the version.
    pub(crate) fn parse_line(arguments: &[OsString]) -> Result<Self, clap::Error> {
        #[cfg(unix)]
        if arguments.get(1).is_some_and(|verb| verb == "run") {
            let OnlyRun::Run(run) = RunCli::try_parse_from(arguments)?.verb;
            return Ok(Self { verb: Verb::Run(run) });
        }
        Self::try_parse_from(arguments)
    }

    /// Runs the verb.
    pub(crate) fn run(&self, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
        self.verb.run(streams)
    }
}

/// Returns the answers, sorted by verb.
fn answers() -> Vec<&'static dyn AnswerSchema> {
    let mut answers = ANSWERS.to_vec();
    answers.sort_by_key(|answer| answer.verb());
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::collections::HashSet;

    #[test]
    fn pytorch_verb_names_are_accepted() {
        let command = Cli::command();
        for verb in ["stats", "trace", "segments", "memory", "compare"] {
            assert!(command.find_subcommand(verb).is_some(), "{verb}");
        }
        // PyTorch's multi-word names have underscores. memtrack's have hyphens, and accept underscores as aliases.
        for verb in command.get_subcommands().filter(|verb| verb.get_name().contains('-')) {
            let alias = verb.get_name().replace('-', "_");
            assert!(verb.get_all_aliases().any(|known| known == alias), "{alias}");
        }
        command.debug_assert();
    }

    #[test]
    fn each_answer_has_the_name_of_a_verb() {
        let command = Cli::command();
        let mut seen = HashSet::new();
        for answer in answers() {
            assert!(command.find_subcommand(answer.verb()).is_some(), "{}", answer.verb());
            assert!(seen.insert(answer.verb()), "{}", answer.verb());
        }
    }
}
