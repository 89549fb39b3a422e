//! How `memtrack tracker` fails: one clear line, the right exit code, never a panic.

use memtrack_tests::{memtrack, oracle};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the exit code and the only line on standard error.
fn refusal(stats: &Path) -> (i32, String) {
    let output = Command::new(memtrack()).arg("tracker").arg(stats).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(output.stdout.is_empty());
    assert_eq!(line.lines().count(), 1, "{line}");
    (output.status.code().unwrap(), line)
}

#[test]
fn a_missing_file_is_named() {
    let (code, line) = refusal(Path::new("/no/such/stats.pickle"));
    assert_eq!(code, 3);
    assert!(line.starts_with("memtrack: cannot read /no/such/stats.pickle: "), "{line}");
}

#[test]
fn files_without_statistics_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stats.pickle");
    for (content, expected) in [
        (&b""[..], "the file is empty"),
        (b"MEMTRACK\x01\0\0\0", "a recording of memtrack, for memtrack summary, top"),
        (b"\x80\x04}", "ends too early"),
        (b"{\"segments\": []}", "a PyTorch snapshot, for memtrack summary"),
        (b"\x80\x04}\x94\x8c\x08segments\x94]\x94s.", "this is a PyTorch snapshot"),
        (b"\x1f\x8b\x08 and no more", "gzip"),
        (b"\x80\x04]\x94.", "a list"),
        (b"\x80\x04}\x94.", "memories_allocated"),
    ] {
        fs::write(&path, content).unwrap();
        let (code, line) = refusal(&path);
        assert_eq!(code, 3);
        assert!(line.contains(expected), "{line}");
    }
    assert_eq!(refusal(folder.path()).0, 3);
}

#[test]
fn a_run_without_records_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.pickle");
    memtrack_core::tracker::TrackerStats::default().save_stats(&path).unwrap();
    let (code, line) = refusal(&path);
    assert_eq!(code, 3);
    assert!(line.contains("no operator was recorded"), "{line}");
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [&["tracker"][..], &["tracker", "a", "--top", "many"], &["no-such-verb"], &[]] {
        let output = Command::new(memtrack()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let stats = oracle("memory_tracker/encoder/stats.pickle");
    for more in [&[][..], &["--json", "--top", "1000"]] {
        let child = Command::new(memtrack())
            .arg("tracker")
            .arg(&stats)
            .args(more)
            .stdout(writer.try_clone().unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let stats = oracle("memory_tracker/mlp/stats.pickle");
    let output = Command::new(memtrack()).arg("tracker").arg(stats).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}
