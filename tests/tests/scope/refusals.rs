//! Code that `#[track_memory]`, `#[derive(References)]` and `#[limits]` do not support is refused with helpful errors. The cases
//! are programs in `tests/macros`, next to their expected errors; `MEMTRACK_TESTS_RENEW=1` rewrites the expected errors.

use memtrack_tests::nested;
use serde_json::Value;
use std::{env, fs};

const CASES: [&str; 8] = [
    "arguments",
    "bodies",
    "functions",
    "items",
    "limits",
    "references_arguments",
    "references_fields",
    "references_types",
];

/// The folder of the cases, as it appears in errors: cargo starts rustc in the root of the workspace.
const FOLDER: &str = "tests/macros/ui/";

#[test]
fn wrong_uses_are_refused_with_help() {
    let folder = memtrack_tests::workspace().join(FOLDER);
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let cases = files.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).count();
    assert_eq!(cases, CASES.len(), "each file is a case");

    let programs = CASES.map(|case| format!("refused_{case}"));
    let mut cargo =
        nested::of_members(&programs.each_ref().map(|name| &**name), "memtrack-macros-tests/refused");
    let output = cargo.args(["--keep-going", "--message-format=json"]).output().unwrap();
    assert!(!output.status.success(), "all are refused");
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let messages: Vec<Value> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    for (case, program) in CASES.iter().zip(&programs) {
        let case_messages = messages.iter().filter(|message| {
            message["reason"] == "compiler-message" && message["target"]["name"] == **program
        });
        let errors: String = case_messages
            .map(|message| &message["message"])
            // Messages without a source location are summaries, such as the number of errors.
            .filter(|message| message["spans"].as_array().is_some_and(|places| !places.is_empty()))
            .filter_map(|message| message["rendered"].as_str())
            .map(without_line_numbers)
            .collect();
        let expected = folder.join(case).with_extension("stderr");
        if env::var_os("MEMTRACK_TESTS_RENEW").is_some() {
            fs::write(&expected, errors.trim_end().to_owned() + "\n").unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap();
        let cargo_errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(errors.trim_end(), expected.trim_end(), "{case}; cargo:\n{cargo_errors}");
    }
}

/// Removes the parts of a diagnostic that change when memtrack's source changes: line numbers in that source, the width of the
/// margin, which depends on the longest line number, and the number of further types.
fn without_line_numbers(text: &str) -> String {
    let mut in_case = true;
    let mut widths = [0, 0];
    let mut lines = Vec::new();
    for line in text.lines() {
        // Whether rustc shortens this path depends on the names in the crates that are loaded.
        let mut line = line.replace("std::result::Result", "Result");
        if let Some((margin, place)) = line.split_once("--> ").filter(|(margin, _)| margin.trim().is_empty())
        {
            in_case = place.starts_with(FOLDER);
            line = match place.strip_prefix(FOLDER) {
                Some(place) => format!("{margin}--> ui/{place}"),
                None => format!("{margin}--> $WORKSPACE/{}", place.split(':').next().unwrap_or(place)),
            };
        }
        if line.starts_with(|first: char| first.is_ascii_lowercase()) {
            // A note begins. It is taken as a part of the case until a line with a location in another file follows.
            in_case = true;
        }
        let digits = line.trim_start().bytes().take_while(u8::is_ascii_digit).count();
        let numbered = digits > 0 && line.trim_start()[digits..].starts_with(' ');
        if numbered {
            widths[usize::from(in_case)] = widths[usize::from(in_case)].max(digits);
            if !in_case {
                line = line.replacen(|digit: char| digit.is_ascii_digit(), " ", digits);
            }
        }
        let others = line.trim().strip_prefix("and ").and_then(|rest| rest.strip_suffix(" others"));
        if let Some(number) = others.filter(|number| number.parse::<u32>().is_ok()) {
            line = line.replace(number, "$N");
        }
        lines.push(line.replace(&format!("@{FOLDER}"), "@$DIR/ui/"));
    }
    let narrower = widths[0].saturating_sub(widths[1]);
    let mut all = String::new();
    for line in lines {
        let in_margin = line.starts_with(' ');
        all += if in_margin { line.get(narrower..).unwrap_or_default() } else { &line };
        all.push('\n');
    }
    all
}
