//! Suggestions for a refused command line.

use crate::args::Cli;
use crate::neighbours::{Kind, head_of};
use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::path::Path;

/// The verbs that take several files, and their use of them.
const OF_SEVERAL: [(&str, &str); 4] = [
    ("diff", "memtrack diff BEFORE AFTER shows what changed between two files"),
    ("leaks", "memtrack leaks FILE... takes several snapshots of one process, in order"),
    ("ranks", "memtrack ranks FILE... compares the ranks of a job"),
    ("compare", "memtrack compare BEFORE AFTER lists the segments that two snapshots do not share"),
];

/// Adds tips to clap's message: about a second file where a verb takes one, and about a file in place of a verb.
pub(crate) fn add(refusal: &mut clap::Error) {
    let given = |kind| match refusal.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let tips = match refusal.kind() {
        ErrorKind::UnknownArgument => given(ContextKind::InvalidArg).map(|argument| of_second(&argument)),
        ErrorKind::InvalidSubcommand => given(ContextKind::InvalidSubcommand).map(|word| of_file(&word)),
        _ => None,
    };
    let tips: Vec<StyledStr> = tips.unwrap_or_default().into_iter().map(StyledStr::from).collect();
    if !tips.is_empty() {
        // clap itself suggests a verb or an option of a similar name.
        for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg] {
            refusal.remove(kind);
        }
        refusal.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// Returns the verbs that take several files, if the extra argument is a file.
fn of_second(argument: &str) -> Vec<String> {
    if argument.starts_with('-') || !Path::new(argument).exists() {
        return Vec::new();
    }
    let command = Cli::command();
    let there = OF_SEVERAL.iter().filter(|(verb, _)| command.find_subcommand(verb).is_some());
    there.map(|(_, tip)| (*tip).to_owned()).collect()
}

/// Returns what can be done with a file that was given without a verb.
fn of_file(word: &str) -> Vec<String> {
    let path = Path::new(word);
    if !path.is_file() {
        return Vec::new();
    }
    let verb = match Kind::of(path, &head_of(path)) {
        Some(Kind::Statistics) => "tracker",
        Some(Kind::OperatorTrace) => "categories",
        Some(Kind::Graph) => "cycles",
        Some(Kind::Workload) => "simulate",
        Some(Kind::Python) => "run -- python3",
        Some(Kind::Program) => "run --",
        Some(
            Kind::ChromeTrace | Kind::Page | Kind::Archive | Kind::Database | Kind::Profile(_) | Kind::Text,
        ) => return Vec::new(),
        Some(Kind::Recording | Kind::Snapshot) | None => "summary",
    };
    vec![format!("give a command for the file, as in memtrack {verb} {word}")]
}
