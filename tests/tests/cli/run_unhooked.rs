//! Programs whose driver calls bypass the hook: one warning is printed, and the other messages stay correct.

use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;
use memtrack_tests::child::{self, ends_well};
use memtrack_tests::run::{Bench, load, stderr_text};
use object::{Object, ObjectSection};
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

/// `tracer WHAT HOW`: a program that exports its own `dlsym`, as a tracing tool does.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void *dlsym(void *handle, const char *name) {
    static void *(*next)(void *, const char *);
    const char *versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (int i = 0; !next && i < 3; i++)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return next(handle, name);
}

static void take_memory(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) abort();
    int (*start)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*use)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    int (*alloc)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2");
    void *context = 0;
    unsigned long long address = 0;
    if (start(0) || retain(&context, 0) || use(context) || alloc(&address, 1 << 20) || !address) abort();
    puts("took memory");
    fflush(stdout);
}

int main(int count, char **words) {
    if (count != 3) return 2;
    if (!strcmp(words[1], "cuda")) take_memory();
    if (!strcmp(words[2], "at_once")) _exit(0);
    if (!strcmp(words[2], "children"))
        for (int i = 0; i < 3; i++) {
            if (!fork()) exit(0);
            wait(0);
        }
    return 0;
}
"#;

/// Creates a bench with the program `tracer`, and a driver that is a regular file, not a link: the warning depends on the name of
/// the mapped file.
fn bench() -> Bench {
    let bench = Bench::new();
    for name in ["libcuda.so.1", "libcuda.so"] {
        let link = bench.driver.path().join(name);
        let library = fs::canonicalize(&link).expect("the mock");
        fs::remove_file(&link).expect("the link can be removed");
        fs::copy(library, &link).expect("it can be copied");
    }
    fs::write(bench.path("tracer.c"), SOURCE).expect("it can be written");
    ends_well(
        Command::new("cc")
            .args(["-rdynamic", "-o", "tracer", "tracer.c", "-ldl"])
            .current_dir(bench.folder.path()),
    );
    bench
}

const WARNING: &str = "tracer exports a function `dlsym` of its own";

#[test]
fn a_program_that_exports_dlsym_gets_one_warning() {
    let bench = bench();
    let cases: [(&[&str], usize); 6] = [
        (&["--", "./tracer", "cuda", "return"], 1),
        (&["--", "./tracer", "cuda", "at_once"], 1),
        (&["--", "./tracer", "cuda", "children"], 1),
        (&["--", "./tracer", "nothing", "return"], 0),
        (&["--", "./tracer", "nothing", "children"], 0),
        (&["--", "sh", "-c", "./tracer nothing return; ./tracer cuda return; ls / > /dev/null"], 1),
    ];
    for (arguments, warnings) in cases {
        let output = bench.run(arguments);
        let text = stderr_text(&output);
        assert!(output.status.success(), "{arguments:?}: {text}");
        let took = String::from_utf8_lossy(&output.stdout) == "took memory\n";
        assert_eq!(took, arguments.concat().contains("cuda"), "{arguments:?}");
        assert_eq!(text.matches(WARNING).count(), warnings, "{arguments:?}: {text}");
        // One line is the warning, with its reason and a remedy; the other is the command's result.
        assert_eq!(text.contains("-rdynamic"), warnings == 1, "{text}");
        assert_eq!(text.lines().count(), warnings + 1, "{arguments:?}: {text}");
        let last = text.lines().last().expect("a last line");
        assert!(last.contains("so nothing was written; --host records its heap"), "{text}");
    }
    assert_eq!(bench.files(), ["tracer", "tracer.c"]);

    // The host heap is recorded even if the driver calls bypass the hook.
    let output = bench.run(&["--host", "-o", "heap", "--", "./tracer", "cuda", "return"]);
    assert_eq!(stderr_text(&output).matches(WARNING).count(), 1, "{}", stderr_text(&output));
    assert!(load(&bench.path("heap")).0.device_ids().contains(&DeviceId::HOST));
}

#[test]
#[ignore = "is run by the test below"]
fn monitors() {
    for _ in 0..3 {
        memtrack_core::start_monitor_with(&Options::new().without_host_heap()).expect("nothing is streamed");
        drop(memtrack_core::stop());
    }
}

/// A program that links memtrack and that no longer exports memtrack's `dlsym`: the test changes the name in the symbol table.
#[test]
fn a_monitor_without_its_hook_gets_one_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("unhooked");
    let test = child::this_program(monitors);
    let original = test.get_program();
    let run = |program: &OsStr| {
        let output = ends_well(Command::new(program).args(test.get_args()).current_dir(folder.path()));
        child::assert_passed(&output).errors
    };
    assert_eq!(run(original), "");
    fs::copy(original, &program).expect("it can be copied");
    let mut bytes = fs::read(&program).expect("it can be read");
    let (start, size) = {
        let file = object::File::parse(&*bytes).expect("an executable");
        file.section_by_name(".dynstr").and_then(|names| names.file_range()).expect("it is dynamic")
    };
    let names = &mut bytes[start as usize..(start + size) as usize];
    let name = b"\0dlsym\0";
    let at = names.windows(name.len()).position(|word| word == name).expect("it exports its dlsym");
    names[at + 1] = b'_';
    fs::write(&program, bytes).expect("it can be written");
    let text = run(program.as_os_str());
    assert_eq!(text.matches("the CUDA hook is not in place").count(), 1, "{text}");
    assert!(text.contains("`memtrack run -- PROGRAM`") && text.lines().count() == 1, "{text}");
}
