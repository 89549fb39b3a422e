//! `memtrack run --host`: calls of Python functions are marks. Each test runs with the `python3` on the PATH and with the versions
//! that pyenv has installed.

use memtrack_tests::memtrack;
use memtrack_tests::run::{Bench, load, stderr_text};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// An interpreter whose functions are read.
struct Python {
    minor: u32,
    path: String,
}

/// Returns an interpreter of each version: that on the `PATH`, and those of pyenv.
fn interpreters() -> Vec<Python> {
    const QUERY: &str = "import sys; print(*sys.version_info[:2], sys.executable)";
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pyenv")));
    let versions = root.and_then(|root| fs::read_dir(root.join("versions")).ok());
    let of_pyenv = versions.into_iter().flatten().flatten().map(|entry| entry.path().join("bin/python3"));
    let mut found = BTreeMap::new();
    for candidate in [PathBuf::from("python3")].into_iter().chain(of_pyenv) {
        let Ok(answer) = Command::new(candidate).args(["-c", QUERY]).output() else { continue };
        let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
        let mut words = answer.trim().splitn(3, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<u32>().ok());
        if let (Some(3), Some(minor @ 8..=13)) = (number(), number())
            && let Some(path) = words.next()
        {
            found.entry(minor).or_insert_with(|| path.to_owned());
        }
    }
    found.into_iter().map(|(minor, path)| Python { minor, path }).collect()
}

/// Runs a script with options of `memtrack run --host`. Returns how often each name was marked, and what the program and the
/// command printed.
fn marks(python: &Python, options: &[&str], script: &str) -> (BTreeMap<String, usize>, String, String) {
    let bench = Bench::new();
    fs::write(bench.path("script.py"), script).expect("it can be written");
    let program = ["--force", "-o", "recording", "--", &python.path, "script.py"];
    let output = bench.run(&[&["--host"], options, &program].concat());
    assert!(output.status.success(), "3.{}: {}", python.minor, stderr_text(&output));
    let marks = load(&bench.path("recording")).0.marks;
    let mut counts = BTreeMap::new();
    for row in &marks.rows {
        *counts.entry(marks.name(row).to_owned()).or_insert(0) += 1;
    }
    (counts, String::from_utf8(output.stdout.clone()).expect("text"), stderr_text(&output))
}

fn counts<const N: usize>(expected: [(&str, usize); N]) -> BTreeMap<String, usize> {
    expected.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

#[test]
fn every_call_of_a_named_function_is_a_mark() {
    // Loops are long enough for CPython to specialise the calls.
    let script = "
import functools, threading
def step(value=0, *rest, **named): return value
def other(value=0): return value
def recursive(depth): return depth and recursive(depth - 1)
class Kind:
    def method(self, value=0): return value
    def __getitem__(self, index): return index
    @property
    def size(self): return 1
    @staticmethod
    def static(): return 1
class Other:
    def method(self): return 1
def époque(): return 1
def generator():
    yield 1
    yield 2
async def coroutine(): return 1
def outer():
    def inner(): return 1
    return inner
def run():
    kind = Kind()
    bound = kind.method
    for number in range(100):
        # The first call of the site for which CPython specialises it is that of another function.
        (other if number < 20 else step)(1)
        step(value=1)
        step(*(1, 2), **{'key': 1})
        kind.method()
        bound(1)
        kind[number]
        kind.size
        Kind.static()
        Other().method()
        list(generator())
        try: coroutine().send(None)
        except StopIteration: pass
        outer()()
    list(map(step, range(50)))
    for _ in range(50): functools.partial(step, 1)()
    recursive(300)
    époque()
def in_thread():
    for _ in range(100): other()
run()
threads = [threading.Thread(target=in_thread) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
";
    let named = "step,recursive,method,__getitem__,size,static,époque,generator,coroutine,inner,other,script.py:outer,x.py:outer";
    for python in interpreters() {
        let (found, _, stderr) = marks(&python, &["--mark-on", named], script);
        let mut expected = counts([
            ("step", 80 + 100 + 100 + 50 + 50),
            ("other", 20 + 300),
            ("method", 300),
            ("__getitem__", 100),
            ("size", 100),
            ("static", 100),
            ("generator", 100),
            ("coroutine", 100),
            ("inner", 100),
            ("recursive", 301),
            ("époque", 1),
            ("script.py:outer", 100),
        ]);
        // The standard library has functions of these names.
        let is_ours = |name: &str| !["size", "__getitem__", "inner", "other", "method"].contains(&name);
        expected.retain(|name, count| is_ours(name) || found.get(name).is_some_and(|found| found >= count));
        let mut found = found;
        found.iter_mut().filter(|(name, _)| !is_ours(name)).for_each(|(name, count)| {
            *count = (*count).min(expected.get(name).copied().unwrap_or(0));
        });
        assert_eq!(found, expected, "3.{}", python.minor);
        let uncalled = stderr.lines().filter(|line| line.contains("--mark-on")).collect::<Vec<_>>();
        assert_eq!(
            uncalled,
            ["memtrack: --mark-on x.py:outer: no call of a Python function of that name was noticed"],
            "3.{}",
            python.minor
        );
        if python.minor >= 11 {
            let (found, ..) = marks(&python, &["--mark-on", "Kind.method,script.py:Other.method"], script);
            assert_eq!(found, counts([("Kind.method", 200), ("script.py:Other.method", 100)]));
        }
    }
}

/// Prints what must be as without memtrack.
const MARKING: &str = "
import gc, sys, threading
def memtrack_mark(name='default', *rest): return name
class Service:
    def memtrack_mark(self, name): return name
class Name(str): pass
def run():
    for number in range(100):
        memtrack_mark('epoch')
        memtrack_mark(name='request')
        memtrack_mark(*('star',))
    for _ in range(10): Service().memtrack_mark('of a method')
    memtrack_mark('é\\u0101\\U0001f600')
    memtrack_mark()
    memtrack_mark(7)
    memtrack_mark(Name('no plain text'))
    memtrack_mark('n' * 1000)
def depth(level=0):
    try: return depth(level + 1)
    except RecursionError: return level
threads = [threading.Thread(target=run) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(depth())
gc.collect()
print(gc.get_count(), len(gc.get_objects()))
print(sys.getsizeof(memtrack_mark), sys.getsizeof(memtrack_mark.__code__), sys.getrefcount(memtrack_mark))
print([memtrack_mark(number) for number in range(20)], memtrack_mark.__defaults__, memtrack_mark)
";

#[test]
fn calls_of_memtrack_mark_are_marks_named_by_their_argument() {
    let expected = counts([
        ("epoch", 300),
        ("request", 300),
        ("star", 300),
        ("of a method", 30),
        ("éā😀", 3),
        ("default", 3),
        // Arguments that are no text.
        ("memtrack_mark", 6 + 20),
        (&"n".repeat(256), 3),
    ]);
    for python in interpreters() {
        let (found, ..) = marks(&python, &["--mark-on", "memtrack_mark"], MARKING);
        assert_eq!(found, expected, "3.{}", python.minor);
        let (found, ..) = marks(&python, &[], MARKING);
        let of_default = if python.minor < 12 { BTreeMap::new() } else { expected.clone() };
        assert_eq!(found, of_default, "3.{}", python.minor);
    }
}

#[test]
fn programs_notice_nothing_of_marks() {
    // Addresses differ from run to run.
    let script = format!("{MARKING}print(end='')").replace(", memtrack_mark)", ")");
    for python in interpreters() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("script.py"), &script).expect("it can be written");
        let mut plain = Command::new(&python.path);
        let plain = plain.arg("script.py").current_dir(folder.path()).output().expect("it runs");
        let (_, printed, _) = marks(&python, &[], &script);
        assert_eq!(printed, String::from_utf8_lossy(&plain.stdout), "3.{}", python.minor);
        assert!(plain.status.success());
    }
}

/// Keeps an entry of each epoch.
const LEAKING: &str = "
import os
history = []
def memtrack_mark(name): pass
def train():
    rows = [bytes(2000) for _ in range(100)]
    history.append(bytearray(100_000))
for _ in range(12):
    train()
    memtrack_mark('epoch')
os._exit(0)
";

#[test]
fn marked_epochs_are_reported_with_the_line_that_leaks() {
    for python in interpreters() {
        let bench = Bench::new();
        fs::write(bench.path("script.py"), LEAKING).expect("it can be written");
        let options = ["--host", "--mark-on", "memtrack_mark", "-o", "recording", "--"];
        // Without the modules of the site, whose imports may fill the table of stacks.
        let output = bench.run(&[&options[..], &[&python.path, "-S", "script.py"]].concat());
        assert!(output.status.success(), "{}", stderr_text(&output));
        let text = format!("{}3.{}: {}", leaks_per_epoch(&bench), python.minor, stderr_text(&output));
        let (first, rest) = text.split_once('\n').expect("a line");
        // The list that grows moves, which may add to it.
        assert!(first.starts_with("1 line leaks 1.") && first.contains(": script.py:7 train +"), "{text}");
        assert!(
            rest.contains("What each epoch left behind: 11 of 11 left something, median 97.7 KiB"),
            "{text}"
        );
        assert!(rest.matches(": script.py:7 train 97.7 KiB").count() >= 6, "{text}");
    }
}

/// Returns the report on what the marked epochs of the recording left in the heap.
fn leaks_per_epoch(bench: &Bench) -> String {
    let recording = bench.path("recording");
    let mut command = Command::new(memtrack());
    let output =
        command.args([Path::new("leaks"), &recording]).args(["--per", "epoch", "--device", "host"]).output();
    String::from_utf8(output.expect("it runs").stdout).expect("text")
}

#[test]
fn names_that_no_function_can_have_are_refused() {
    let bench = Bench::new();
    let long = "n".repeat(257);
    let many = vec!["step"; 33].join(",");
    for named in ["", "a b", "step()", "a..b", ".a", ":step", "train.py:", "<lambda>", &long, &many] {
        let output = bench.run(&["--host", "--mark-on", named, "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "{named}: {}", stderr_text(&output));
    }
    let output = bench.run(&["--mark-on", "step", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr_text(&output));
    let output = bench.run(&["--host", "--mark-on", "step", "--", "true"]);
    assert!(
        stderr_text(&output)
            .contains("--mark-on step: no call of a Python function of that name was noticed"),
        "{}",
        stderr_text(&output)
    );
}
