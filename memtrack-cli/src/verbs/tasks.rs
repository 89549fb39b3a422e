//! `memtrack tasks`: what the tasks of a program hold.

use super::prelude::*;
use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::tasks::{TasksOptions, TasksReport, tasks};
use memtrack_core::event::DeviceKind;

/// Show what the tasks (futures) of a program hold, what ended tasks left behind, and tasks that never end
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack tasks server.memtrack                     what tasks hold at the end, by the line that makes them
  memtrack tasks server.memtrack --at peak -n 5      … at the peak, the 5 largest rows of each table
  memtrack tasks server.memtrack --json              the same as JSON

A program tracks its tasks with memtrack_core::tasks (docs/RUST.md). A block belongs to the task that allocated it. By running:
of tasks that ran at the moment. By ended: of tasks that had ended: they handed the memory on, or left it behind. The rows and
the memory outside tasks add up to what is live on the heap. Begun and running: tasks by the end of the recording. Where blocks
were sampled, numbers have their error (1.3 GiB ± 4 %) or are upper bounds (< 40.0 MiB); both hold with 95 % confidence.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct TasksArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    /// Count memory that is live at this moment: peak, end, oom (the last), or an event's number in the heap's trace [default:
    /// end]
    #[arg(long, value_name = "MOMENT", value_parser = parse_at, allow_hyphen_values = true)]
    pub(crate) at: Option<At>,
    /// Do not shorten names; by default, lines are as wide as COLUMNS, else the terminal, else 120 characters
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

pub(super) const ANSWER: Answer<TasksAnswer> = Answer::new("tasks", 1);

/// The memory of tasks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TasksAnswer {
    /// The report; null if the file has no tasks.
    pub(crate) tasks: Option<TasksReport>,
}

/// Loads the file and prints what its tasks hold.
pub(super) fn run(args: &TasksArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let snapshot = load_file(&args.file, streams)?.snapshot;
    let has_tasks = !snapshot.tasks.is_empty() || !snapshot.events.tasks.is_empty();
    let report = if has_tasks {
        let heap = Some(DeviceSelector::Kind(DeviceKind::Host));
        let Context { snapshot, moments, mut symbols, .. } = Context::of(snapshot, heap, args.at, streams)?;
        let at = moments.first().copied().unwrap_or(Moment::End);
        tasks(&snapshot, &mut symbols, TasksOptions::new().at(at).limit(args.rows.limit()))
    } else {
        None
    };
    if args.format.json {
        ANSWER.print(&TasksAnswer { tasks: report }, streams)?;
        return Ok(Exit::Success);
    }
    match report {
        Some(report) => write!(streams.stdout, "{}", report.to_text(width(args.wide)))?,
        None => writeln!(
            streams.stdout,
            "The file has no tasks: a program tracks them with memtrack_core::tasks (docs/RUST.md)."
        )?,
    }
    Ok(Exit::Success)
}
