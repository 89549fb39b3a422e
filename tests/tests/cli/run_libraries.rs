//! `memtrack run --host` and libraries with thread-local variables: the loader calls `malloc` for these variables while a
//! thread accesses one, and the recorder must not call the loader again. In a program with an auditor, accesses to memtrack's
//! own thread-local variables would call the loader too.

use memtrack_core::event::DeviceId;
use memtrack_tests::child::ends_well;
use memtrack_tests::run::{Bench, compile_c, load};
use std::fs;

const PROGRAM: &str = include_str!("../../src/c/new_libraries.c");
const LIBRARY: &str =
    "__thread int value = 7; __thread char room[4000]; int *address(void) { room[3] = 1; return &value; }";

#[test]
fn threads_allocate_after_libraries_were_loaded() {
    let bench = Bench::new();
    let folder = bench.folder.path();
    compile_c(folder, PROGRAM, &["-o", "new_libraries"]);
    compile_c(folder, LIBRARY, &["-shared", "-fPIC", "-o", "library.so"]);
    for number in 0..120 {
        fs::copy(folder.join("library.so"), folder.join(format!("copy{number}.so"))).unwrap();
    }
    // The error that this test checks for made about one run in three fail.
    for _ in 0..4 {
        let recording = ["--host", "--force", "-o", "recording", "--", "./new_libraries", "."];
        let output = ends_well(bench.command().args(recording));
        assert_eq!(output.stdout, b"well\n");
    }
}

/// In a program with an auditor, the loader puts the variables of the preloaded libraries on the heap if it can.
#[test]
fn a_program_with_an_auditor_is_recorded() {
    let bench = Bench::new();
    compile_c(bench.folder.path(), AUDITOR, &["-shared", "-fPIC", "-o", "auditor.so"]);
    let auditor = format!("LD_AUDIT={}", bench.path("auditor.so").display());
    let recording = ["--host", "-o", "recording", "--", "env", &auditor, "/bin/echo", "well"];
    let output = ends_well(bench.command().args(recording));
    assert_eq!(output.stdout, b"well\n");
    let (snapshot, report) = load(&bench.path("recording"));
    assert!(report.complete && snapshot.device_ids().contains(&DeviceId::HOST));
    assert!(snapshot.meta.program.ends_with("echo"), "{}", snapshot.meta.program);
}

const AUDITOR: &str = include_str!("../../monitored/guest/audited/audit.c");
