//! `memtrack modules` agrees with PyTorch's MemTracker at all moments that both measure.

use memtrack_tests::{fixture, memtrack};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// memtrack's categories for each of MemTracker's. `Temp` is absent: MemTracker counts future gradients and the temporaries of
/// operators as this one category.
const CATEGORIES: [(&str, &[&str]); 6] = [
    ("Parameter", &["PARAMETER"]),
    ("Buffer", &["BUFFER"]),
    ("Gradient", &["GRADIENT"]),
    ("Activation", &["ACTIVATION"]),
    ("Optstate", &["OPTIMIZER_STATE"]),
    ("Other", &["INPUT"]),
];

/// MemTracker's name for each moment, and memtrack's.
const MOMENTS: [(&str, &str, &str); 4] = [
    ("Pre-Forward", "forward", "before"),
    ("Post-Forward", "forward", "after"),
    ("Pre-Backward", "backward", "before"),
    ("Post-Backward", "backward", "after"),
];

fn sum(bytes: &Value, categories: &[&str]) -> u64 {
    categories.iter().filter_map(|&category| bytes["category_bytes"][category].as_u64()).sum()
}

/// Compares a model's modules, and returns their number.
fn check(model: &str, modules_with_views: &[&str]) -> usize {
    let folder = fixture("modules").join(model);
    let theirs: Value = serde_json::from_slice(&fs::read(folder.join("mem_tracker.json")).unwrap()).unwrap();
    let trace = folder.join("trace.optrace.jsonl.gz");
    let output = Command::new(memtrack()).arg("modules").arg(trace).arg("--json").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let ours: Value = serde_json::from_slice(&output.stdout).unwrap();
    let modules = ours["modules"].as_array().unwrap();
    for module in modules {
        let name = module["module"].as_str().unwrap();
        let name = if module["depth"] == 0 { "Sequential".to_owned() } else { format!("Sequential.{name}") };
        let their = &theirs["modules"][&name];
        assert!(their.is_object(), "{name}");
        assert_eq!(module["parameter_bytes"], their["parameter_mem"], "{name}");
        assert_eq!(module["buffer_bytes"], their["buffer_mem"], "{name}");
        assert_eq!(module["calls"].as_array().unwrap().len(), 2, "{name}");
        let call = &module["calls"][1];
        assert_eq!(call["input_bytes"], their["input_mem"], "{name}");
        if modules_with_views.contains(&&*name) {
            // This module returns a view, which MemTracker counts as an output, and memtrack does not.
            assert_eq!(call["output_bytes"], 0, "{name}");
        } else {
            assert_eq!(call["output_bytes"], their["output_mem"], "{name}");
        }
        let snapshot = |state: &str| &their["snapshots"][state][0]["cpu"];
        for (state, pass, moment) in MOMENTS {
            let (our, their) = (&call[pass][moment], snapshot(state));
            assert_eq!(our["allocated_bytes"], their["Total"], "{name}, {state}");
            for (category, categories) in CATEGORIES {
                assert_eq!(
                    sum(our, categories),
                    their[category].as_u64().unwrap(),
                    "{name}, {state}, {category}"
                );
            }
        }
        for (state, pass) in [("Peak-Forward", "forward"), ("Peak-Backward", "backward")] {
            let (our, their) = (&call[pass]["peak"], snapshot(state)["Total"].as_u64().unwrap());
            let peak = our["allocated_bytes"].as_u64().unwrap();
            // MemTracker measures after each operator, when the operator's temporaries have already been freed.
            let inside = sum(our, &["TEMPORARY", "UNKNOWN"]);
            assert!((their..=their + inside).contains(&peak), "{name}, {state}: {their}, {peak}, {inside}");
        }
    }
    modules.len()
}

#[test]
fn modules_agree_with_mem_tracker() {
    assert_eq!(check("mlp", &[]), 6);
    assert_eq!(check("convnet", &["Sequential.8"]), 12);
}

#[test]
fn the_tree_of_modules_is_as_deep_as_requested() {
    let trace = fixture("modules/mlp/trace.optrace.jsonl.gz");
    let text = |arguments: &[&str]| {
        let output = Command::new(memtrack()).arg("modules").arg(&trace).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let all = text(&["--wide"]);
    assert!(all.starts_with("cpu: 6 modules\n"), "{all}");
    let linear = all.lines().find(|line| line.starts_with("  2 Linear ")).unwrap();
    let words: Vec<&str> = linear.split_whitespace().collect();
    // The row shows the second call, because the optimizer had no state during the first: 4923536 bytes and more.
    assert_eq!(
        &words[2..13],
        ["1.0", "MiB", "2", "forward", "4.9", "MiB", "5.2", "MiB", "+256.0", "KiB", "OPTIMIZER_STATE"]
    );
    let one = text(&["--depth", "1"]);
    assert!(one.contains("(5 modules deeper: --depth 2)"), "{one}");
    assert!(!one.contains("Linear"), "{one}");
}
