//! `memtrack run --host` and libraries with thread-local variables: the loader asks `malloc` for room for them while a
//! thread asks it for a variable, and recording must not ask it again.

use memtrack_tests::run::{Bench, compile_c};
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

const PROGRAM: &str = include_str!("../../src/c/new_libraries.c");
const LIBRARY: &str =
    "__thread int value = 7; __thread char room[4000]; int *address(void) { room[3] = 1; return &value; }";

#[test]
fn threads_take_memory_after_libraries_were_loaded() {
    let bench = Bench::new();
    let folder = bench.folder.path();
    compile_c(folder, PROGRAM, &["-o", "new_libraries"]);
    compile_c(folder, LIBRARY, &["-shared", "-fPIC", "-o", "library.so"]);
    for number in 0..120 {
        fs::copy(folder.join("library.so"), folder.join(format!("copy{number}.so"))).unwrap();
    }
    // It went wrong in every third run.
    for _ in 0..4 {
        let mut program = bench
            .command()
            .args(["--host", "--force", "-o", "recording", "--", "./new_libraries", "."])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while program.try_wait().unwrap().is_none() {
            if start.elapsed() > Duration::from_secs(120) {
                program.kill().unwrap();
                panic!("it hangs");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = program.wait_with_output().unwrap();
        assert!(output.status.success() && output.stdout == b"well\n", "{output:?}");
    }
}
