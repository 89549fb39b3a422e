//! Checks JSON output against its schema. Every `--json` output of every test is checked, by the command that the tests run
//! (`src/bin/memtrack_tested.rs`).
//!
//! The schemas are generated and use few keywords of JSON Schema, which this module supports. Any other keyword is an error, so
//! that none is silently ignored. (Of the crates with full support, `boon` takes 23 s of CPU time to build and
//! `jsonschema` 44 s.)

use crate::workspace;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Returns the folder with the schemas.
pub fn folder() -> PathBuf {
    workspace().join("memtrack-cli/schemas")
}

/// Checks JSON output against the schema whose name it contains, which must be the schema of `verb`.
///
/// # Errors
/// The first mismatch and its place.
pub fn check_answer(verb: &str, answer: &Value) -> Result<(), String> {
    let named = answer.get("schema").and_then(Value::as_str).ok_or("it names no schema")?;
    if named.split('/').nth(1) != Some(verb) {
        return Err(format!("the output of {verb} names the schema {named}"));
    }
    let path = folder().join(format!("{verb}.json"));
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let schema: Value =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    check(&schema, answer)
}

/// Checks a value against a schema.
///
/// # Errors
/// The first mismatch and its place.
pub fn check(schema: &Value, value: &Value) -> Result<(), String> {
    at(schema, schema, value, "$")
}

/// Returns the beginning of a value, for a message.
fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}

fn at(root: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let words = match schema {
        Value::Bool(true) => return Ok(()),
        Value::Bool(false) => return Err(format!("{place}: nothing may be here")),
        Value::Object(words) => words,
        _ => return Err(format!("{place}: the schema is not an object")),
    };
    let fail = |why: String| Err(format!("{place}: {why}"));
    for (word, of) in words {
        match word.as_str() {
            "$schema"
            | "$defs"
            | "title"
            | "description"
            | "format"
            | "default"
            | "required"
            | "additionalProperties" => {}
            "$ref" => {
                let pointer = of.as_str().and_then(|text| text.strip_prefix('#')).unwrap_or_default();
                let Some(target) = root.pointer(pointer).filter(|_| !pointer.is_empty()) else {
                    return fail(format!("the schema refers to {of}, which is not there"));
                };
                at(root, target, value, place)?;
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap_or_default() {
                    "null" => value.is_null(),
                    "boolean" => value.is_boolean(),
                    "string" => value.is_string(),
                    "array" => value.is_array(),
                    "object" => value.is_object(),
                    "number" => value.is_number(),
                    "integer" => value.is_i64() || value.is_u64(),
                    _ => false,
                };
                let fits = of.as_array().map_or_else(|| is(of), |names| names.iter().any(is));
                if !fits {
                    return fail(format!("{} is not of type {of}", short(value)));
                }
            }
            "const" if of != value => return fail(format!("{} is not {of}", short(value))),
            "const" => {}
            "enum" => {
                if !of.as_array().is_some_and(|all| all.contains(value)) {
                    return fail(format!("{} is not one of {of}", short(value)));
                }
            }
            "anyOf" | "oneOf" => {
                let all = of.as_array().map(Vec::as_slice).unwrap_or_default();
                let failures: Vec<_> =
                    all.iter().filter_map(|one| at(root, one, value, place).err()).collect();
                let fitting = all.len() - failures.len();
                if fitting == 0 || (word == "oneOf" && fitting > 1) {
                    return fail(format!("{fitting} of {} schemas fit: {}", all.len(), failures.join("; ")));
                }
            }
            "allOf" => {
                for one in of.as_array().map(Vec::as_slice).unwrap_or_default() {
                    at(root, one, value, place)?;
                }
            }
            "minimum" => {
                let below = match (value.as_i64(), of.as_i64()) {
                    (Some(value), Some(least)) => value < least,
                    _ => value.as_f64() < of.as_f64() && value.is_number(),
                };
                if below {
                    return fail(format!("{value} is below {of}"));
                }
            }
            "maximum" => {
                if value.is_number() && value.as_f64() > of.as_f64() {
                    return fail(format!("{value} is above {of}"));
                }
            }
            "minItems" | "maxItems" => {
                let Some(items) = value.as_array() else { continue };
                let count = items.len() as u64;
                let bound = of.as_u64().unwrap_or_default();
                let fits = if word == "minItems" { count >= bound } else { count <= bound };
                if !fits {
                    return fail(format!("{count} items, {word} {of}"));
                }
            }
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    at(root, of, item, &format!("{place}[{number}]"))?;
                }
            }
            "properties" => {
                let Some(object) = value.as_object() else { continue };
                for key in words.get("required").and_then(Value::as_array).into_iter().flatten() {
                    if !key.as_str().is_some_and(|key| object.contains_key(key)) {
                        return fail(format!("{key} is missing"));
                    }
                }
            }
            other => return fail(format!("the schema contains {other}, which these tests do not support")),
        }
    }
    let Some(object) = value.as_object() else { return Ok(()) };
    for (key, value) in object {
        let place = format!("{place}.{key}");
        match (words.get("properties").and_then(|all| all.get(key)), words.get("additionalProperties")) {
            (Some(schema), _) => at(root, schema, value, &place)?,
            (None, Some(schema)) => at(root, schema, value, &place)?,
            (None, None) => {}
        }
    }
    Ok(())
}
