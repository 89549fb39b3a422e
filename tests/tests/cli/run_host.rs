//! `memtrack run --host`: the heap of programs that do not link memtrack, with all of C's allocation functions.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::child::ends_well;
use memtrack_tests::mock_cuda;
use memtrack_tests::run::{Bench, assert_work, compile_c, load, load_each, stderr_text};

const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

/// Returns the requested sizes of the heap's live blocks of a million bytes and more, in millions.
fn large(snapshot: &Snapshot) -> Vec<u64> {
    let heap = snapshot.blocks.iter().filter(|block| block.device == DeviceId::HOST);
    let mut sizes: Vec<u64> =
        heap.map(|block| block.size_bytes / 1_000_000).filter(|&millions| millions > 0).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn every_function_of_the_heap_is_recorded() {
    let bench = Bench::new();
    let output = bench.run(&["--host", "-o", "heap", "--", PLAIN, "heap"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let (snapshot, report) = load(&bench.path("heap"));
    assert!(report.complete);
    assert_eq!(large(&snapshot), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    // The counters include small blocks, and frees on other threads. Allocated minus freed bytes are the bytes of the live
    // blocks, plus a few that the Rust runtime allocates.
    let counts =
        snapshot.devices.iter().find(|counts| counts.device == DeviceId::HOST).expect("it was recorded");
    let live = counts.allocated_bytes - counts.freed_bytes;
    let blocks: u64 = snapshot
        .blocks
        .iter()
        .filter(|block| block.size_bytes >= 64 << 10)
        .map(|block| block.size_bytes)
        .sum();
    assert!(live >= blocks && live - blocks < 200_000, "{live} of {blocks}");
    assert!(counts.allocations > 200_000 && counts.allocations - counts.frees < 1_000, "{counts:?}");
    // The first frame is the caller of the allocation function.
    let mut symbols = Symbolizer::of(&snapshot);
    for block in snapshot.blocks.iter().filter(|block| block.size_bytes >= 1_000_000) {
        let stack = symbols.stack(snapshot.stacks.get(block.stack));
        let first = stack.first().map_or("", |frame| frame.function.as_str());
        assert!(first.contains("heap::every_function") || first.contains("reallocarray"), "{stack:#?}");
    }
}

#[test]
fn the_heap_and_the_device_are_recorded_together() {
    let bench = Bench::new();
    let output = bench.run(&["--host", "-o", "both", "--", PLAIN, "heap_and_work"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_work(&bench.path("both"), true);
    assert_eq!(large(&load(&bench.path("both")).0).len(), 9);
    // Without --host the heap is not recorded.
    let output = bench.run(&["-o", "without", "--", PLAIN, "heap_and_work"]);
    assert!(output.status.success());
    assert_work(&bench.path("without"), true);
    assert!(!load(&bench.path("without")).0.device_ids().contains(&DeviceId::HOST));
}

#[test]
fn a_forked_child_records_its_heap() {
    let bench = Bench::new();
    let output = bench.run(&["--host", "-o", "parent", "--", PLAIN, "heap_and_fork"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_eq!(large(&load(&bench.path("parent")).0), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let processes = load_each(&bench.path("parent"));
    assert_eq!(processes.len(), 2, "{processes:?}");
    // `exit` does not free the block.
    assert_eq!(large(&processes[1].1), [33]);
}

#[test]
fn a_child_program_records_its_heap_however_it_was_started() {
    let ways = ["posix_spawn", "posix_spawnp", "system", "popen", "fork", "command", "command_by_fork"];
    for way in ways {
        let bench = Bench::new();
        let output = bench.run(&["--host", "-o", "parent", "--", PLAIN, "heap_and_start", way, "33000000"]);
        assert!(output.status.success(), "{way}: {}", stderr_text(&output));
        assert_eq!(bench.files(), ["parent"], "{way}");
        // If a shell starts the child program, the shell records its heap too.
        let processes = load_each(&bench.path("parent"));
        let found = processes.iter().filter(|(_, snapshot)| large(snapshot) == [33]).count();
        assert_eq!(found, 1, "{way}: {processes:?}");
        assert!(stderr_text(&output).contains("recorded"), "{way}: {}", stderr_text(&output));
    }
}

#[test]
#[cfg_attr(not(bash), ignore = "needs bash")]
fn programs_beyond_the_limit_are_counted() {
    let bench = Bench::new();
    let script = "for number in 1 2 3 4 5; do /bin/ls >/dev/null; done";
    let output = bench.run(&["--host", "--max-processes", "2", "-o", "script", "--", "bash", "-c", script]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let text = stderr_text(&output);
    let line = "3 programs beyond --max-processes (2): sums are exact, but few small blocks are recorded";
    assert!(text.contains(line), "{text}");
    let processes = load_each(&bench.path("script"));
    let of_ls: Vec<_> = processes.iter().filter(|(row, _)| row.name() == "ls").collect();
    assert_eq!(of_ls.len(), 5, "{processes:?}");
    for (_, snapshot) in of_ls {
        let counts = snapshot.exact_counts(DeviceId::HOST).unwrap();
        assert!(counts.allocations > 10 && counts.allocated_bytes > 10_000, "{counts:?}");
    }
    let output = bench.run(&["--host", "-o", "all", "--", "bash", "-c", "/bin/ls; /bin/ls"]);
    assert!(!stderr_text(&output).contains("not recorded"), "{}", stderr_text(&output));
}

const NAMES: &str = include_str!("../../src/c/heap_names.c");

/// Builds `heap_names`. With `library`, a compiler option that defines a macro, the program is linked with a library that is
/// built from the same source with this option.
fn heap_names(library: Option<&str>) -> Bench {
    let bench = Bench::new();
    let folder = bench.folder.path();
    let mut arguments = vec!["-fno-builtin", "-w", "-o", "heap_names"];
    if let Some(definition) = library {
        compile_c(folder, NAMES, &["-fno-builtin", "-w", definition, "-shared", "-fPIC", "-o", "library.so"]);
        arguments.extend(["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", "./library.so"]);
    }
    compile_c(folder, NAMES, &arguments);
    bench
}

/// Runs `heap_names` and returns the large blocks that it keeps, in millions of bytes. Each of some 100,000 small blocks must
/// have been counted once, and freed.
fn kept_by_heap_names(bench: &Bench, what: &str) -> Vec<u64> {
    let output = bench.run(&["--host", "--force", "-o", "names", "--", "./heap_names", what]);
    assert!(output.status.success(), "{what}: {}", stderr_text(&output));
    assert_eq!(output.stdout, b"well\n");
    let (snapshot, _) = load(&bench.path("names"));
    let counts = snapshot.devices.iter().find(|counts| counts.device == DeviceId::HOST).unwrap();
    assert!((100_000..100_100).contains(&counts.allocations), "{what}: {counts:?}");
    let live = counts.allocations - counts.frees;
    assert!(live < 20, "{what}: {counts:?}");
    large(&snapshot)
}

#[test]
fn calls_by_the_c_librarys_own_names_are_recorded() {
    let bench = heap_names(None);
    assert_eq!(kept_by_heap_names(&bench, "libc"), [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// The library's functions that free a block of a given size call `free`, which memtrack hooks too.
#[test]
fn frees_with_a_size_are_recorded_once() {
    let bench = heap_names(Some("-DSIZED"));
    assert_eq!(kept_by_heap_names(&bench, "sized"), [1]);
}

/// The library's `malloc` calls the C library's allocator by its other name, `__libc_malloc`.
#[test]
fn blocks_of_an_allocator_that_wraps_the_c_librarys_are_recorded_once() {
    let bench = heap_names(Some("-DWRAPPER"));
    assert_eq!(kept_by_heap_names(&bench, "wrapper"), [1, 2]);
}

/// Neither `dlsym` nor a weak reference finds a name that only memtrack's libraries have: the driver's names, and C23's. Also,
/// memtrack's libraries load no other libraries that have names for which programs look.
#[test]
fn names_that_only_memtrack_has_are_not_found() {
    for library in [None, Some("-DSIZED")] {
        let bench = heap_names(library);
        let alone = ends_well(
            std::process::Command::new("./heap_names").arg("names").current_dir(bench.folder.path()),
        );
        let text = String::from_utf8_lossy(&alone.stdout).into_owned();
        assert!(
            text.contains("default cuMemAlloc_v2: 0 1 0") && text.contains("default free: 1 0 0"),
            "{text}"
        );
        for options in [&["--host", "--force"][..], &["--force"]] {
            let arguments = [options, &["-o", "names", "--", "./heap_names", "names"]].concat();
            let output = bench.run(&arguments);
            assert!(output.status.success(), "{}", stderr_text(&output));
            assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{library:?} {options:?}");
        }
    }
}

/// Builds a static program, which needs no loader and exits at once.
#[cfg(target_arch = "x86_64")]
fn static_program() -> Vec<u8> {
    let code = [0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
    let mut file = vec![0; 120];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    // ELF header: type, machine, version; entry point; offset of the program header; sizes and counts.
    put(16, &[2, 0, 62, 0, 1, 0, 0, 0]);
    put(24, &0x40_0078_u64.to_le_bytes());
    put(32, &64_u64.to_le_bytes());
    put(52, &[64, 0, 56, 0, 1, 0, 64, 0]);
    // Program header: a readable and executable segment that loads the file from its start at 0x400000.
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
    put(80, &0x40_0000_u64.to_le_bytes());
    put(88, &0x40_0000_u64.to_le_bytes());
    put(96, &129_u64.to_le_bytes());
    put(104, &129_u64.to_le_bytes());
    put(112, &0x1000_u64.to_le_bytes());
    file.extend(code);
    file
}

#[cfg(target_arch = "x86_64")]
#[test]
fn programs_that_cannot_be_recorded_are_counted() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let program = bench.path("still");
    std::fs::write(&program, static_program()).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    for way in ["posix_spawn", "posix_spawnp", "system", "popen", "fork", "command", "command_by_fork"] {
        let arguments = ["--host", "--force", "-o", "parent", "--", PLAIN, "start", way];
        let output = bench.run(&[&arguments[..], &[program.to_str().unwrap()]].concat());
        let text = stderr_text(&output);
        assert!(output.status.success(), "{way}: {text}");
        assert!(text.contains("it started a program that is not recorded"), "{way}: {text}");
    }
    // Started by its name, which is searched for in `PATH`.
    let found = bench
        .command()
        .args(["--host", "--force", "-o", "parent", "--", PLAIN, "start", "posix_spawnp", "still"])
        .env("PATH", format!("/usr/bin:{}:/bin", bench.folder.path().display()))
        .output()
        .unwrap();
    assert!(
        stderr_text(&found).contains("it started a program that is not recorded"),
        "{}",
        stderr_text(&found)
    );
}

const NO_LIBRARY: &str = "is not recorded, because its environment was replaced";

/// Each function takes the environment of the new program from its arguments or from `environ`.
#[test]
fn programs_that_are_started_without_the_library_are_counted() {
    let bench = Bench::new();
    std::fs::write(bench.path("starts.c"), STARTS).unwrap();
    let mut compiler = std::process::Command::new("cc");
    ends_well(compiler.args(["starts.c", "-o", "starts"]).current_dir(bench.folder.path()));
    for way in
        ["execve", "execvpe", "fexecve", "posix_spawn", "posix_spawnp", "execv", "execvp", "execl", "execlp"]
    {
        let run = |what: &str| {
            let output = bench.run(&["--host", "--force", "-o", "parent", "--", "./starts", way, what]);
            assert!(output.status.success(), "{way}: {}", stderr_text(&output));
            assert_eq!(output.stdout, b"well\n", "{way}");
            stderr_text(&output)
        };
        for what in ["without", "none"] {
            let text = run(what);
            assert!(text.contains("it started a program that") && text.contains(NO_LIBRARY), "{way}: {text}");
        }
        let text = run("with");
        assert!(!text.contains("that is not recorded"), "{way}: {text}");
    }
    // Without --host the warning is printed when nothing was recorded: the child program may have used a device.
    let output = bench.run(&["--", "./starts", "execve", "without"]);
    assert!(stderr_text(&output).contains(NO_LIBRARY), "{}", stderr_text(&output));
    // Started by `env -i`.
    let output = bench.run(&[
        "--host",
        "--force",
        "-o",
        "parent",
        "--",
        "sh",
        "-c",
        "env -i /bin/ls; env -i /bin/ls; ls",
    ]);
    assert!(
        stderr_text(&output).contains("it started 2 programs that are not recorded"),
        "{}",
        stderr_text(&output)
    );
}

/// `starts WAY WHAT`: starts `echo well` by the function WAY. WHAT is the environment of `echo`: the inherited one (`with`), one
/// without memtrack's variables (`without`), or an empty one (`none`).
const STARTS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **words) {
    if (count != 3) return 2;
    char *arguments[] = {"echo", "well", 0}, *without[] = {"PATH=/usr/bin:/bin", "LD_PRELOAD=", 0}, *none[] = {0};
    char **list = !strcmp(words[2], "with") ? environ : !strcmp(words[2], "without") ? without : none, *way = words[1];
    pid_t child = 0;
    int status;
    if (!strcmp(way, "posix_spawn")) posix_spawn(&child, "/bin/echo", 0, 0, arguments, list);
    if (!strcmp(way, "posix_spawnp")) posix_spawnp(&child, "echo", 0, 0, arguments, list);
    if (!child && !(child = fork())) {
        if (!strcmp(way, "execve")) execve("/bin/echo", arguments, list);
        if (!strcmp(way, "execvpe")) execvpe("echo", arguments, list);
        if (!strcmp(way, "fexecve")) fexecve(open("/bin/echo", O_RDONLY | O_CLOEXEC), arguments, list);
        environ = list;
        if (!strcmp(way, "execv")) execv("/bin/echo", arguments);
        if (!strcmp(way, "execvp")) execvp("echo", arguments);
        if (!strcmp(way, "execl")) execl("/bin/echo", "echo", "well", (char *)0);
        if (!strcmp(way, "execlp")) execlp("echo", "echo", "well", (char *)0);
        _exit(9);
    }
    return waitpid(child, &status, 0) != child || status;
}
"#;

/// The loaders of other C libraries do not expand `$LIB`, so they find no library at the path.
#[test]
#[cfg_attr(not(bash), ignore = "needs bash")]
fn only_glibcs_loader_finds_the_libraries() {
    let bench = Bench::new();
    let output = bench.run(&["--host", "-o", "shell", "--", "bash", "-c", "echo $LD_PRELOAD"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let libraries: Vec<&str> = text.trim().split(':').collect();
    assert_eq!(libraries.len(), 2, "{text}");
    for library in libraries {
        assert!(library.contains("/$LIB/") && !std::path::Path::new(library).exists(), "{library}");
    }
    assert!(!bench.files().is_empty(), "glibc's loader does");
}

/// Needs `musl-gcc` (Debian: musl-tools).
#[test]
#[cfg_attr(not(musl_gcc), ignore = "needs musl-gcc")]
fn programs_with_musl_run_as_without_memtrack() {
    let bench = Bench::new();
    let source =
        "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { free(malloc(1 << 20)); puts(\"well\"); }";
    std::fs::write(bench.path("small.c"), source).unwrap();
    let built = std::process::Command::new("musl-gcc")
        .args(["small.c", "-o", "small"])
        .current_dir(bench.folder.path())
        .status();
    assert!(built.unwrap().success());
    let output = bench.run(&["--host", "-o", "musl", "--", "./small"]);
    assert_eq!(output.status.code(), Some(126));
    assert!(
        stderr_text(&output).contains("uses the C library musl; memtrack's hook needs glibc"),
        "{}",
        stderr_text(&output)
    );
    let output = bench.run(&["--host", "-o", "child", "--", PLAIN, "start", "posix_spawn", "./small"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "well\n");
    assert!(
        stderr_text(&output).contains("it started a program that is not recorded"),
        "{}",
        stderr_text(&output)
    );
}

/// One test per program. The build script detects which of the optional programs are installed.
mod programs_behave_the_same_while_their_heap_is_recorded {
    use super::*;

    fn assert_same_behavior(program: &[&str]) {
        let bench = Bench::new();
        let mut alone = mock_cuda::with_driver(program[0], bench.driver.path());
        let alone = alone.args(&program[1..]).current_dir(bench.folder.path()).output();
        let alone = alone.expect("the program is there");
        let output = bench.run(&[&["--host", "-o", "heap", "--"], program].concat());
        assert_eq!(output.stdout, alone.stdout, "{program:?}: {}", stderr_text(&output));
        assert_eq!(output.status.code(), alone.status.code(), "{program:?}: {}", stderr_text(&output));
        // The program may be a script, which starts other programs: a heap was recorded in at least one process, and no data
        // was lost.
        let has_heap = |snapshot: &Snapshot| snapshot.devices.iter().any(|counts| counts.allocations > 0);
        assert!(load_each(&bench.path("heap")).iter().any(|(_, snapshot)| has_heap(snapshot)), "{program:?}");
        let report = load(&bench.path("heap")).1;
        assert_eq!((report.lost_bytes, report.complete), (0, true), "{program:?}: {report:?}");
    }

    #[test]
    fn ls() {
        assert_same_behavior(&["ls", "/"]);
    }

    #[test]
    #[cfg_attr(not(git), ignore = "needs git")]
    fn git() {
        assert_same_behavior(&["git", "--version"]);
    }

    #[test]
    #[cfg_attr(not(python3), ignore = "needs python3")]
    fn python() {
        let script = "import ctypes, json, threading, subprocess; \
                      print(subprocess.check_output(['echo', '6']), len(json.dumps(list(range(100000)))))";
        assert_same_behavior(&["python3", "-c", script]);
    }

    #[test]
    fn cargo() {
        assert_same_behavior(&["cargo", "--version"]);
    }

    #[test]
    #[cfg_attr(not(bash), ignore = "needs bash")]
    fn bash() {
        assert_same_behavior(&["bash", "-c", "echo one two | tr ' ' '\\n' | sort -r; (exit 3)"]);
    }

    #[test]
    #[cfg_attr(not(perl), ignore = "needs perl")]
    fn perl() {
        let script = "my %h; $h{$_} = 'x' x $_ for 1..2000; print length(join('', values %h)), \"\\n\"";
        assert_same_behavior(&["perl", "-e", script]);
    }
}
