//! `memtrack run --host`: CPython's objects, which its own allocator takes from arenas.

use memtrack_core::event::DeviceId;
use memtrack_tests::run::{Bench, compile_c, load, load_each, stderr_text};
use std::path::PathBuf;
use std::process::Command;

/// Keeps a number of objects of 24 bytes, for which pymalloc uses 32, and ends without freeing them. Frees as many blocks and
/// more before that.
const KEEP: &str = "
import os, sys
count = int(sys.argv[1])
kept = [None] * 400_000
for _ in range(2):
    kept[:count] = [float(number) for number in range(count)]
del sys.argv[:]
os._exit(0)
";
const OBJECTS: u64 = 200_000;
const OBJECT_BYTES: u64 = 24;

/// The bytes and blocks of the host heap that were live at the end of a process.
fn live(snapshot: &memtrack_core::snapshot::Snapshot) -> (u64, u64) {
    let counts = snapshot.exact_counts(DeviceId::HOST).expect("the heap was recorded");
    (counts.allocated_bytes - counts.freed_bytes, counts.allocations - counts.frees)
}

/// Runs a command with 10 objects, and with [`OBJECTS`] more; `COUNT` in the command is replaced by the number. Checks that the
/// latter run keeps as many bytes and blocks more.
fn assert_objects_are_recorded_once(bench: &Bench, command: &[&str], environment: &[(&str, &str)]) {
    let of_run = |count: u64| {
        let count = count.to_string();
        let command = command.iter().map(|&part| if part == "COUNT" { count.as_str() } else { part });
        let mut run = bench.command();
        run.args(["--host", "--force", "-o", "objects", "--"]).args(command);
        let output =
            run.env("PYTHONHASHSEED", "0").envs(environment.iter().copied()).output().expect("it runs");
        assert!(output.status.success(), "{environment:?}: {}", stderr_text(&output));
        live(&load(&bench.path("objects")).0)
    };
    let ((few_bytes, few_blocks), (bytes, blocks)) = (of_run(10), of_run(10 + OBJECTS));
    let (bytes, blocks) = (bytes - few_bytes, blocks - few_blocks);
    let expected = OBJECTS * OBJECT_BYTES;
    assert!(
        bytes.abs_diff(expected) < expected / 100,
        "{environment:?}: {bytes} instead of {expected} bytes"
    );
    assert!(
        blocks.abs_diff(OBJECTS) < OBJECTS / 100,
        "{environment:?}: {blocks} instead of {OBJECTS} blocks"
    );
}

/// Returns what the interpreter on the `PATH` prints.
fn python_prints(script: &str) -> String {
    let output = Command::new("python3").args(["-c", script]).output().expect("there is python3");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// Returns the interpreter on the `PATH` itself, not a script that starts it; `None` if it is older than 3.8.
fn interpreter() -> Option<String> {
    let found = python_prints("import sys; print(sys.executable if sys.version_info >= (3, 8) else '')");
    if found.is_empty() {
        println!("skipped: python3 is older than 3.8");
    }
    Some(found).filter(|found| !found.is_empty())
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn objects_of_python_are_recorded_once_whatever_allocates_them() {
    let Some(python) = interpreter() else { return };
    let bench = Bench::new();
    let keep = [&python, "-c", KEEP, "COUNT"];
    assert_objects_are_recorded_once(&bench, &keep, &[]);
    // All objects are from `malloc`, whose blocks of 24 bytes are not larger than requested.
    assert_objects_are_recorded_once(&bench, &keep, &[("PYTHONMALLOC", "malloc")]);
    // CPython replaces the allocators when it is initialised, and adds bytes to each block.
    assert_objects_are_recorded_once(&bench, &keep, &[("PYTHONMALLOC", "debug")]);
    assert_objects_are_recorded_once(&bench, &keep, &[("PYTHONMALLOC", "pymalloc")]);
    // Tracing wraps the allocators, and restores them.
    let traced = format!("import tracemalloc\ntracemalloc.start()\ntracemalloc.stop()\n{KEEP}");
    assert_objects_are_recorded_once(&bench, &[&python, "-c", &traced, "COUNT"], &[]);
}

/// Replaces objects of all sizes that pymalloc allocates, and shrinks and grows others across that limit. Prints how many bytes are
/// left.
const ALL_SIZES: &str = "
import os, random, sys
random.seed(1)
kept = [None] * 20_000
lists = [[] for _ in range(1_000)]
for _ in range(int(sys.argv[1])):
    kept[random.randrange(len(kept))] = bytes(random.randrange(2, 479))
    one = random.choice(lists)
    one.extend([None] * random.randrange(40)) if random.random() < 0.7 else one.__delitem__(slice(random.randrange(20), None))
print(sum(sys.getsizeof(one) for one in kept + lists if one is not None), flush=True)
os._exit(0)
";

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn objects_of_all_sizes_are_recorded_exactly() {
    let Some(python) = interpreter() else { return };
    let bench = Bench::new();
    let run = |steps: &str| {
        let mut run = bench.command();
        run.args(["--host", "--force", "-o", "sizes", "--", &python, "-c", ALL_SIZES, steps]);
        let output = run.env("PYTHONHASHSEED", "0").output().expect("it runs");
        assert!(output.status.success(), "{}", stderr_text(&output));
        let printed = String::from_utf8_lossy(&output.stdout).trim().parse::<u64>().expect("a number");
        (live(&load(&bench.path("sizes")).0).0, printed)
    };
    let ((few_bytes, few_expected), (bytes, expected)) = (run("10"), run("300000"));
    let (bytes, expected) = (bytes - few_bytes, expected - few_expected);
    assert!(expected > 4_000_000, "{expected}");
    assert!(bytes.abs_diff(expected) < expected / 100, "{bytes} instead of {expected} bytes");
}

/// The statistics of pymalloc would not be printed if its allocators were replaced.
#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn statistics_of_pymalloc_are_printed_as_without_memtrack() {
    let Some(python) = interpreter() else { return };
    let bench = Bench::new();
    let mut run = bench.command();
    run.args(["--host", "-o", "statistics", "--", &python, "-c", "pass"]).env("PYTHONMALLOCSTATS", "1");
    let output = run.output().expect("it runs");
    assert!(stderr_text(&output).contains("Small block threshold"), "{}", stderr_text(&output));
}

/// A child's free of a block that its parent allocated is a free in the child, as for other blocks of the heap.
#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn a_forked_child_records_its_own_objects() {
    let Some(python) = interpreter() else { return };
    let script = "
import os
before = [float(number) for number in range(100_000)]
child = os.fork()
if child == 0:
    kept = [float(number) for number in range(300_000)]
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
";
    let bench = Bench::new();
    let output = bench.run(&["--host", "-o", "forked", "--", &python, "-c", script]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let processes = load_each(&bench.path("forked"));
    assert_eq!(processes.len(), 2, "{processes:?}");
    let (bytes, _) = live(&processes[1].1);
    let expected = 300_000 * (OBJECT_BYTES + 8);
    assert!((expected..expected * 11 / 10).contains(&bytes), "{bytes} instead of {expected}");
}

/// Opens a library with CPython while it runs, and executes a script.
const HOST: &str = r#"
#include <dlfcn.h>
int main(int count, char **arguments) {
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (!library) return 2;
    void (*initialize)(void) = dlsym(library, "Py_Initialize");
    int (*execute)(const char *) = dlsym(library, "PyRun_SimpleString");
    initialize();
    return execute(arguments[2]) ? 3 : 0;
}
"#;

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn objects_of_an_interpreter_that_is_loaded_later_are_recorded_once() {
    if interpreter().is_none() {
        return;
    }
    let library = PathBuf::from(python_prints(
        "import sysconfig; print(sysconfig.get_config_var('LIBDIR') + '/' + sysconfig.get_config_var('INSTSONAME'))",
    ));
    if library.extension().is_some_and(|extension| extension == "a") || !library.exists() {
        println!("skipped: python3 has no shared library, {}", library.display());
        return;
    }
    let home = python_prints("import sys; print(sys.prefix)");
    let bench = Bench::new();
    compile_c(bench.folder.path(), HOST, &["-o", "host"]);
    let library = library.to_str().expect("text");
    let keep =
        |count: u64| KEEP.replace("int(sys.argv[1])", &count.to_string()).replace("del sys.argv[:]", "");
    let run = |count: u64| {
        let mut run = bench.command();
        run.args(["--host", "--force", "-o", "plugin", "--", "./host", library, &keep(count)]);
        let output = run.env("PYTHONHOME", &home).output().expect("it runs");
        assert!(output.status.success(), "{}", stderr_text(&output));
        live(&load(&bench.path("plugin")).0).0
    };
    let (bytes, expected) = (run(10 + OBJECTS) - run(10), OBJECTS * OBJECT_BYTES);
    assert!(bytes.abs_diff(expected) < expected / 100, "{bytes} instead of {expected} bytes");
}
