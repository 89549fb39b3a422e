//! `memtrack export-script --cycles` as a user runs it. tests/pytorch/cycles.sh tests the script with PyTorch.

use memtrack_tests::memtrack;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A substitute for PyTorch that contains only what the script uses of it.
const TORCH: &str = include_str!("export_cycles_torch.py");
/// Python checks of the graphs that the script makes from garbage. Each prints a line that ends with `passed`.
const CHECKS: &str = include_str!("export_cycles_checks.py");

/// A program that leaks cycles, two of them of the same shape.
const PROGRAM: &str = "\
import gc, sys, torch

gc.disable()

class Module:
    pass

def forget(size):
    module, hook = Module(), Module()
    module.hook, hook.owner, module.weight = hook, module, torch.zeros(size)

def nothing():
    pass

held = Module()
held.me, held.weight = held, torch.zeros(64)
def use():
    return held
for size in (4, 4, 8):
    forget(size)
    gc.collect()
    nothing()
forget(16)
print(sys.argv)
sys.exit(5)
";

fn export_script(arguments: &[&str]) -> Output {
    Command::new(memtrack()).arg("export-script").args(arguments).output().unwrap()
}

/// Runs Python in a folder with the script as `memtrack_cycles.py` and, with `torch`, a substitute for PyTorch.
fn python(folder: &Path, torch: bool, arguments: &[&str]) -> Output {
    fs::write(folder.join("memtrack_cycles.py"), export_script(&["--cycles"]).stdout).unwrap();
    if torch {
        fs::write(folder.join("torch.py"), TORCH).unwrap();
    }
    // `-S` hides an installed PyTorch.
    Command::new("python3").args(["-S", "-B"]).args(arguments).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("cycles"));
    names.sort();
    names
}

#[test]
fn the_option_for_cycles_prints_another_script_and_help_shows_its_use() {
    let printed = export_script(&["--cycles"]);
    assert!(printed.status.success() && printed.stderr.is_empty());
    assert!(text(&printed.stdout).contains("def warn_tensor_cycles("));
    assert_ne!(printed.stdout, export_script(&[]).stdout);

    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("memtrack_cycles.py");
    let name = target.to_str().unwrap();
    assert!(export_script(&["--cycles", "-o", name]).status.success());
    assert_eq!(fs::read(&target).unwrap(), printed.stdout);
    assert_eq!(export_script(&["--cycles", "-o", name]).status.code(), Some(2));

    let help = export_script(&["--help"]).stdout;
    for command in [
        "export-script --cycles -o memtrack_cycles.py",
        "python memtrack_cycles.py train.py",
        "memtrack cycles cycles-1.json",
    ] {
        assert!(text(&help).contains(command), "{command}: {}", text(&help));
    }
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn the_script_is_python_3_8_and_reports_a_missing_pytorch() {
    let folder = tempfile::tempdir().unwrap();
    let check = "import ast, sys; ast.parse(open('memtrack_cycles.py').read(), feature_version=(3, 8)); \
                 import memtrack_cycles; print('torch' in sys.modules)";
    let output = python(folder.path(), false, &["-c", check]);
    assert_eq!(text(&output.stdout).trim(), "False", "{}", text(&output.stderr));

    fs::write(folder.path().join("train.py"), "print('it ran')").unwrap();
    let output = python(folder.path(), false, &["memtrack_cycles.py", "train.py"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        text(&output.stderr).contains("no PyTorch") && output.stdout.is_empty(),
        "{}",
        text(&output.stderr)
    );
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn an_unchanged_program_gets_a_file_for_each_finding() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.py"), PROGRAM).unwrap();
    fs::write(folder.path().join("cycles-2.json"), "original").unwrap();
    let output = python(folder.path(), true, &["memtrack_cycles.py", "train.py", "--epochs", "1"]);
    let stderr = text(&output.stderr);
    // The program receives its arguments, and the script exits with the program's exit code.
    assert_eq!(text(&output.stdout).trim(), "['train.py', '--epochs', '1']", "{stderr}");
    assert_eq!(output.status.code(), Some(5), "{stderr}");

    assert_eq!(
        files(folder.path()),
        ["cycles-1.json", "cycles-2.json", "cycles-3.json", "cycles-4.json"],
        "{stderr}"
    );
    assert_eq!(fs::read(folder.path().join("cycles-2.json")).unwrap(), b"original");
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 4, "{stderr}");
    for (line, (number, size)) in lines.iter().zip([(1, 16), (3, 32), (4, 64)]) {
        assert!(
            line.contains(&format!("held 1 tensor with {size} B on cuda:0: wrote cycles-{number}.json;")),
            "{line}"
        );
        assert!(
            line.ends_with(&format!("memtrack cycles cycles-{number}.json -o cycles-{number}.html")),
            "{line}"
        );
    }
    assert_eq!(lines[3], "memtrack_cycles: found 2 times: cycles-1.json");

    // The last cycle was still uncollected when the program ended. Objects that the program's module references are not reported.
    let nodes: Value =
        serde_json::from_slice(&fs::read(folder.path().join("cycles-4.json")).unwrap()).unwrap();
    let nodes = nodes.as_array().unwrap();
    let roots: Vec<&Value> = nodes.iter().filter(|node| node["root"] == true).collect();
    assert_eq!(roots.len(), 1);
    assert_eq!(roots[0]["label"], "object\ntorch.Tensor (torch.Size([16]))");
    assert_eq!(
        (&roots[0]["device"], &roots[0]["bytes"], &roots[0]["storage"], &roots[0]["context"]),
        (&json!("cuda:0"), &json!(64), &json!(0x7f00_0000_2000_u64), &Value::Null)
    );
    let first: Value =
        serde_json::from_slice(&fs::read(folder.path().join("cycles-1.json")).unwrap()).unwrap();
    let contexts: Vec<&Value> = first.as_array().unwrap().iter().map(|node| &node["context"]).collect();
    assert!(contexts.contains(&&json!("train.py:7:forward\ntrain.py:9:main")), "{contexts:?}");
    for node in nodes {
        let node = node.as_object().unwrap();
        for key in ["label", "context", "root", "references"] {
            assert!(node.contains_key(key), "{key}");
        }
        for reference in node["references"].as_array().unwrap() {
            let [text, target] = &reference.as_array().unwrap()[..] else { panic!("{reference}") };
            assert!(text.is_string() && target.as_u64().unwrap() < nodes.len() as u64, "{reference}");
        }
    }
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn bad_arguments_are_refused_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.py"), "print('it ran')").unwrap();
    for (arguments, expected) in [
        (&["missing.py"][..], "missing.py"),
        (&["--folder", "no/folder", "train.py"], "no/folder"),
        (&["--files", "0", "train.py"], "--files"),
        (&[], "SCRIPT"),
    ] {
        let arguments = [&["memtrack_cycles.py"], arguments].concat();
        let output = python(folder.path(), true, &arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(expected) && output.stdout.is_empty(),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn garbage_becomes_graphs_and_the_program_is_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("checks.py"), CHECKS).unwrap();
    let output = python(folder.path(), true, &["checks.py"]);
    let stdout = text(&output.stdout);
    let failed: Vec<&str> = stdout.lines().filter(|line| !line.ends_with(": passed")).collect();
    assert!(failed.is_empty() && output.status.success(), "{failed:#?}\n{}", text(&output.stderr));
    assert_eq!(stdout.lines().count(), CHECKS.matches("\ndef ").count() - HELPERS, "{stdout}");
}

/// The number of functions in [`CHECKS`] that are helpers, not checks.
const HELPERS: usize = 6;
