//! The JSON output of the verbs, which the table below defines with one row per verb. Each answer is printed as a single object
//! that starts with the name and version of its schema. The schemas are generated from the types; docs/JSON.md describes them for
//! users, and a test compares their fields with the published ones (`tests/fixtures/answers`).
//!
//! To add a verb, add a row here, and a struct that derives `Serialize` and `JsonSchema`.

mod types;

pub(crate) use types::*;

use crate::Streams;
use crate::args::WrittenArgs;
use crate::error::CliError;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::Path;

answers! {
    ADVISE = "advise" 2: Advice;
    CATEGORIES = "categories" 3: CategoriesAnswer;
    CHECK = "check" 3: FoundAnswer;
    COMPARE = "compare" 2: CompareAnswer;
    CONVERT = "convert" 1: WrittenAnswer;
    CYCLES = "cycles" 1: CyclesAnswer;
    DIFF = "diff" 2: FilesDiffAnswer;
    #[cfg(feature = "parquet")]
    EXPORT = "export" 1: ExportAnswer;
    EXPORT_SCRIPT = "export-script" 1: WrittenAnswer;
    #[cfg(feature = "gpus")]
    GPUS = "gpus" 1: Gpus;
    LEAKS = "leaks" 3: LeaksAnswer;
    MEMORY = "memory" 3: MemoryAnswer;
    MODULES = "modules" 2: ModuleReport;
    PEAK = "peak" 3: PeakAnswer;
    PROCESSES = "processes" 1: ProcessesAnswer;
    PROFILE_PLOT = "profile-plot" 1: WrittenAnswer;
    RANKS = "ranks" 3: RanksAnswer;
    REPLAY = "replay" 1: DevicesReplayAnswer;
    #[cfg(unix)]
    RUN = "run" 2: RunAnswer;
    SEGMENT_PLOT = "segment-plot" 1: WrittenAnswer;
    SEGMENTS = "segments" 2: UsageRowsAnswer;
    SIMULATE = "simulate" 1: WrittenAnswer;
    STATS = "stats" 1: StatsAnswer;
    SUMMARY = "summary" 3: SummaryAnswer;
    TIMELINE = "timeline" 1: WrittenAnswer;
    TOP = "top" 3: TopAnswer;
    TRACE = "trace" 1: TraceAnswer;
    TRACE_PLOT = "trace-plot" 1: WrittenAnswer;
    TRACKER = "tracker" 1: TrackerAnswer;
    VIEW = "view" 1: WrittenAnswer;
}

/// The JSON output of a verb, whose body is a `T`.
pub(crate) struct Answer<T> {
    verb: &'static str,
    version: u32,
    body: PhantomData<fn(&T)>,
}

/// Defines a constant of type [`Answer`] for each row of the table, and a function that lists the constants.
macro_rules! answers {
    ($($(#[$attribute:meta])* $row:ident = $verb:literal $version:literal: $body:ty;)+) => {
        $($(#[$attribute])* pub(crate) const $row: Answer<$body> =
            Answer { verb: $verb, version: $version, body: PhantomData };)+

        /// Returns all answers, sorted by verb.
        pub(crate) fn all() -> &'static [&'static dyn AnswerSchema] {
            &[$($(#[$attribute])* &$row,)+]
        }
    };
}
use answers;

/// An [`Answer`] with its type erased, which provides only its verb and schema.
pub(crate) trait AnswerSchema {
    /// Returns the verb.
    fn verb(&self) -> &'static str;
    /// Returns the schema's name and version, such as `memtrack/top/3`.
    fn name(&self) -> String;
    /// Returns the schema.
    fn schema(&self) -> Schema;
}

impl<T: Serialize + JsonSchema> Answer<T> {
    /// Prints the answer to standard output.
    pub(crate) fn print(&self, body: &T, streams: &mut Streams<'_>) -> Result<(), CliError> {
        Ok(self.write(body, &mut *streams.stdout)?)
    }

    /// Writes the answer.
    pub(crate) fn write(&self, body: &T, out: &mut dyn Write) -> io::Result<()> {
        /// The printed object.
        #[derive(Serialize)]
        struct WithSchema<'a, T> {
            schema: String,
            #[serde(flatten)]
            body: &'a T,
        }
        serde_json::to_writer_pretty(&mut *out, &WithSchema { schema: self.name(), body })?;
        out.write_all(b"\n")
    }
}

impl Answer<WrittenAnswer> {
    /// Reports the file that was written, as JSON if requested. The JSON goes to standard output, or to standard error if the
    /// data itself goes to standard output.
    pub(crate) fn report_written(
        &self,
        target: &Path,
        format: &str,
        args: WrittenArgs,
        streams: &mut Streams<'_>,
    ) -> Result<(), CliError> {
        let to_stdout = target == Path::new("-");
        if !args.json {
            if !to_stdout {
                // Ignore a failure to print this hint, because the file is complete without it.
                let _ = writeln!(streams.stderr, "wrote {}", target.display());
            }
            return Ok(());
        }
        let answer = WrittenAnswer {
            path: (!to_stdout).then(|| target.to_string_lossy().into_owned()),
            format: format.to_owned(),
            size_bytes: target.metadata().ok().filter(|_| !to_stdout).map(|data| data.len()),
        };
        if to_stdout {
            // Ignore a failure to print this answer, because the data is complete without it.
            let _ = self.write(&answer, &mut *streams.stderr);
            return Ok(());
        }
        self.print(&answer, streams)
    }
}

impl<T: JsonSchema> AnswerSchema for Answer<T> {
    fn verb(&self) -> &'static str {
        self.verb
    }

    fn name(&self) -> String {
        format!("memtrack/{}/{}", self.verb, self.version)
    }

    fn schema(&self) -> Schema {
        // In a schema for serialization, keys that are always written are required.
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let mut schema = settings.into_generator().into_root_schema_for::<T>();
        let name = self.name();
        schema.insert("title".into(), name.as_str().into());
        let properties = schema.ensure_object().entry("properties").or_insert_with(|| json!({}));
        properties["schema"] =
            json!({ "description": "The name and version of this schema.", "const": name });
        match schema.ensure_object().entry("required").or_insert_with(|| json!([])) {
            Value::Array(required) => required.insert(0, "schema".into()),
            _ => unreachable!("what is required is a list"),
        }
        RecursiveTransform(forbid_other_keys).transform(&mut schema);
        schema
    }
}

/// Forbids unlisted keys in objects that list their keys, so that a key missing from the schema fails a test.
fn forbid_other_keys(schema: &mut Schema) {
    let lists_keys = schema.get("properties").is_some() && schema.get("additionalProperties").is_none();
    if lists_keys {
        schema.insert("additionalProperties".into(), false.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_unique_and_sorted_by_verb() {
        let verbs: Vec<_> = all().iter().map(|answer| answer.verb()).collect();
        assert!(verbs.is_sorted_by(|a, b| a < b), "{verbs:?}");
    }

    #[test]
    fn schemas_forbid_unlisted_keys() {
        let schema = TOP.schema();
        assert_eq!(schema.get("additionalProperties"), Some(&Value::Bool(false)));
        assert_eq!(schema.pointer("/properties/schema/const"), Some(&"memtrack/top/3".into()));
        assert_eq!(schema.pointer("/$defs/TopRow/additionalProperties"), Some(&Value::Bool(false)));
    }
}
