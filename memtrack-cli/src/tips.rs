//! Suggestions for an invalid command line.

use crate::neighbours::{Kind, read_head};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::path::Path;

/// How the verbs that take several files use them.
const USES_OF_SEVERAL_FILES: [&str; 4] = [
    "memtrack diff BEFORE AFTER shows what changed between two files",
    "memtrack leaks FILE... takes several snapshots of one process, in order",
    "memtrack ranks FILE... compares the ranks of a job",
    "memtrack compare BEFORE AFTER lists the segments that two snapshots do not share",
];

/// Adds suggestions to clap's message if a second file was given to a verb that takes one, or a file in place of a
/// verb.
pub(crate) fn add(error: &mut clap::Error) {
    let given = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let tips = match error.kind() {
        ErrorKind::UnknownArgument => {
            given(ContextKind::InvalidArg).map(|argument| suggest_for_second_file(&argument))
        }
        ErrorKind::InvalidSubcommand => {
            given(ContextKind::InvalidSubcommand).map(|word| suggest_for_file_without_verb(&word))
        }
        _ => None,
    };
    let tips: Vec<StyledStr> = tips.unwrap_or_default().into_iter().map(StyledStr::from).collect();
    if !tips.is_empty() {
        // Replace clap's suggestions, which are verbs and options with similar names.
        for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg] {
            error.remove(kind);
        }
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// Suggests the verbs that take several files, if the extra argument is a file.
fn suggest_for_second_file(argument: &str) -> Vec<String> {
    if argument.starts_with('-') || !Path::new(argument).exists() {
        return Vec::new();
    }
    USES_OF_SEVERAL_FILES.map(str::to_owned).into()
}

/// Suggests a verb for a file that was given without one.
fn suggest_for_file_without_verb(word: &str) -> Vec<String> {
    let path = Path::new(word);
    if !path.is_file() {
        return Vec::new();
    }
    let verb = match Kind::detect(path, &read_head(path)) {
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
