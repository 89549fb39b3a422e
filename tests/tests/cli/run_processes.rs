//! `memtrack run` records all processes of a run into one file: which process reports are about, `--process`, `--all`, and
//! `memtrack processes`.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_tests::memtrack;
use memtrack_tests::run::{Bench, Waiting, compile_c, load_each, stderr_text};
use memtrack_tests::time::wait_for;
use serde_json::Value;
use std::fs::{self, File};
use std::process::{Command, Output, Stdio};

const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

fn verb(bench: &Bench, arguments: &[&str]) -> Output {
    verb_of(bench, arguments, Stdio::null())
}

fn verb_of(bench: &Bench, arguments: &[&str], input: Stdio) -> Output {
    let mut command = Command::new(memtrack());
    command.args(arguments).current_dir(bench.folder.path()).stdin(input);
    command.output().expect("memtrack can be started")
}

/// Returns the answer of `memtrack processes`.
fn processes(bench: &Bench, name: &str) -> Value {
    answer(&verb(bench, &["processes", "--json", name]))
}

fn answer(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr_text(output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the peak bytes of device 0 in the list of devices of a JSON answer, or 0 if the list lacks the device.
fn device_peak(devices: &Value) -> u64 {
    let device = devices.as_array().unwrap().iter().find(|device| device["device"]["number"] == 0);
    device.map_or(0, |device| device["peak_bytes"].as_u64().unwrap())
}

#[test]
fn reports_are_about_the_program_behind_a_shell() {
    let bench = Bench::new();
    let script = format!("'{PLAIN}' work; true");
    let output = bench.run(&["--host", "-o", "run", "--", "sh", "-c", &script]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_eq!(bench.files(), ["run"]);
    let found = processes(&bench, "run");
    let rows = found["processes"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{found:#}");
    let (shell, program) = (&rows[0], &rows[1]);
    assert_eq!((&shell["main"], &program["main"]), (&Value::Bool(false), &Value::Bool(true)));
    assert_eq!((&program["parent"], &program["forked"]), (&shell["process"], &Value::Bool(false)));
    assert_eq!((&shell["end"], &shell["exit_code"]), (&"exit".into(), &0.into()));
    assert_eq!(program["command_line"], serde_json::json!([PLAIN, "work"]));
    assert_eq!((device_peak(&program["devices"]), device_peak(&found["together"])), (6 << 20, 6 << 20));
    assert_eq!(found["complete"], true);

    let pid = program["process"].to_string();
    let top = verb(&bench, &["summary", "run"]);
    let hint = format!(
        "memtrack: run: about process {pid}, cuda_plain work, of 2; --process PID or --all selects others"
    );
    assert!(stderr_text(&top).contains(&hint), "{}", stderr_text(&top));
    assert!(String::from_utf8_lossy(&top.stdout).contains("6.0 MiB requested"), "{top:?}");
    for chosen in [pid.as_str(), "cuda_plain", PLAIN] {
        let output = verb(&bench, &["summary", "run", "--process", chosen]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&top.stdout), "{chosen}");
    }
    let output = verb(&bench, &["summary", "run", "--process", "sh"]);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("Device 0"), "{output:?}");

    let output = verb(&bench, &["summary", "run", "--process", "elsewhere"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr_text(&output);
    assert!(
        text.contains("no process with the id or name elsewhere; the run has ") && text.contains(&pid),
        "{text}"
    );
}

#[test]
fn all_processes_together_are_reported_on_one_clock() {
    let bench = Bench::new();
    assert!(bench.run(&["-o", "run", "--", PLAIN, "fork"]).status.success());
    let found = processes(&bench, "run");
    let peaks: Vec<u64> =
        found["processes"].as_array().unwrap().iter().map(|row| device_peak(&row["devices"])).collect();
    assert_eq!(peaks, [6 << 20, 5 << 20], "{found:#}");
    // The child allocates while its parent, which holds 2 MiB, waits for it. If the collector was late, the joint peak
    // is known only as a range.
    let device = &found["together"][0];
    let least = device["peak_bytes_error"]["low"].as_f64().unwrap_or(device_peak(&found["together"]) as f64);
    assert!(least >= f64::from(6 << 20) && device_peak(&found["together"]) <= 7 << 20, "{found:#}");
    let summary = answer(&verb(&bench, &["summary", "--json", "run", "--all"]));
    let device = &summary["devices"].as_array().unwrap()[0];
    assert_eq!(device["peak"]["requested_bytes"], 7 << 20, "{device:#}");
    // Nothing is live when all processes have ended.
    assert_eq!(device["live_at_end_bytes"], 0);
    let all = Snapshot::open(
        bench.path("run"),
        LoadOptions::new().process(memtrack_core::snapshot::recording::ProcessChoice::All),
    );
    let all = all.unwrap().snapshot;
    let text = verb(&bench, &["top", "run", "--all", "--at", "peak"]);
    assert!(text.status.success(), "{}", stderr_text(&text));
    assert!(all.blocks.is_empty() && all.device_ids().contains(&DeviceId(0)));
}

/// The sum over some processes is never shown as the sum over all.
#[test]
fn sums_over_all_processes_are_lower_limits_if_some_are_not_recorded() {
    let bench = Bench::new();
    let limits = ["--max-processes", "1", "-o", "run", "--", PLAIN, "fork_many", "3"];
    assert!(bench.run(&limits).status.success());
    let output = verb(&bench, &["processes", "run"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("2 more processes are not recorded\n"), "{text}");
    assert!(text.contains("Device 0, all together: at least "), "{text}");
    let found = processes(&bench, "run");
    assert_eq!((&found["complete"], &found["unrecorded"]), (&false.into(), &2.into()));
    let check = |more: &[&str]| verb(&bench, &[&["check", "run", "--max-peak", "1TiB"], more].concat());
    assert_eq!(check(&["--all"]).status.code(), Some(1), "it may be more than the limit");
    assert_eq!(check(&[]).status.code(), Some(0), "the program is recorded");
}

#[test]
fn a_cut_run_is_reported_by_every_verb() {
    let bench = Bench::new();
    assert!(bench.run(&["-o", "run", "--", PLAIN, "fork"]).status.success());
    let whole = fs::read(bench.path("run")).unwrap();
    // Three files: cut off before the end mark, cut off in the middle, and with a changed byte.
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x41;
    for (name, content) in
        [("end", &whole[..whole.len() - 20]), ("half", &whole[..middle]), ("damaged", &damaged)]
    {
        fs::write(bench.path(name), content).unwrap();
        for arguments in [["summary", name].as_slice(), &["summary", name, "--all"], &["processes", name]] {
            let output = verb(&bench, arguments);
            assert!(stderr_text(&output).contains("memtrack: warning: "), "{arguments:?}: {output:?}");
        }
        assert_eq!(processes(&bench, name)["complete"], name == "end", "both processes had ended");
    }
    fs::write(bench.path("start"), &whole[..100]).unwrap();
    assert_eq!(verb(&bench, &["processes", "start"]).status.code(), Some(3));
}

#[test]
fn diff_and_check_compare_processes_with_the_same_command_line() {
    let bench = Bench::new();
    for name in ["before", "after"] {
        assert!(bench.run(&["-o", name, "--", PLAIN, "fork"]).status.success());
    }
    let child = processes(&bench, "before")["processes"][1]["process"].to_string();
    let diff = answer(&verb(&bench, &["diff", "--json", "before", "after", "--process", &child]));
    assert_eq!(diff["different"], false, "{diff:#}");
    let child = processes(&bench, "after")["processes"][1]["process"].to_string();
    let output =
        verb(&bench, &["check", "after", "--against", "before", "--process", &child, "--tolerance", "0"]);
    assert!(output.status.success(), "{} {output:?}", stderr_text(&output));
    let fork = verb(&bench, &["summary", "after", "--process", "fork of cuda_plain fork"]);
    assert!(String::from_utf8_lossy(&fork.stdout).contains("5.0 MiB requested"), "{fork:?}");
}

#[test]
fn a_run_is_read_from_a_pipe_and_compressed() {
    let bench = Bench::new();
    assert!(bench.run(&["-o", "run", "--", PLAIN, "fork"]).status.success());
    let expected = processes(&bench, "run");
    let input = || File::open(bench.path("run")).unwrap().into();
    assert_eq!(answer(&verb_of(&bench, &["processes", "--json", "-"], input())), expected);
    let packed = Command::new("gzip").args(["-k", "run"]).current_dir(bench.folder.path()).status();
    assert!(packed.unwrap().success());
    assert_eq!(processes(&bench, "run.gz"), expected);
    let child = expected["processes"][1]["process"].to_string();
    let of_file = verb(&bench, &["summary", "run", "--process", &child]);
    let of_pipe = verb_of(&bench, &["summary", "-", "--process", &child], input());
    let of_packed = verb(&bench, &["summary", "run.gz", "--process", &child]);
    assert!(of_file.status.success() && !of_file.stdout.is_empty());
    assert_eq!((&of_pipe.stdout, &of_packed.stdout), (&of_file.stdout, &of_file.stdout));
}

#[test]
fn other_files_have_one_process() {
    let bench = Bench::new();
    assert!(bench.run(&["-o", "run", "--", PLAIN, "fork"]).status.success());
    for target in ["one.memtrack", "one.pickle"] {
        assert!(verb(&bench, &["convert", "run", target]).status.success());
    }
    let found = processes(&bench, "one.memtrack");
    assert_eq!(found["processes"].as_array().unwrap().len(), 1);
    assert_eq!(device_peak(&found["together"]), 6 << 20);
    let pid = found["processes"][0]["process"].to_string();
    for chosen in [pid.as_str(), "cuda_plain"] {
        assert!(verb(&bench, &["summary", "one.memtrack", "--process", chosen]).status.success(), "{chosen}");
    }
    for (file, words) in [
        ("one.memtrack", "is the recording of one process, "),
        ("one.pickle", "is a snapshot of one process"),
    ] {
        let output = verb(&bench, &["summary", file, "--process", "1"]);
        assert_eq!(output.status.code(), Some(2), "{file}");
        assert!(stderr_text(&output).contains(words), "{}", stderr_text(&output));
    }
    let output = verb(&bench, &["processes", "one.pickle"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr_text(&output));
}

#[test]
fn a_run_is_readable_while_it_is_recorded() {
    let bench = Bench::new();
    let waiting = Waiting::new(&bench, &["-o", "run", "--", PLAIN, "work_until", "end"]);
    wait_for("the work is recorded", || {
        // The file can exist before its first bytes have been written.
        let output = verb(&bench, &["processes", "--json", "run"]);
        output.status.success() && device_peak(&answer(&output)["together"]) == 6 << 20
    });
    let found = processes(&bench, "run");
    assert_eq!((&found["processes"][0]["end"], &found["complete"]), (&"running".into(), &false.into()));
    fs::write(bench.path("end"), "").unwrap();
    assert!(waiting.end().status.success());
    let found = processes(&bench, "run");
    assert_eq!((&found["processes"][0]["exit_code"], &found["complete"]), (&0.into(), &true.into()));
}

/// Three children, each with one large block that stays live, and with enough events that a small file continues in many parts.
/// They run one after the other, so that each part has processes that run, that have ended, and that have not begun.
const FORKS: &str = "#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>
int main(void) {
    for (int child = 1; child <= 3; child++) {
        if (fork() == 0) {
            char *volatile kept = malloc(child * 33000000);
            for (int i = 0; i < (child == 3 ? 700000 : 50000); i++) { char *volatile block = malloc(70000 + i % 1000 * 64); free(block); if (i % 100 == 0) usleep(500); }
            (void)kept;
            _exit(child);
        }
        wait(NULL);
    }
    return 0;
}";

#[test]
fn a_limited_recording_keeps_the_live_blocks_of_each_process() {
    /// The smallest value that `--max-bytes` accepts.
    const MAX_BYTES: u64 = 1 << 20;
    let bench = Bench::new();
    compile_c(bench.folder.path(), FORKS, &["-o", "forks"]);
    let output = bench.run(&["--host", "--max-bytes", &MAX_BYTES.to_string(), "-o", "run", "--", "./forks"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let parts: Vec<String> = bench.files().into_iter().filter(|name| name.starts_with("run")).collect();
    assert!(parts.len() > 2, "{parts:?}");
    let bytes: u64 = parts.iter().map(|name| fs::metadata(bench.path(name)).unwrap().len()).sum();
    assert!(bytes <= MAX_BYTES, "{bytes}");
    let found = processes(&bench, "run");
    let rows = found["processes"].as_array().unwrap();
    let forks = rows.iter().filter(|row| row["forked"] == true);
    let codes: Vec<Option<u64>> = forks.map(|row| row["exit_code"].as_u64()).collect();
    assert_eq!(codes.len(), 3, "{found:#}");
    // An exit code is unknown if the parent waited for the process before the collector opened it, or on an old kernel.
    assert!((1..).zip(&codes).all(|(number, code)| code.is_none_or(|code| code == number)), "{codes:?}");
    let gone = rows.iter().filter(|row| row["removed"] == true);
    assert!(gone.count() >= 1 && found["complete"] == false, "{found:#}");
    let first = verb(&bench, &["summary", "run", "--process", &rows[0]["process"].to_string()]);
    assert!(stderr_text(&first).contains("is in parts that were removed"), "{}", stderr_text(&first));
    assert!(!stderr_text(&first).contains("recording was not on"), "{}", stderr_text(&first));
    // The newest child's recording is complete. It includes the large block, whose allocation was in a part that was
    // removed.
    let last = rows.last().unwrap()["process"].to_string();
    let open = LoadOptions::new().process(memtrack_core::snapshot::recording::ProcessChoice::Named(last));
    let last = Snapshot::open(bench.path("run"), open).unwrap();
    assert!(last.report.unwrap().complete && last.snapshot.meta.earlier_parts > 0);
    let large = last.snapshot.blocks.iter().filter(|block| block.size_bytes >= 3 * 33_000_000);
    assert_eq!(large.count(), 1);
    assert!(load_each(&bench.path("run")).len() >= 3);
}
