//! A program with more rights than its caller ignores memtrack's environment variables: it does not open the shared memory that
//! they name.

use crate::books::start;
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::record_segment_alloc;
use memtrack_tests::{child, memtrack, requirements};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The user `nobody`, and a group that this user is not in.
const NOBODY: u32 = 65_534;
const OTHER_GROUP: u32 = 4;

/// Records a block without a driver, and prints whether the process has more rights than its caller.
#[test]
#[ignore = "is run by the test below"]
#[allow(unsafe_code)]
fn prints_at_secure() {
    start();
    record_segment_alloc(DeviceId(0), StreamId(0), 1 << 30, 2 << 20);
    memtrack_core::stop();
    // SAFETY: reads a value that the kernel passed to the process.
    println!("{}", unsafe { libc::getauxval(libc::AT_SECURE) });
}

#[test]
#[cfg_attr(
    not(programs_with_rights),
    ignore = "needs root, and a temporary folder that gives rights to programs"
)]
fn a_privileged_program_is_not_recorded() {
    if !requirements::can_give_rights() {
        println!("skipped: the tests were built by root, and are not run by root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("program");
    let test = child::this_program(prints_at_secure);
    // Copied by a separate process: if this process wrote the file, a child that another test starts meanwhile would inherit the
    // descriptor, and a file that is open for writing cannot be executed.
    child::ends_well(Command::new("cp").arg(test.get_program()).arg(&program));
    let command = folder.path().join("memtrack");
    child::ends_well(Command::new("cp").arg(memtrack()).arg(&command));
    // Runs the program with this mode under `memtrack run`; returns its output, and whether it was recorded.
    let run = |mode: u32| {
        fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        let file = folder.path().join(format!("{mode:o}.memtrack"));
        let output = Command::new(&command)
            .args(["run", "-o"])
            .arg(&file)
            .arg("--")
            .arg(&program)
            .args(test.get_args())
            .env("XDG_CACHE_HOME", folder.path().join(format!("cache{mode:o}")))
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY)
            .output();
        let printed = output.map(|output| child::assert_passed(&output).text.trim().to_owned());
        (printed.unwrap_or_else(|error| error.to_string()), file.exists())
    };
    std::os::unix::fs::chown(&program, None, Some(OTHER_GROUP)).unwrap();
    assert_eq!(run(0o755), ("0".to_owned(), true), "an unprivileged program is recorded");
    let privileged = run(0o2755);
    assert_eq!(privileged, ("1".to_owned(), false));
}
