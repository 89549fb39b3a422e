//! The JSON output of the verbs. Each answer is printed as a single object that starts with the name and version of its schema.
//! The schemas are generated from the types; docs/JSON.md describes them for users, and a test compares their fields with the
//! published ones (`tests/fixtures/answers`).

use crate::Streams;
use crate::error::CliError;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::marker::PhantomData;

/// The JSON output of a verb, whose body is a `T`.
pub(crate) struct Answer<T> {
    verb: &'static str,
    version: u32,
    body: PhantomData<fn(&T)>,
}

/// An [`Answer`] with its type erased, which provides only its verb and schema.
pub(crate) trait AnswerSchema {
    fn verb(&self) -> &'static str;
    /// Returns the schema's name and version, such as `memtrack/top/3`.
    fn name(&self) -> String;
    fn schema(&self) -> Schema;
}

impl<T> Answer<T> {
    /// Creates the answer of `verb`, whose schema has the version `version`. A test fails if published fields change without a
    /// new version.
    pub(crate) const fn new(verb: &'static str, version: u32) -> Self {
        Self { verb, version, body: PhantomData }
    }
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

    /// A body with an object in it.
    #[derive(JsonSchema)]
    struct Body {
        #[expect(dead_code, reason = "only its type matters")]
        row: Row,
    }

    /// An object in a body.
    #[derive(JsonSchema)]
    struct Row {
        #[expect(dead_code, reason = "only its type matters")]
        bytes: u64,
    }

    #[test]
    fn schemas_forbid_unlisted_keys() {
        let schema = Answer::<Body>::new("verb", 3).schema();
        assert_eq!(schema.get("additionalProperties"), Some(&Value::Bool(false)));
        assert_eq!(schema.pointer("/properties/schema/const"), Some(&"memtrack/verb/3".into()));
        assert_eq!(schema.pointer("/$defs/Row/additionalProperties"), Some(&Value::Bool(false)));
    }
}
