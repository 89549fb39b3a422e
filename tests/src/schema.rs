//! Checks JSON output against its schema. Every `--json` output of every test is checked, by the command that the tests run
//! (`src/bin/memtrack_tested.rs`).
//!
//! The schemas are generated and use few keywords of JSON Schema, which this module supports. Any other keyword is an error, so
//! that none is silently ignored. (Of the crates with full support, `boon` takes 23 s of CPU time to build and
//! `jsonschema` 44 s.)

use crate::workspace;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Returns the file that lists the published fields of a verb's answer.
pub fn list_of_fields(verb: &str) -> PathBuf {
    workspace().join("tests/fixtures/answers").join(format!("{verb}.txt"))
}

/// Checks the JSON output of `verb` against its schema, whose name the output must contain.
///
/// # Errors
/// The first mismatch and its place.
pub fn check_answer(verb: &str, schema: &Value, answer: &Value) -> Result<(), String> {
    let named = answer.get("schema").and_then(Value::as_str).ok_or("it names no schema")?;
    if named.split('/').nth(1) != Some(verb) {
        return Err(format!("the output of {verb} names the schema {named}"));
    }
    check(schema, answer)
}

/// Returns a line for each field that an answer with this schema can have: its path and its types, such as
/// `devices[].rows[].name: null, string`. `[]` stands for the items of an array and `{}` for the values of a map. A type that
/// contains itself is listed once.
pub fn fields(schema: &Value) -> BTreeSet<String> {
    let mut types = BTreeSet::new();
    add_fields(schema, schema, "", &mut Vec::new(), &mut types);
    let mut fields = BTreeSet::new();
    let mut types = types.into_iter().peekable();
    while let Some((path, mut kinds)) = types.next() {
        while let Some((_, kind)) = types.next_if(|(next, _)| *next == path) {
            kinds = format!("{kinds}, {kind}");
        }
        fields.insert(format!("{path}: {kinds}"));
    }
    fields
}

/// Adds the path and the type of each field of `schema`, which is at `path`. `within` are the types around it.
fn add_fields<'a>(
    root: &'a Value,
    schema: &'a Value,
    path: &str,
    within: &mut Vec<&'a str>,
    fields: &mut BTreeSet<(String, String)>,
) {
    let mut add = |kind: &str| fields.insert((path.to_owned(), kind.to_owned()));
    if let Some(target) = schema["$ref"].as_str() {
        let name = target.rsplit('/').next().unwrap_or_default();
        if within.contains(&name) {
            add(&format!("{name}, as above"));
        } else if let Some(target) = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) {
            within.push(name);
            add_fields(root, target, path, within, fields);
            within.pop();
        }
        return;
    }
    let variants = ["anyOf", "oneOf", "allOf"].iter().find_map(|word| schema[word].as_array());
    if let Some(variants) = variants {
        variants.iter().for_each(|variant| add_fields(root, variant, path, within, fields));
        return;
    }
    let constants =
        schema["enum"].as_array().map(Vec::as_slice).or(schema.get("const").map(std::slice::from_ref));
    if let Some(constants) = constants {
        for constant in constants {
            add(&constant.to_string());
        }
        return;
    }
    let names = match &schema["type"] {
        Value::Array(names) => names.as_slice(),
        Value::Null => &[],
        name => std::slice::from_ref(name),
    };
    for name in names.iter().filter_map(Value::as_str).filter(|name| !["array", "object"].contains(name)) {
        add(name);
    }
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        add_fields(root, property, &inner, within, fields);
    }
    if schema["items"].is_object() {
        add_fields(root, &schema["items"], &format!("{path}[]"), within, fields);
    }
    if schema["additionalProperties"].is_object() {
        add_fields(root, &schema["additionalProperties"], &format!("{path}{{}}"), within, fields);
    }
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
