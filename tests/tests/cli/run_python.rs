//! `memtrack run` on Python programs: stacks contain the lines of Python. The interpreter is the `python3` on the PATH;
//! without one, or with a version whose frames cannot be read, the tests only print that.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::run::{Bench, compile_c, load, load_each, stderr_text};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the interpreter's executable, if its frames can be read. Wrappers around it, such as those of pyenv, are
/// programs of their own.
fn interpreter() -> Option<PathBuf> {
    const QUERY: &str = "import sys; print(*sys.version_info[:2], sys.executable)";
    let answer = Command::new("python3").args(["-c", QUERY]).output().ok()?;
    let answer = String::from_utf8(answer.stdout).ok()?;
    let mut words = answer.trim().splitn(3, ' ');
    let (major, minor) = (words.next()?.parse::<u32>().ok()?, words.next()?.parse::<u32>().ok()?);
    let is_known = major == 3 && (8..=13).contains(&minor);
    let path = words.next().filter(|_| is_known).map(PathBuf::from);
    if path.is_none() {
        println!("not tested: Python {major}.{minor}");
    }
    path
}

/// Runs a script under `memtrack run --host`, and returns its recording.
fn record(python: &Path, bench: &Bench, script: &str) -> PathBuf {
    fs::write(bench.path("script.py"), script).expect("it can be written");
    let (python, script) = (python.to_str().expect("a plain path"), bench.path("script.py"));
    let script = script.to_str().expect("a plain path");
    let output = bench.run(&["--host", "--force", "-o", "recording", "--", python, script]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert!(!stderr_text(&output).contains("no lines of Python"), "{}", stderr_text(&output));
    bench.path("recording")
}

/// Returns the Python frames, innermost first and as `line function`, of each block of the heap that is at least a million
/// bytes in size and was live at the end; by millions of bytes.
fn lines_of_large_blocks(snapshot: &Snapshot) -> BTreeMap<u64, Vec<String>> {
    let mut symbols = Symbolizer::of(snapshot);
    let heap = snapshot.blocks.iter().filter(|block| block.device == DeviceId::HOST);
    let large = heap.filter(|block| block.size_bytes >= 1_000_000);
    let lines = large.map(|block| {
        let stack = symbols.stack(snapshot.stacks.get(block.stack));
        let own = stack
            .iter()
            .filter(|frame| frame.file.as_deref().is_some_and(|file| file.ends_with("script.py")));
        let name = |function: &str| function.rsplit('.').next().unwrap_or_default().to_owned();
        let line = own.map(|frame| format!("{} {}", frame.line.unwrap_or(0), name(&frame.function)));
        (block.size_bytes / 1_000_000, line.collect())
    });
    lines.collect()
}

#[test]
fn large_blocks_have_their_lines_of_python() {
    let Some(python) = interpreter() else { return };
    let bench = Bench::new();
    let script = "\
import os, threading
kept = []

def make(millions):
    kept.append(
        bytearray(millions * 1000000 + 500000))

class Kind:
    def method(self):
        make(2)

def generator():
    make(3)
    yield
    make(4)

def key(value):
    make(5)
    return value

async def coroutine():
    make(6)

def deep(depth):
    return deep(depth - 1) if depth else make(8)

make(1)
Kind().method()
list(generator())
sorted([1], key=key)
try:
    coroutine().send(None)
except StopIteration:
    pass
thread = threading.Thread(target=make, args=[7])
thread.start()
thread.join()
deep(300)
os._exit(0)
";
    let recording = record(&python, &bench, script);
    let (snapshot, _) = load(&recording);
    let lines = lines_of_large_blocks(&snapshot);
    for (millions, expected) in [
        (1, &["6 make", "27 <module>"][..]),
        (2, &["6 make", "10 method", "28 <module>"]),
        (3, &["6 make", "13 generator", "29 <module>"]),
        (4, &["6 make", "15 generator", "29 <module>"]),
        (5, &["6 make", "18 key", "30 <module>"]),
        (6, &["6 make", "22 coroutine", "32 <module>"]),
        (7, &["6 make"]),
    ] {
        // A call that spans lines is attributed to one of them, depending on the version.
        let found: Vec<String> =
            lines.get(&millions).into_iter().flatten().map(|line| line.replace("5 make", "6 make")).collect();
        assert_eq!(found, expected, "{millions}: {lines:#?}");
    }
    assert!(
        lines[&8].len() >= 100 && lines[&8][1..].iter().all(|line| line == "25 deep"),
        "{:#?}",
        lines[&8]
    );
}

#[test]
fn forked_child_has_its_own_lines() {
    let Some(python) = interpreter() else { return };
    let bench = Bench::new();
    let script = "\
import os
def make(millions):
    return bytearray(millions * 1000000 + 500000)
parent = make(1)
child = os.fork()
if child == 0:
    kept = make(2)
    os._exit(0)
os.waitpid(child, 0)
os._exit(0)
";
    let recording = record(&python, &bench, script);
    let processes = load_each(&recording);
    assert_eq!(processes.len(), 2);
    assert_eq!(lines_of_large_blocks(&processes[0].1)[&1], ["3 make", "4 <module>"]);
    assert_eq!(lines_of_large_blocks(&processes[1].1)[&2], ["3 make", "7 <module>"]);
}

#[test]
fn reused_code_objects_have_no_stale_names() {
    let Some(python) = interpreter() else { return };
    let bench = Bench::new();
    // The size of each block is that of the line on which it was made.
    let script = "\
import os, random
random.seed(7)
kept = []
for number in range(3000):
    line = random.randrange(1, 60)
    source = '\\n' * (line - 1) + f'def at_{line}(n): return bytearray(n)\\n'
    names = {}
    exec(compile(source, 'generated.py', 'exec'), names)
    kept.append(names[f'at_{line}'](100000 + 1000 * line))
    kept = kept[-200:]
os._exit(0)
";
    let recording = record(&python, &bench, script);
    let (snapshot, _) = load(&recording);
    let mut symbols = Symbolizer::of(&snapshot);
    let mut checked = 0;
    for row in 0..snapshot.events.len() {
        let stack = symbols.stack(snapshot.stacks.get(snapshot.events.stack[row]));
        let Some(frame) = stack.iter().find(|frame| frame.function.starts_with("at_")) else { continue };
        let size = snapshot.events.size_bytes[row];
        if size < 100_000 {
            continue;
        }
        // The usable size of a block is slightly larger than requested.
        let line = (size - 100_000) / 1000;
        assert_eq!((&*frame.function, frame.line), (&*format!("at_{line}"), Some(line as u32)), "{stack:#?}");
        checked += 1;
    }
    assert!(checked >= 3000, "{checked} events");
}

/// A program that exports what an interpreter does, with a state of the thread that the tests choose.
const FAKE_INTERPRETER: &str = r#"
#include <stdlib.h>
#include <string.h>
char _PyRuntime[4096];
static void dealloc(void *code) {}
void *PyCode_Type[64] = {[6] = dealloc};
const unsigned long Py_Version = VERSION;
#ifdef DEBUG
void _Py_NegativeRefcount(void) {}
#endif
unsigned long code[64], frame[64], cframe[8], state[64];
void *PyGILState_GetThisThreadState(void) { return state; }
void *_PyThreadState_UncheckedGet(void) { return state; }
__attribute__((noinline)) void *_PyEval_EvalFrameDefault(void) { return malloc(2000000); }
int main(void) {
    cframe[1] = (unsigned long)frame;
    state[7] = (unsigned long)cframe;
    frame[4] = (unsigned long)code;
    code[1] = (unsigned long)PyCode_Type;
#ifdef SETUP
    SETUP
#endif
    void *block = _PyEval_EvalFrameDefault();
    memset(block, 1, 2000000);
    for (int i = 0; i < 100; i++) free(_PyEval_EvalFrameDefault());
    return 0;
}
"#;

#[test]
fn interpreters_that_cannot_be_read_are_reported_once_and_do_no_harm() {
    let python_3_11 = "-DVERSION=0x030b07f0";
    for (arguments, reason) in [
        (["-DVERSION=0x030e00f0", "-DSETUP="], "the layout of Python 3.14 is not known"),
        (["-DVERSION=0x030d00f0", "-DSETUP="], "does not describe its layout"),
        ([python_3_11, "-DSETUP=state[7]=24;"], "cannot be followed"),
        ([python_3_11, "-DSETUP=frame[6]=0x123456789000;"], "cannot be followed"),
        ([python_3_11, "-DSETUP=code[1]=0;"], "do not refer to code objects"),
        (
            [python_3_11, "-DSETUP=frame[7]=(unsigned long)code+184;code[17]=7;"],
            "do not refer to code objects",
        ),
        (["-DVERSION=0x030b07f0", "-DDEBUG"], "debug builds"),
    ] {
        let bench = Bench::new();
        compile_c(
            bench.path("").as_path(),
            FAKE_INTERPRETER,
            &[arguments[0], arguments[1], "-rdynamic", "-o", "fake"],
        );
        let program = bench.path("fake");
        let output = bench.run(&["--host", "-o", "recording", "--", program.to_str().expect("a plain path")]);
        let text = stderr_text(&output);
        assert!(output.status.success(), "{text}");
        assert_eq!(text.matches("no lines of Python").count(), 1, "{arguments:?}: {text}");
        assert!(text.contains(reason), "{arguments:?}: {text}");
        let (snapshot, _) = load(&bench.path("recording"));
        let mut symbols = Symbolizer::of(&snapshot);
        let block = snapshot.blocks.iter().find(|block| block.size_bytes >= 2_000_000).expect("it is live");
        let stack = symbols.stack(snapshot.stacks.get(block.stack));
        assert!(stack.iter().any(|frame| frame.function == "_PyEval_EvalFrameDefault"), "{stack:#?}");
    }
}

#[test]
fn interpreter_in_a_library_that_is_opened_later_has_lines() {
    let Some(python) = interpreter() else { return };
    const QUERY: &str = "import sysconfig as s, os; \
        print(os.path.join(s.get_config_var('LIBDIR'), s.get_config_var('INSTSONAME') or '?'))";
    let answer = Command::new(&python).args(["-c", QUERY]).output().expect("it runs");
    let library = String::from_utf8(answer.stdout).expect("a plain path").trim().to_owned();
    if !library.contains(".so") || !Path::new(&library).exists() {
        return println!("not tested: this Python has no shared library");
    }
    let bench = Bench::new();
    let source = r#"
#include <dlfcn.h>
#include <stdlib.h>
int main(void) {
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
        if (!library) return 1;
        ((void (*)(int))dlsym(library, "Py_InitializeEx"))(0);
        int failed = ((int (*)(const char *))dlsym(library, "PyRun_SimpleString"))(
            "import __main__\n"
            "def make():\n"
            "    return bytearray(1500000)\n"
            "kept = make()\n");
        if (failed) return 2;
        if (round < 2) ((int (*)(void))dlsym(library, "Py_FinalizeEx"))();
        if (round < 2) dlclose(library);
    }
    _Exit(0);
}
"#;
    let defined = format!("-DLIBRARY=\"{library}\"");
    compile_c(bench.path("").as_path(), source, &[&defined, "-o", "embeds"]);
    let program = bench.path("embeds");
    let attempt = |attempt: &str| {
        let program = program.to_str().expect("a plain path");
        let output = bench.run(&["--host", "-o", attempt, "--", program]);
        assert!(output.status.success(), "{}", stderr_text(&output));
        let (snapshot, _) = load(&bench.path(attempt));
        let block = snapshot.blocks.iter().find(|block| block.size_bytes >= 1_500_000).copied();
        // On a busy machine, the collector may be too slow for three interpreters; it then says so.
        let dropped = snapshot.exact_counts(DeviceId::HOST).map_or(0, |counts| counts.dropped);
        assert!(block.is_some() || dropped > 0, "{}", stderr_text(&output));
        Some((block?, snapshot))
    };
    let attempts = ["first", "second", "third", "fourth", "fifth"];
    let (block, snapshot) = attempts.into_iter().find_map(attempt).expect("it is live");
    let mut symbols = Symbolizer::of(&snapshot);
    let stack = symbols.stack(snapshot.stacks.get(block.stack));
    let lines: Vec<_> = stack.iter().filter(|frame| frame.file.as_deref() == Some("<string>")).collect();
    let lines: Vec<_> = lines.iter().map(|frame| (&*frame.function, frame.line)).collect();
    assert_eq!(lines, [("make", Some(3)), ("<module>", Some(4))], "{stack:#?}");
}
