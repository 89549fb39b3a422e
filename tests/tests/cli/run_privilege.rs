//! A program with more rights than who starts it takes no orders from the environment: no file of the caller's choice.

use crate::books::start;
use memtrack_core::cuda::run::OUTPUT;
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::record_segment_alloc;
use memtrack_tests::{child, requirements};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Nobody, and a group that nobody is not in.
const NOBODY: u32 = 65_534;
const OTHER_GROUP: u32 = 4;

/// Records a block, of no driver, and says whether it has more rights than who started it.
#[test]
#[ignore = "is run by the test below"]
#[allow(unsafe_code)]
fn says_its_rights() {
    start();
    record_segment_alloc(DeviceId(0), StreamId(0), 1 << 30, 2 << 20);
    memtrack_core::stop();
    // SAFETY: reads what the kernel said.
    println!("{}", unsafe { libc::getauxval(libc::AT_SECURE) });
}

#[test]
#[cfg_attr(
    not(programs_with_rights),
    ignore = "needs root, and a temporary folder that gives rights to programs"
)]
fn a_program_with_rights_of_its_own_writes_no_file_that_the_environment_names() {
    if !requirements::can_give_rights() {
        println!("skipped: the tests were built by root, and are not run by root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("program");
    let test = child::this_program(says_its_rights);
    // By another process: a child that another test starts meanwhile would have the file open for writing.
    child::ends_well(Command::new("cp").arg(test.get_program()).arg(&program));
    // What it said of its rights, and whether it wrote the file.
    let run = |mode: u32| {
        fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        let file = folder.path().join(format!("{mode:o}.memtrack"));
        let output = Command::new(&program)
            .args(test.get_args())
            .env(OUTPUT, &file)
            .env("MEMTRACK_RUN_COMMAND", std::process::id().to_string())
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY)
            .output();
        let said = output.map(|output| child::assert_passed(&output).text.trim().to_owned());
        (said.unwrap_or_else(|error| error.to_string()), file.exists())
    };
    std::os::unix::fs::chown(&program, None, Some(OTHER_GROUP)).unwrap();
    assert_eq!(run(0o755), ("0".to_owned(), true), "an ordinary one does as it is told");
    let privileged = run(0o2755);
    assert_eq!(privileged, ("1".to_owned(), false));
}
