//! Formats a query's error as one line that names the problem, its position in the query or file, and the remedy.

use super::tables::BadFile;
use crate::error::CliError;
use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use memtrack_core::analysis::units::human_bytes;
use memtrack_core::dataset::TABLES;
use std::path::Path;

/// The engine's text before the name of a column that it suggests.
const SUGGESTION_PREFIX: &str = "possible column ";

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The query.
    Query,
    /// Either the query or a file of the data set; the error does not identify it.
    Unknown,
}

impl Cause {
    pub(super) fn of(error: &DataFusionError) -> Self {
        match error.find_root() {
            DataFusionError::SQL(..)
            | DataFusionError::Plan(_)
            | DataFusionError::SchemaError(..)
            | DataFusionError::NotImplemented(_)
            | DataFusionError::Configuration(_)
            | DataFusionError::ResourcesExhausted(_) => Self::Query,
            DataFusionError::ArrowError(error, _) => match **error {
                ArrowError::DivideByZero | ArrowError::ArithmeticOverflow(_) | ArrowError::CastError(_) => {
                    Self::Query
                }
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }
}

/// Returns the command's error for an unreadable file of the data set.
pub(super) fn damaged_file_error(bad: &BadFile) -> CliError {
    CliError::input(
        &bad.path,
        format!("{}; export that rank again with --force, or remove its folder", bad.why),
    )
}

/// Converts a query's error to the command's error. `memory` is the engine's memory limit.
pub(super) fn query_error(error: &DataFusionError, folder: &Path, memory: u64) -> CliError {
    match error.find_root() {
        DataFusionError::External(inner) if inner.is::<BadFile>() => {
            inner.downcast_ref().map_or_else(|| CliError::Io(inner.to_string()), damaged_file)
        }
        DataFusionError::ResourcesExhausted(_) => CliError::Usage(format!(
            "the query needs more than the {} of --memory and cannot spill to disk: allow more, or query \
             less",
            human_bytes(memory)
        )),
        DataFusionError::ParquetError(_) | DataFusionError::ObjectStore(_) | DataFusionError::IoError(_) => {
            CliError::input(folder, format_one_line(error))
        }
        _ => CliError::Usage(format_one_line(error)),
    }
}

/// Returns the file that an error refers to, if [`RankTable`](super::tables::RankTable) found the file damaged.
pub(super) fn find_bad_file(error: &DataFusionError) -> Option<&BadFile> {
    match error.find_root() {
        DataFusionError::External(inner) => inner.downcast_ref(),
        _ => None,
    }
}

/// Formats an error as one line.
pub(super) fn format_one_line(error: &DataFusionError) -> String {
    if let Some(diagnostic) = error.diagnostic() {
        let place = diagnostic.span.map(|span| (span.start.line, span.start.column));
        let mut text = add_position(place, &diagnostic.message);
        let more = diagnostic
            .notes
            .iter()
            .map(|note| &note.message)
            .chain(diagnostic.helps.iter().map(|help| &help.message));
        let (columns, others): (Vec<_>, Vec<_>) = more.partition(|more| more.starts_with(SUGGESTION_PREFIX));
        let columns: Vec<_> =
            columns.iter().filter_map(|column| column.strip_prefix(SUGGESTION_PREFIX)).collect();
        if !columns.is_empty() {
            text.push_str(&format!("; perhaps {}", columns.join(", ")));
        }
        others.iter().for_each(|other| text.push_str(&format!("; {other}")));
        return name_tables(text);
    }
    let root = error.find_root();
    let text = match root {
        DataFusionError::SQL(error, _) => {
            let text = error.to_string();
            let text = text.strip_prefix("sql parser error: ").unwrap_or(&text);
            if text.starts_with("recursion limit") {
                return "the query is nested too deeply".into();
            }
            return match split_position(text) {
                Some((what, place)) => add_position(Some(place), what),
                None => add_position(None, text),
            };
        }
        DataFusionError::NotImplemented(text) if text.contains("single SQL statement") => {
            return "run one query at a time".into();
        }
        DataFusionError::Plan(text) if text.starts_with("No SQL statements") => {
            return "the query is empty".into();
        }
        DataFusionError::Plan(text) if text.contains(" not supported: ") && text.starts_with(['D', 'S']) => {
            let what = text.split_once(" not supported: ").map_or("", |(_, what)| what);
            return format!("queries are read-only ({what}): use SELECT, WITH, EXPLAIN, DESCRIBE or SHOW");
        }
        root => root.message().into_owned(),
    };
    name_tables(text)
}

/// Adds a position in the query to a message.
fn add_position(place: Option<(u64, u64)>, what: &str) -> String {
    match place {
        Some((line, column)) => format!("line {line}, column {column} of the query: {what}"),
        None => format!("the query: {what}"),
    }
}

/// Splits a parser message from the position at its end.
fn split_position(text: &str) -> Option<(&str, (u64, u64))> {
    let (what, place) = text.rsplit_once(" at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    Some((what, (line.parse().ok()?, column.parse().ok()?)))
}

/// Formats table names as queries write them, and lists all tables if one does not exist.
fn name_tables(text: String) -> String {
    let text = text.replace("memtrack.dataset.", "");
    if text.contains("table '") && text.contains("' not found") {
        let names: Vec<_> = TABLES.iter().map(|table| table.name).collect();
        return format!("{text}; there are {}", names.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_split_from_messages() {
        let message = "Expected: an expression, found: FROM at Line: 2, Column: 8";
        assert_eq!(split_position(message), Some(("Expected: an expression, found: FROM", (2, 8))));
        assert_eq!(split_position("no place"), None);
    }
}
