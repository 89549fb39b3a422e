//! How wide reports are, and how much of long stacks they show.

use memtrack_tests::memtrack;
use serde_json::{Value, json};
use std::process::Command;

/// A function that no line has room for.
fn long_name() -> String {
    format!("at::native::kernel<{}>(at::Tensor const&)", ["std::vector<long>"; 20].join(", "))
}

/// The answer about a block with a long C++ stack, with the environment's `COLUMNS` as given.
fn report(columns: Option<&str>, arguments: &[&str]) -> String {
    let frame = |name: &str| json!({"name": name, "filename": "??", "line": 0});
    let passing_on = "c10::impl::wrap_kernel_functor_unboxed_<long>::call(long)";
    let long = long_name();
    let mut frames = vec![frame(&long), frame(passing_on)];
    frames.extend((0..9).map(|n| frame(&format!("app::layer{n}(long)"))));
    let event =
        json!({"action": "alloc", "addr": 4096, "size": 600, "stream": 0, "time_us": 1, "frames": frames});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    std::fs::write(&path, json!({"segments": [], "device_traces": [[event]]}).to_string()).unwrap();
    let mut command = Command::new(memtrack());
    command.arg(arguments[0]).arg(&path).args(&arguments[1..]).env_remove("COLUMNS");
    if let Some(columns) = columns {
        command.env("COLUMNS", columns);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap()
}

#[test]
fn a_report_that_goes_to_a_file_is_as_wide_as_a_page() {
    for verb in ["top", "peak"] {
        let text = report(None, &[verb]);
        assert!(widest(&text) <= 120 && text.contains("at::native::kernel<…>(…)"), "{text}");
    }
    let table = report(Some("80"), &["top", "--by", "frame"]);
    assert!(widest(&table) <= 80 && table.contains("kernel<…>(…)"), "{table}");
}

#[test]
fn wide_and_json_show_names_whole() {
    for arguments in [["top", "--wide"], ["peak", "--wide"], ["top", "--json"], ["peak", "--json"]] {
        assert!(report(Some("80"), &arguments).contains(&long_name()), "{arguments:?}");
    }
}

#[test]
fn hidden_frames_are_counted() {
    let text = report(None, &["peak"]);
    assert!(text.contains("app::layer5(long)") && !text.contains("app::layer6"), "{text}");
    assert!(text.contains("… 3 more, 1 internal frame"), "{text}");
    let text = report(None, &["peak", "--frames", "2"]);
    assert!(text.contains("app::layer0(long)\n     … 8 more, 1 internal frame"), "{text}");
    let all = report(None, &["peak", "--frames", "0"]);
    assert!(all.contains("app::layer8") && all.contains("c10::impl::") && !all.contains(" more"), "{all}");
    let value: Value = serde_json::from_str(&report(None, &["peak", "--json"])).unwrap();
    assert_eq!(value["devices"][0]["rows"][0]["stack"].as_array().unwrap().len(), 11);
}
