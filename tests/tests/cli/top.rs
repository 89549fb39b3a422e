//! `memtrack top` as a user runs it: its output and its exit codes.

use memtrack_core::event::{Action, DeviceId, Event, ScopeId};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::{LiveBlock, Snapshot};
use memtrack_tests::memtrack;
use memtrack_tests::snapshots::{event, live, small};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("memtrack-top-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.join("run.memtrack");
        fs::write(&path, bytes).unwrap();
        path
    }

    fn recording(&self, snapshot: &Snapshot) -> PathBuf {
        self.file(&snapshot.save_to(Vec::new()).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn top(file: &Path, arguments: &[&str]) -> Output {
    Command::new(memtrack()).arg("top").arg(file).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json(file: &Path, arguments: &[&str]) -> Value {
    let output = top(file, &[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn operators_come_first_where_the_file_has_scopes() {
    let folder = Folder::new("operators");
    let file = folder.recording(&small());
    let output = top(&file, &[]);
    assert_eq!(output.status.code(), Some(0));
    let table = text(&output.stdout);
    // Events in scope 3: 1003 and 1007 bytes, both live at the end.
    let row = table.lines().find(|line| line.contains("encoder.forward.matmul")).expect(table);
    assert!(row.contains("2.0 KiB") && row.contains("25.0 %"), "{row}");
    assert!(table.contains("Top operators of host heap: 4 of 4"), "{table}");
    assert!(text(&output.stderr).lines().all(|line| line.contains("--symbols")), "{}", text(&output.stderr));
    let value = json(&file, &["-n", "1"]);
    let device = &value["devices"][0];
    assert_eq!(device["rows"].as_array().unwrap().len(), 1);
    assert_eq!((&device["rows_in_all"], &device["totals"]["requested_bytes"]), (&4.into(), &8028.into()));
}

#[test]
fn stacks_come_first_where_the_file_has_no_scopes_and_addresses_are_strings() {
    let folder = Folder::new("stacks");
    let mut snapshot = small();
    snapshot.scopes.rows.truncate(1);
    snapshot.events.scope.fill(ScopeId::NONE);
    snapshot.blocks.iter_mut().for_each(|block| block.scope = ScopeId::NONE);
    let file = folder.recording(&snapshot);
    let value = json(&file, &[]);
    assert_eq!(value["devices"][0]["by"], "stack");
    let stack = &value["devices"][0]["rows"][0]["stack"];
    assert_eq!(stack[0]["address"], "0x555500001234");
    // The module's file on this machine is not the recorded one: the frame shows the recorded build id, and a warning is printed.
    assert_eq!(stack[0]["function"], "program+0x1233 [build id 001122334455]");
    let output = top(&file, &[]);
    assert!(text(&output.stderr).contains("no names from /bin/program"));
    assert!(text(&top(&file, &["--by", "phase"]).stdout).contains("(no phase)"));
}

#[test]
fn a_device_is_picked_by_its_ordinal_and_the_host_is_the_last() {
    let folder = Folder::new("devices");
    let mut snapshot = small();
    let on_gpu = Event { device: DeviceId(0), ..event(9_000, Action::Alloc, 0x1000, 5) };
    snapshot.events.push(&on_gpu);
    snapshot.blocks.push(LiveBlock { device: DeviceId(0), ..live(&on_gpu) });
    let file = folder.recording(&snapshot);
    assert_eq!(json(&file, &[])["devices"].as_array().unwrap().len(), 2);
    let gpu = json(&file, &["--device", "0"]);
    assert_eq!(gpu["devices"][0]["totals"]["requested_bytes"], 5);
    assert_eq!(json(&file, &["--device", "1"])["devices"][0]["device"]["kind"], "host");
    let output = top(&file, &["--device", "7"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("it has: 0, 1"));
}

#[test]
fn a_cut_recording_is_reported_with_one_warning() {
    let folder = Folder::new("cut");
    let bytes = small().save_to(Vec::new()).unwrap();
    let file = folder.file(&bytes[..bytes.len() - 30]);
    let output = top(&file, &["--json"]);
    assert_eq!(output.status.code(), Some(0));
    let warning = text(&output.stderr);
    assert!(warning.lines().count() == 1 && warning.contains("bytes are lost"), "{warning}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["complete"], false);
    assert_eq!(value["devices"][0]["totals"]["requested_bytes"], 8028);
}

#[test]
fn unreadable_files_give_one_clear_line_and_exit_code_3() {
    let folder = Folder::new("bad");
    for (file, words) in [
        (folder.0.join("missing"), "No such file"),
        (folder.0.clone(), "directory"),
        (folder.0.join("empty"), "the file is empty"),
        (folder.0.join("pickle"), "not a memory snapshot"),
    ] {
        fs::write(folder.0.join("empty"), "").unwrap();
        fs::write(folder.0.join("pickle"), b"\x80\x04}\x94.").unwrap();
        let output = top(&file, &[]);
        assert_eq!(output.status.code(), Some(3), "{words}");
        let line = text(&output.stderr);
        assert!(line.lines().count() == 1 && line.contains(words), "{line}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(top(Path::new("x"), &["--by", "colour"]).status.code(), Some(2));
}

#[test]
fn invalid_counts_are_explained() {
    for arguments in
        [["top", "x", "-n", "-1"], ["peak", "x", "--frames", "-1"], ["tracker", "x", "--top", "few"]]
    {
        let output = Command::new(memtrack()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains("expected a whole number, 0 or more") && !stderr.contains("tip:"),
            "{stderr}"
        );
    }
    let output = top(Path::new("x"), &["--by", "colour"]);
    assert!(
        text(&output.stderr).contains("operator, module, line, stack, python, phase, frame"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_dash_reads_standard_input() {
    let mut child = Command::new(memtrack())
        .args(["top", "-", "--by", "module", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&small().save_to(Vec::new()).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["devices"][0]["by"], "module");
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let folder = Folder::new("pipe");
    let file = folder.recording(&small());
    let mut child = Command::new(memtrack())
        .args(["top", "--json"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}
