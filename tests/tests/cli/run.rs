//! `memtrack run` on programs that do not link memtrack, with the mock driver: their recordings, and unchanged behaviour of
//! programs without CUDA.

use memtrack_tests::run::{Bench, Waiting, assert_work, count_stderr_lines, stderr_text};
use memtrack_tests::{memtrack, mock_cuda};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

#[test]
fn a_program_is_recorded_and_its_exit_code_passed_on() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "a.memtrack", "--", PLAIN, "exit", "5"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr_text(&output));
    assert_work(&bench.path("a.memtrack"), true);
    assert_eq!(count_stderr_lines(&output), 1, "{}", stderr_text(&output));
    // The stack begins in the program, not in memtrack's library.
    let top = Command::new(memtrack())
        .args(["top", "a.memtrack", "--by", "stack", "--json"])
        .current_dir(bench.folder.path())
        .output()
        .expect("memtrack can be started");
    let top: serde_json::Value = serde_json::from_slice(&top.stdout).expect("JSON");
    let text = top.to_string();
    assert!(text.contains("cuda_plain::client::alloc") && !text.contains("preload-"), "{text}");
}

#[test]
fn without_a_name_the_file_is_named_after_the_program() {
    let bench = Bench::new();
    assert!(bench.run(&[PLAIN, "work"]).status.success());
    let files = bench.files();
    assert!(files.len() == 1 && files[0].starts_with("memtrack-cuda_plain-"), "{files:?}");
    assert_work(&bench.path(&files[0]), true);
}

/// The summary distinguishes cached memory from leaks and from other processes' memory, both for snapshots and for recordings,
/// however the program ends.
#[test]
fn a_summary_reports_cached_and_unrecorded_memory() {
    let bench = Bench::new();
    let other_memory =
        [("MEMTRACK_MOCK_OTHER_BYTES", "1073741824"), ("MEMTRACK_MOCK_CONTEXT_BYTES", "104857600")];
    let mut command = bench.command();
    command.args(["-o", "ended", "--snapshot-on", "exit", "--", PLAIN, "pools"]);
    let ended = command.envs(other_memory).output().expect("memtrack can be started");
    assert!(ended.status.success(), "{}", stderr_text(&ended));
    let killed = bench.run_until_recorded(
        "killed",
        &["--snapshot-on", "exit"],
        &[PLAIN, "signal", "9"],
        &other_memory,
    );
    assert_eq!(killed.status.code(), Some(137), "{}", stderr_text(&killed));
    let summary = |arguments: &[&str]| {
        let mut command = Command::new(memtrack());
        let output = command.arg("summary").args(arguments).current_dir(bench.folder.path()).output();
        String::from_utf8(output.expect("memtrack can be started").stdout).expect("text")
    };
    for file in ["ended", "ended.1.pickle"] {
        let text = summary(&[file]);
        for words in [
            "1.13 GiB of 16.00 GiB in use on the device",
            "7.0 MiB recorded here, 28.0 MiB cached by the driver's pools, 1.10 GiB not recorded",
            "32.0 MiB reserved, 4.0 MiB of them in use; at most 32.0 MiB and 24.0 MiB",
            "28.0 MiB of it are cache, not a leak",
        ] {
            assert!(text.contains(words), "{file}: {words}: {text}");
        }
    }
    for file in ["ended", "ended.1.pickle", "killed"] {
        let json: serde_json::Value = serde_json::from_str(&summary(&[file, "--json"])).expect("JSON");
        let readings = json["devices"][0]["driver"].as_array().expect("a list");
        assert!(!readings.is_empty(), "{file}: {json}");
        for reading in readings {
            assert_eq!(reading["untracked_bytes"], (1024 + 100) << 20, "{file}: {reading}");
        }
    }
}

#[test]
fn a_signal_requests_a_snapshot_and_others_reach_the_program() {
    let bench = Bench::new();
    let waiting = Waiting::new(
        &bench,
        &["-o", "by_signal", "--snapshot-on", "signal", "--", PLAIN, "wait_for_a_signal"],
    );
    waiting.request_snapshot(&bench.path("by_signal.1.pickle"));
    waiting.send("TERM");
    let status = waiting.end().status;
    assert_eq!((status.code(), status.signal()), (Some(128 + 15), None));
}

#[test]
fn a_program_that_handles_the_signal_keeps_its_handler() {
    for when in ["before", "after"] {
        let bench = Bench::new();
        let arguments = ["-o", "handler", "--snapshot-on", "signal", "--", PLAIN, "own_handler", when];
        let mut waiting = Waiting::new(&bench, &arguments);
        waiting.send("USR2");
        assert_eq!(waiting.line(), "handled", "{when}");
        let output = waiting.end();
        assert!(output.status.success(), "{when}: {}", stderr_text(&output));
        let text = stderr_text(&output);
        assert!(text.contains("SIGUSR2 takes no snapshot: the program handles the signal itself"), "{text}");
        assert_eq!(bench.files(), ["handler"], "{when}");
        assert_work(&bench.path("handler"), true);
    }
}

/// One test per program. The build script detects which of the optional programs are installed.
mod programs_without_cuda_behave_the_same {
    use super::*;

    fn assert_same_behavior(program: &[&str]) {
        let bench = Bench::new();
        let mut alone = mock_cuda::with_driver(program[0], bench.driver.path());
        let alone = alone.args(&program[1..]).current_dir(bench.folder.path()).output();
        let alone = alone.expect("the program is there");
        let output = bench.run(&[&["--"], program].concat());
        assert_eq!(output.stdout, alone.stdout, "{program:?}");
        assert_eq!(output.status.code(), alone.status.code(), "{program:?}");
        let extra = stderr_text(&output).replacen(&stderr_text(&alone), "", 1);
        assert!(extra.lines().count() == 1 && extra.contains("nothing was written"), "{program:?}: {extra}");
        assert!(bench.files().is_empty(), "{:?}", bench.files());
    }

    #[test]
    fn ls() {
        assert_same_behavior(&["ls", "/"]);
    }

    #[test]
    #[cfg_attr(not(git), ignore = "needs git")]
    fn git() {
        assert_same_behavior(&["git", "--version"]);
    }

    #[test]
    #[cfg_attr(not(python3), ignore = "needs python3")]
    fn python() {
        assert_same_behavior(&["python3", "-c", "import ctypes, json, threading; print(6 * 7)"]);
    }

    #[test]
    fn cargo() {
        assert_same_behavior(&["cargo", "--version"]);
    }

    #[test]
    #[cfg_attr(not(bash), ignore = "needs bash")]
    fn bash() {
        assert_same_behavior(&["bash", "-c", "echo one two | tr ' ' '\\n' | sort -r; (exit 3)"]);
    }

    #[test]
    fn cuda_plain() {
        assert_same_behavior(&[PLAIN, "nothing"]);
    }
}

#[test]
fn programs_that_cannot_be_run_give_one_line_and_the_shells_exit_code() {
    let bench = Bench::new();
    let write = |name: &str, content: &[u8], mode: u32| {
        fs::write(bench.path(name), content).expect("it can be written");
        fs::set_permissions(bench.path(name), fs::Permissions::from_mode(mode)).expect("its mode can be set");
    };
    write("plain.txt", b"no program", 0o644);
    // Executables for this architecture: a static one, which has no loader, and one with musl's loader.
    let machine = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let mut elf = vec![0_u8; 64];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    elf[18] = machine;
    write("static", &elf, 0o755);
    (elf[32], elf[54], elf[56]) = (64, 56, 1);
    elf.resize(64 + 56, 0);
    let name = b"/lib/ld-musl-x86_64.so.1\0";
    (elf[64], elf[64 + 8], elf[64 + 32]) = (3, 120, name.len() as u8);
    elf.extend(name);
    write("musl", &elf, 0o755);
    write("orphan", b"#! /no/such/interpreter -x\nprint(1)\n", 0o755);
    write("from_windows", b"#!/bin/sh\r\necho 1\r\n", 0o755);
    // A script without a `#!` line names no interpreter, and neither a shell nor memtrack may run it with a guessed one.
    write("text", b"echo 1\n", 0o755);
    let cases: [(&[&str], i32, &str); 11] = [
        (&["no-such-program"], 127, "not found"),
        (&["./no-such-program"], 127, "not found"),
        (&["./plain.txt"], 126, "no permission"),
        (&["/"], 126, "folder"),
        (&["./static"], 126, "statically"),
        (&["./musl"], 126, "musl"),
        (&["./orphan"], 126, "./orphan: its interpreter /no/such/interpreter does not exist"),
        (&["./from_windows"], 126, "its interpreter /bin/sh\\r does not exist"),
        (&["./text"], 126, "./text: is not an executable for this system, and has no `#!` line"),
        (&["-o", "no/such/folder", "ls"], 126, "cannot write"),
        (&["-o", "plain.txt", "ls"], 2, "--force"),
    ];
    for (arguments, code, word) in cases {
        let output = bench.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr_text(&output));
        assert!(
            stderr_text(&output).lines().count() == 1 && stderr_text(&output).contains(word),
            "{}",
            stderr_text(&output)
        );
        assert!(output.stdout.is_empty(), "{arguments:?} ran");
    }
    let output = bench.run(&["-o", "plain.txt", "--force", "--", PLAIN, "work"]);
    assert!(output.status.success());
    assert_work(&bench.path("plain.txt"), true);
}
