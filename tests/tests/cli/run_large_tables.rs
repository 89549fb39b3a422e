//! `memtrack run --host` on a program that loads and unloads a library with large unwind tables, which are read in place. Stacks
//! go through the library as long as it is loaded, whatever else is loaded at its addresses meanwhile.

use memtrack_core::event::{Action, DeviceId};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::run::{Bench, compile_c, load, stderr_text};

/// A library with 70,000 functions, so that the tables take five megabytes, and one that calls back.
const LIBRARY: &str = r#"
#include <stddef.h>

__asm__(".text\n.rept 70000\n.cfi_startproc\nret\n.cfi_endproc\n.endr\n");

__attribute__((noinline)) void WORK(void (*take)(size_t), size_t bytes) {
    volatile char buffer[64];
    buffer[0] = 1;
    take(bytes);
    buffer[1] = 2;
}
"#;

const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static volatile char *volatile kept;
static volatile int ended;

static void take(size_t bytes) { kept = malloc(bytes); *kept = 1; }

static void turn(const char *file, const char *name, size_t bytes) {
    void *library = dlopen(file, RTLD_NOW);
    if (!library) abort();
    void (*work)(void (*)(size_t), size_t) = (void (*)(void (*)(size_t), size_t))dlsym(library, name);
    if (!work) abort();
    work(take, bytes);
    dlclose(library);
}

static void *others(void *unused) {
    while (!ended) {
        free(malloc(100000));
        usleep(50);
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, others, 0);
    for (int round = 0; round < 50; round++) {
        turn("./first.so", "first_work", 1000001);
        turn("./second.so", "second_work", 2000001);
    }
    ended = 1;
    pthread_join(thread, 0);
    return 0;
}
"#;

#[test]
fn stacks_go_through_libraries_with_large_tables() {
    let bench = Bench::new();
    let folder = bench.folder.path();
    for name in ["first", "second"] {
        let work = format!("-DWORK={name}_work");
        compile_c(folder, LIBRARY, &[&work, "-g", "-shared", "-fPIC", "-o", &format!("{name}.so")]);
    }
    compile_c(folder, PROGRAM, &["-g", "-pthread", "-o", "loads", "-ldl"]);
    let output =
        bench.command().args(["--host", "-o", "run", "--", "./loads"]).output().expect("it can be started");
    assert!(output.status.success(), "{}", stderr_text(&output));
    let (snapshot, _) = load(&bench.path("run"));
    let mut symbols = Symbolizer::of(&snapshot);
    let mut counts = [0; 2];
    let events = &snapshot.events;
    for row in events.rows_of(DeviceId::HOST).filter(|&row| events.action[row] == Action::Alloc) {
        // A block may be a page larger than what was requested.
        let (index, name) = match events.size_bytes[row] / 1_000_000 {
            1 => (0, "first_work"),
            2 => (1, "second_work"),
            _ => continue,
        };
        counts[index] += 1;
        let stack = symbols.stack(snapshot.stacks.get(events.stack[row]));
        let names: Vec<String> = stack.into_iter().map(|frame| frame.function).collect();
        assert!(names.windows(4).any(|frames| frames == ["take", name, "turn", "main"]), "{names:?}");
    }
    assert_eq!(counts, [50, 50], "{}", stderr_text(&output));
}
