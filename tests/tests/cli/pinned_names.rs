//! The name of pinned host memory in reports on a recording and on the PyTorch snapshot made from it.
#![cfg(target_os = "linux")]

use memtrack_tests::{memtrack, mock_cuda};
use std::process::{Command, Output};

const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Every report prints the name, and accepts it as the value of `--device`. A replay omits pinned memory.
#[test]
fn pinned_memory_has_one_name() {
    let (folder, drivers) = (tempfile::tempdir().unwrap(), mock_cuda::driver_dir());
    let recorded = mock_cuda::with_driver(memtrack(), drivers.path())
        .args(["run", "-o", "a.memtrack", "--", PLAIN, "work"])
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.path())
        .status();
    assert!(recorded.expect("memtrack can be started").success());
    let memtrack = |arguments: &[&str]| -> Output {
        let mut command = Command::new(memtrack());
        command.args(arguments).current_dir(folder.path()).output().expect("memtrack can be started")
    };
    assert!(memtrack(&["convert", "a.memtrack", "a.pickle"]).status.success());
    for file in ["a.memtrack", "a.pickle"] {
        for (verb, title) in [
            (&["summary"][..], "Pinned host memory\n"),
            (&["peak"], "Highest requested of pinned host memory: 64.0 KiB requested"),
            (&["top", "--by", "size"], "Top sizes of pinned host memory: "),
        ] {
            let of = |device: &[&str]| memtrack(&[verb, &[file], device].concat());
            let all = of(&[]);
            let all = String::from_utf8_lossy(&all.stdout);
            assert!(all.lines().any(|line| format!("{line}\n").starts_with(title)), "{verb:?} {file}: {all}");
            assert!(!all.contains("6553"), "{verb:?} {file}: {all}");
            for name in ["pinned", "Pinned host memory"] {
                let one = of(&["--device", name]);
                assert!(
                    String::from_utf8_lossy(&one.stdout).starts_with(title),
                    "{verb:?}: {}",
                    stderr(&one)
                );
            }
        }
        // All verbs and file formats use the same name.
        let numbered = |verb: &str, more: &[&str]| {
            let output = memtrack(&[&[verb, file, "--json", "--device", "pinned"], more].concat());
            serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["devices"][0]["device"]
                .clone()
        };
        for verb in [numbered("summary", &[]), numbered("peak", &[]), numbered("top", &["--by", "size"])] {
            let expected =
                serde_json::json!({"number": null, "kind": "pinned", "name": "pinned host memory"});
            assert_eq!(verb, expected, "{file}");
        }
        let replay = memtrack(&["replay", file]);
        let replayed = String::from_utf8_lossy(&replay.stdout);
        assert!(
            replayed.contains("calls of the driver, one for each block") && !replayed.contains("Pinned"),
            "{replayed}"
        );
        assert_eq!(memtrack(&["replay", file, "--device", "pinned"]).status.code(), Some(2));
        let host = memtrack(&["peak", file, "--device", "host"]);
        assert_eq!(host.status.code(), Some(2));
        assert!(stderr(&host).contains("the file has no host heap; it has: 0, "), "{}", stderr(&host));
        assert!(stderr(&host).contains(" (pinned)"), "{}", stderr(&host));
    }
}
