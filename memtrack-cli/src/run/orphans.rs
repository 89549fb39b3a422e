//! Finds the program of a command that was killed before it reported which process it had started.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the process id of the oldest process whose environment has this variable with this value; `None` if there is none.
/// Skips the processes of other users, whose environments cannot be read.
pub(super) fn oldest_with(variable: &str, value: &Path) -> Option<u32> {
    let mut expected = variable.as_bytes().to_vec();
    expected.push(b'=');
    expected.extend_from_slice(value.as_os_str().as_bytes());
    let has_variable = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|entry| entry == expected)
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| OsStr::to_str(&entry.file_name())?.parse::<u32>().ok());
    pids.filter(has_variable).filter_map(|pid| Some((start_ticks(pid)?, pid))).min().map(|(_, pid)| pid)
}

/// Returns when a process started, in ticks of the system's clock since the machine was booted.
fn start_ticks(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain spaces. The start time is the 22nd field; the third one follows the name.
    status.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn the_oldest_process_with_the_variable_is_found() {
        let value = format!("/proc/{}/fd/7", std::process::id());
        let value = Path::new(&value);
        let start = |value: &Path| {
            let mut command = Command::new("cat");
            command.env("MEMTRACK_ORPHAN", value).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            // The environment can be read once the program runs.
            child.stdin.as_mut().unwrap().write_all(b"1").unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            child
        };
        assert_eq!(oldest_with("MEMTRACK_ORPHAN", value), None);
        let mut children = [start(Path::new("/other")), start(value)];
        assert_eq!(oldest_with("MEMTRACK_ORPHAN", value), Some(children[1].id()));
        assert_eq!(oldest_with("MEMTRACK_ORPHA", value), None);
        for child in &mut children {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        assert_eq!(oldest_with("MEMTRACK_ORPHAN", value), None);
        assert!(start_ticks(std::process::id()).is_some_and(|ticks| ticks > 0));
    }
}
