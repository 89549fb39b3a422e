//! `memtrack export-script` as a user runs it. tests/pytorch/optrace.sh tests the script with PyTorch.

use memtrack_core::profile::optrace::{Mode, read};
use memtrack_tests::memtrack;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A Python program that makes a profile without PyTorch, and profiles that the export script must refuse.
const PROFILE: &str = include_str!("export_script_profile.py");

fn export_script(arguments: &[&str]) -> Output {
    Command::new(memtrack()).arg("export-script").args(arguments).output().unwrap()
}

/// Runs Python in a folder with the script as `memtrack_export.py`.
fn python(folder: &Path, arguments: &[&str]) -> Output {
    fs::write(folder.join("memtrack_export.py"), export_script(&[]).stdout).unwrap();
    // `-S` hides an installed PyTorch.
    Command::new("python3").args(["-S", "-B"]).args(arguments).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[test]
fn the_script_is_printed_or_written_and_replaces_nothing_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("memtrack_export.py");
    let name = target.to_str().unwrap();
    let printed = export_script(&[]);
    assert!(printed.status.success() && printed.stderr.is_empty());
    assert!(text(&printed.stdout).contains("def export_operator_trace("));
    assert!(export_script(&["-o", name]).status.success());
    assert_eq!(fs::read(&target).unwrap(), printed.stdout);

    fs::write(&target, "original").unwrap();
    let refused = export_script(&["-o", name]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--force"));
    assert_eq!(fs::read(&target).unwrap(), b"original");
    assert!(export_script(&["-o", name, "--force"]).status.success());
    assert_eq!(fs::read(&target).unwrap(), printed.stdout);
    assert_eq!(export_script(&["-o", "-"]).stdout, printed.stdout);
    assert_eq!(export_script(&["-o", "no/such/folder/a.py"]).status.code(), Some(3));
}

#[test]
fn help_shows_the_commands_that_lead_to_a_report() {
    let help = export_script(&["--help"]).stdout;
    for command in
        ["export-script -o memtrack_export.py", "python memtrack_export.py run.", "memtrack timeline run."]
    {
        assert!(text(&help).contains(command), "{command}: {}", text(&help));
    }
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn the_script_is_python_3_8_and_needs_pytorch_only_for_a_profile() {
    let folder = tempfile::tempdir().unwrap();
    let check = "import ast, sys; ast.parse(open('memtrack_export.py').read(), feature_version=(3, 8)); \
                 import memtrack_export; print('torch' in sys.modules)";
    let output = python(folder.path(), &["-c", check]);
    assert_eq!(text(&output.stdout).trim(), "False", "{}", text(&output.stderr));
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn the_script_refuses_an_output_that_exists_before_it_runs_anything() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("out.optrace.jsonl"), "original").unwrap();
    fs::write(at("train.py"), "print('it ran')").unwrap();
    let output = python(folder.path(), &["memtrack_export.py", "out.optrace.jsonl", "train.py"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--force") && output.stdout.is_empty(), "{}", text(&output.stderr));
    assert_eq!(fs::read(at("out.optrace.jsonl")).unwrap(), b"original");
    let output = python(folder.path(), &["memtrack_export.py", "new.optrace.jsonl", "missing.py"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("missing.py"), "{}", text(&output.stderr));
    let output = python(folder.path(), &["memtrack_export.py", "no/folder/new.optrace.jsonl", "train.py"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("no/folder") && output.stdout.is_empty(),
        "{}",
        text(&output.stderr)
    );
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn a_profile_becomes_a_trace_and_incomplete_profiles_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("profile.py"), PROFILE).unwrap();
    let output = python(folder.path(), &["profile.py"]);
    assert_eq!(
        text(&output.stdout).trim(),
        "made.optrace.jsonl made.optrace.jsonl.gz",
        "{}",
        text(&output.stderr)
    );

    let plain = fs::read(folder.path().join("made.optrace.jsonl")).unwrap();
    for file in ["made.optrace.jsonl", "made.optrace.jsonl.gz"] {
        let bytes = fs::read(folder.path().join(file)).unwrap();
        let trace = read(&bytes[..], Mode::Compat, 1 << 20).unwrap();
        assert!(trace.repairs.is_empty() && !trace.trace.header.partial, "{file}");
    }
    let lines: Vec<Value> = text(&plain).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let times: Vec<i64> = lines.iter().filter_map(|line| line["ts"].as_i64()).collect();
    assert!(times.is_sorted(), "{times:?}");

    // Formats each event with its parent and its phase.
    let mut ids = std::collections::HashMap::new();
    let mut events = Vec::new();
    for line in &lines {
        let what = match line["ev"].as_str().unwrap() {
            "op" => line["name"].as_str().unwrap().rsplit(": ").next().unwrap().to_owned(),
            "module" | "optimizer" => line["class"].as_str().unwrap().to_owned(),
            event @ ("alloc" | "free") => format!("{event} {}", line["bytes"]),
            _ => continue,
        };
        if let Some(id) = line["id"].as_u64() {
            ids.insert(id, what.clone());
        }
        let parent = line["parent"].as_u64().map_or("", |parent| &ids[&parent]);
        events.push(format!("{what} < {parent} {}", line["phase"].as_str().unwrap_or("-")));
    }
    assert_eq!(
        events,
        [
            "Linear <  -",
            "aten::linear < Linear -",
            "alloc 64 < aten::linear -",
            "aten::made_up < aten::linear -",
            "torch::autograd::AccumulateGrad <  backward",
            "torch::autograd::AccumulateGrad < torch::autograd::AccumulateGrad -",
            // Without this event, the next one would be classified as a gradient.
            "hipFoo < torch::autograd::AccumulateGrad -",
            "aten::detach < torch::autograd::AccumulateGrad -",
            "free 64 < torch::autograd::AccumulateGrad -",
            "Optimizer.step#SGD.step <  optimizer",
            "aten::add_ <  optimizer",
            "alloc 32 < aten::add_ -",
            "alloc 8 <  optimizer",
            "Linear <  forward",
            "aten::linear < Linear -",
            "aten::mul <  optimizer",
            "aten::_foreach_add_ <  optimizer",
            "SGD <  -",
            "aten::add_ <  -",
        ]
    );

    let line_of = |name: &str| lines.iter().find(|line| line["name"] == name).unwrap();
    let tensor =
        |number: u64| lines.iter().find(|line| line["ev"] == "tensor" && line["t"] == number).unwrap();
    let written = |name: &str| -> Vec<Value> {
        let args = line_of(name)["args"].as_array().unwrap();
        args.iter().map(|arg| if arg.is_null() { json!("none") } else { arg["w"].clone() }).collect()
    };
    assert_eq!(written("aten::linear"), [json!(false), json!(false), json!("none")]);
    // Whether these arguments are written is unknown: no operator has the name, or a tensor has no id.
    assert_eq!(written("aten::made_up"), [Value::Null]);
    assert_eq!(written("aten::mul"), [json!(false), Value::Null]);
    assert_eq!(written("aten::_foreach_add_"), [Value::Null, Value::Null]);
    assert_eq!(line_of("aten::add_")["args"], json!([{"t": 0, "w": true}, {"v": 1.5}, {"v": "inf"}]));
    assert_eq!(tensor(0)["storage"], "0x200");
    let module = lines.iter().find(|line| line["ev"] == "module").unwrap();
    assert_eq!((&module["path"], &module["params"][0]["name"]), (&json!("encoder.0"), &json!("weight")));
    let optimizer = lines.iter().find(|line| line["ev"] == "optimizer").unwrap();
    assert_eq!(optimizer["params"][0]["state"][0][0], "momentum");

    let frames = |line: &Value| -> Vec<String> {
        let stack = lines.iter().find(|other| other["s"] == line["stack"]).unwrap();
        stack["frames"]
            .as_array()
            .unwrap()
            .iter()
            .map(|frame| frame["name"].as_str().unwrap().into())
            .collect()
    };
    let alloc = lines.iter().find(|line| line["bytes"] == 64).unwrap();
    assert_eq!(alloc["ts"], 1050);
    assert_eq!(frames(alloc), ["forward", "nn.Module: Linear_0", "step"]);
    // The script removes the address, which differs from run to run.
    assert_eq!(frames(line_of("Optimizer.step#SGD.step")), ["<built-in method enter of object>", "step"]);
}
