//! `memtrack run --host` on a program that forks, as daemons do, and whose child unloads plugins and loads others: functions that
//! are loaded at the addresses of unloaded functions are reported under their own names.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::run::{Bench, compile_c, load_each, stderr_text};
use std::process::Output;

/// `daemon HOW END FILE`: with `inherits`, the parent loads a plugin, waits until FILE exists, and forks; with `unloaded`, the
/// parent forks after it has unloaded two plugins. The child ends by calling END, `exit` or `_exit`.
const SOURCE: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void (*work)(void (*)(size_t), size_t);

static volatile char *volatile kept;
static void take(size_t bytes) { kept = malloc(bytes); *kept = 1; }

static void *load(const char *file) {
    void *library = dlopen(file, RTLD_NOW);
    if (!library) abort();
    return library;
}

static void *run(void *library, const char *name, size_t bytes) {
    work function = (work)dlsym(library, name);
    if (!function) abort();
    function(take, bytes);
    return (void *)function;
}

static void *turn(const char *file, const char *name, size_t bytes) {
    void *library = load(file), *at = run(library, name, bytes);
    dlclose(library);
    return at;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    void *inherited = 0, *before;
    if (!strcmp(words[1], "inherits")) {
        inherited = load("./first.so");
        before = run(inherited, "first_work", 1000001);
        // Until the recording lists it.
        while (access(words[3], F_OK)) usleep(10000);
    } else {
        before = turn("./first.so", "first_work", 1000001);
        turn("./second.so", "second_work", 2000001);
    }
    pid_t child = fork();
    if (!child) {
        if (inherited) dlclose(inherited);
        void *second = turn("./second.so", "second_work", 3000001);
        void *first = turn("./first.so", "first_work", 4000001);
        void *again = turn("./second.so", "second_work", 5000001);
        if (before == second && second == first && first == again) puts("at one place");
        fflush(stdout);
        if (!strcmp(words[2], "exit")) exit(0);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return status != 0;
}
"#;

/// Returns the sizes of large blocks in millions of bytes, with the plugins' functions in their stacks.
fn work(snapshot: &Snapshot) -> Vec<(u64, String)> {
    let mut symbols = Symbolizer::of(snapshot);
    let mut found = Vec::new();
    for block in snapshot.blocks.iter().filter(|block| block.device == DeviceId::HOST) {
        if block.size_bytes >= 1_000_000 {
            let stack = symbols.stack(snapshot.stacks.get(block.stack));
            let names = stack.iter().map(|frame| frame.function.as_str());
            let plugins: Vec<&str> = names.filter(|name| name.ends_with("_work")).collect();
            found.push((block.size_bytes / 1_000_000, plugins.join(" ")));
        }
    }
    found.sort();
    found
}

/// The number of runs until the plugins must have been at one address: in one of three they are.
const MAX_RUNS: usize = 60;

#[test]
fn a_forked_childs_plugins_keep_their_names() {
    let bench = Bench::new();
    let folder = bench.folder.path();
    compile_c(folder, SOURCE, &["-o", "daemon"]);
    for name in ["first", "second"] {
        let code = format!(
            "#include <stddef.h>\nvoid {name}_work(void (*take)(size_t), size_t bytes) {{ take(bytes); take(1); }}\n"
        );
        compile_c(folder, &code, &["-shared", "-fPIC", "-o", &format!("{name}.so")]);
    }
    for how in ["inherits", "unloaded"] {
        for end in ["exit", "_exit"] {
            let is_listed =
                |snapshot: &Snapshot| snapshot.modules.iter().any(|module| module.path.ends_with("first.so"));
            let run = |attempt: usize| {
                let name = format!("{how}-{end}-{attempt}");
                let output = match how {
                    "inherits" => {
                        bench.run_until(&name, &["--host"], &["./daemon", how, end], &[], is_listed)
                    }
                    _ => bench.run(&["--host", "-o", &name, "--", "./daemon", how, end, "no file"]),
                };
                (name, output)
            };
            // The system mostly maps all plugins at one address, but another mapping may have taken it. At different
            // addresses, their functions could not be confused.
            let is_right = |output: &Output| !output.status.success() || output.stdout == b"at one place\n";
            let (name, output) = (0..MAX_RUNS)
                .map(run)
                .find(|(_, output)| is_right(output))
                .unwrap_or_else(|| panic!("{how}, {end}: the plugins were never at one place"));
            assert!(output.status.success(), "{name}: {}", stderr_text(&output));
            let processes = load_each(&bench.path(&name));
            let child = processes.iter().find(|(row, _)| row.is_forked);
            let (_, child) = child.unwrap_or_else(|| panic!("the child recorded nothing: {processes:?}"));
            let expected = [(3, "second_work"), (4, "first_work"), (5, "second_work")];
            let expected = expected.map(|(millions, function)| (millions, function.to_owned()));
            assert_eq!(work(child), expected, "{name}");
        }
    }
}
