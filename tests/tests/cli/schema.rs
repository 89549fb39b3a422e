//! `memtrack schema`, and the fields of answers that are published.

#[cfg(target_os = "linux")]
use memtrack_tests::run::Bench;
use memtrack_tests::schema::{check, fields, list_of_fields};
use memtrack_tests::{fixture, memtrack};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

/// A program that calls the CUDA driver.
#[cfg(target_os = "linux")]
const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

fn schema(arguments: &[&str]) -> Output {
    Command::new(memtrack()).arg("schema").args(arguments).output().unwrap()
}

fn text(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the verbs that have a schema.
fn verbs() -> BTreeSet<String> {
    let list = text(schema(&[]));
    let verb = |line: &str| {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap().to_owned();
        let version = words.next().and_then(|name| name.strip_prefix(&format!("memtrack/{verb}/")));
        assert!(version.is_some_and(|version| version.parse::<u32>().is_ok()), "{line}");
        verb
    };
    list.lines().map(verb).collect()
}

/// Set to write the lists of fields anew, after the version of a changed answer was raised.
const UPDATE: &str = "MEMTRACK_UPDATE_ANSWERS";

#[test]
fn published_fields_change_only_with_the_version() {
    let folder = list_of_fields("").parent().expect("it is in a folder").to_owned();
    let files: BTreeSet<String> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let updates = std::env::var_os(UPDATE).is_some();
    if !updates {
        assert_eq!(files, verbs());
    }
    let mut wrong = Vec::new();
    for verb in verbs() {
        let schema: Value = serde_json::from_str(&text(schema(&[&verb]))).unwrap();
        let name = schema["title"].as_str().expect("it has a name");
        let lines: Vec<String> = std::iter::once(name.to_owned()).chain(fields(&schema)).collect();
        let file = list_of_fields(&verb);
        let published = fs::read_to_string(&file).unwrap_or_default();
        if published.lines().eq(lines.iter()) {
            continue;
        }
        let changed: Vec<&str> =
            lines.iter().map(String::as_str).filter(|line| !published.contains(line)).collect();
        if published.lines().next() == Some(name) {
            wrong.push(format!("{verb}: raise the version (ANSWER in memtrack-cli/src/verbs): {changed:?}"));
        } else if updates {
            fs::write(&file, lines.join("\n") + "\n").unwrap();
        } else {
            wrong.push(format!("{verb}: the list is that of another version; set {UPDATE} to write it anew"));
        }
    }
    assert!(wrong.is_empty(), "fields have changed:\n{}", wrong.join("\n"));
}

#[test]
fn fields_are_listed_with_their_types() {
    let schema = json!({
        "properties": {
            "schema": { "const": "memtrack/a/1" },
            "rows": { "type": "array", "items": { "$ref": "#/$defs/Row" } },
            "by_name": { "type": "object", "additionalProperties": { "type": "integer" } },
        },
        "$defs": {
            "Row": { "type": "object", "properties": {
                "name": { "type": ["string", "null"] },
                "kind": { "enum": ["host", "device"] },
                "inner": { "anyOf": [{ "$ref": "#/$defs/Row" }, { "type": "null" }] },
            } },
        },
    });
    let expected = [
        "by_name{}: integer",
        "rows[].inner: Row, as above, null",
        "rows[].kind: \"device\", \"host\"",
        "rows[].name: null, string",
        "schema: \"memtrack/a/1\"",
    ];
    assert_eq!(fields(&schema).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_verb_without_an_answer_has_no_schema() {
    let output = schema(&["help"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr.starts_with("memtrack: no schema for help; there is one for: ") && stderr.contains("top"),
        "{stderr}"
    );
}

/// Verbs that print nothing for scripts, or that print a format other than JSON.
const WITHOUT_JSON: [&str; 4] = ["completions", "help", "man", "schema"];

#[test]
fn every_verb_answers_as_json() {
    let help = text(Command::new(memtrack()).arg("--help").output().unwrap());
    let of_verb =
        |line: &str| line.strip_prefix("  ").filter(|line| !line.starts_with([' ', '-'])).map(str::to_owned);
    let lines =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let named: BTreeSet<String> = lines
        .filter_map(of_verb)
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|verb| !WITHOUT_JSON.contains(&&**verb))
        .collect();
    assert!(named.contains("top"), "{help}");
    assert_eq!(named, verbs());
    for verb in named {
        let help = text(Command::new(memtrack()).args([&verb, "--help"]).output().unwrap());
        assert!(help.contains("--json"), "{verb}: {help}");
    }
}

#[test]
fn verbs_that_write_a_file_describe_it_apart_from_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = fixture("snapshots/samples/basic-1.pickle");
    let run = |arguments: &[&str]| {
        let output =
            Command::new(memtrack()).args(arguments).arg(&file).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    };
    let answer = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    for verb in ["view", "trace-plot", "segment-plot", "profile-plot"] {
        let output = run(&[verb, "--json", "--force", "-o", "page.html"]);
        let size = fs::metadata(folder.path().join("page.html")).unwrap().len();
        let expected = json!({
            "schema": format!("memtrack/{verb}/1"), "path": "page.html", "format": "html", "size_bytes": size,
        });
        assert_eq!(answer(&output.stdout), expected);
        assert!(output.stderr.is_empty(), "{output:?}");
    }
    let output = run(&["view", "--json", "-o", "-"]);
    assert!(output.stdout.starts_with(b"<!"), "the page");
    assert_eq!(answer(&output.stderr)["path"], Value::Null);
    let convert = |to: &str, more: &[&str]| {
        let output = Command::new(memtrack())
            .arg("convert")
            .arg(&file)
            .args([to, "--json"])
            .args(more)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    };
    let converted = answer(&convert("a.json.gz", &[]).stdout);
    assert_eq!((&converted["path"], &converted["format"]), (&json!("a.json.gz"), &json!("json.gz")));
    let output = convert("-", &["--to", "json"]);
    assert!(answer(&output.stdout).get("segments").is_some(), "the snapshot");
    assert_eq!(answer(&output.stderr)["format"], "json");
    let output = Command::new(memtrack())
        .args(["export-script", "--json", "-o", "export.py"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(answer(&output.stdout)["path"], "export.py");
    let workload = folder.path().join("work.jsonl");
    fs::write(&workload, "{\"op\":\"config\",\"devices\":1,\"total_bytes\":1073741824}\n{\"op\":\"alloc\",\"id\":1,\"size\":1000}\n").unwrap();
    let output = Command::new(memtrack()).args(["simulate", "--json"]).arg(&workload).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).lines().count() > 2, "{output:?}");
    assert_eq!(answer(&output.stderr)["format"], "jsonl");
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_is_reported_in_a_file_or_apart_from_the_programs_output() {
    let bench = Bench::new();
    let output = bench.run(&["--json", "run.json", "-o", "a.memtrack", "--", PLAIN, "exit", "5"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let report: Value = serde_json::from_slice(&fs::read(bench.path("run.json")).unwrap()).unwrap();
    assert_eq!(
        (&report["exit_code"], &report["signal"], &report["program"]),
        (&json!(5), &Value::Null, &json!(PLAIN))
    );
    let size = fs::metadata(bench.path("a.memtrack")).unwrap().len();
    assert!(report["recording"]["path"].as_str().unwrap().ends_with("/a.memtrack"), "{report}");
    assert_eq!(report["recording"]["size_bytes"], size);
    // An existing file is not overwritten.
    assert_eq!(bench.run(&["--json", "run.json", "--", PLAIN, "work"]).status.code(), Some(2));
    let output = bench.run(&["--json", "-", "--", "sh", "-c", "echo data; kill -KILL $$"]);
    assert_eq!((&*output.stdout, output.status.code()), (&b"data\n"[..], Some(128 + 9)));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let report: Value = serde_json::from_str(&stderr[stderr.find('{').unwrap()..]).unwrap();
    assert_eq!((&report["exit_code"], &report["signal"]), (&Value::Null, &json!(9)));
    assert_eq!(report["recording"], Value::Null);
    let schema = serde_json::from_str(&text(schema(&["run"]))).unwrap();
    assert_eq!(check(&schema, &report), Ok(()));
}

#[test]
fn answers_that_violate_their_schema_are_rejected() {
    let schema: Value = serde_json::from_str(&text(schema(&["peak"]))).unwrap();
    let right = json!({ "schema": "memtrack/peak/3", "devices": [] });
    assert_eq!(check(&schema, &right), Ok(()));
    let wrong = [
        (json!({ "devices": [] }), "\"schema\" is missing"),
        (json!({ "schema": "memtrack/peak/9", "devices": [] }), "is not \"memtrack/peak/3\""),
        (json!({ "schema": "memtrack/peak/3", "devices": {} }), "is not of type"),
        (json!({ "schema": "memtrack/peak/3", "devices": [], "other": 1 }), "$.other: nothing may be here"),
        (json!({ "schema": "memtrack/peak/3", "devices": [{ "device": 0 }] }), "$.devices[0]: "),
    ];
    for (answer, why) in wrong {
        let error = check(&schema, &answer).unwrap_err();
        assert!(error.contains(why), "{answer}: {error}");
    }
}

#[test]
fn unknown_keywords_of_a_schema_are_rejected() {
    let error = check(&json!({ "pattern": "a*" }), &json!("b")).unwrap_err();
    assert!(error.contains("pattern"), "{error}");
}
