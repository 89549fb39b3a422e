//! Function names in reports on C and Rust programs that `memtrack run --host` records: with system libraries and others, with
//! and without debug information, and with moved binaries.

use memtrack_tests::child::ends_well;
use memtrack_tests::memtrack;
use memtrack_tests::run::{Bench, stderr_text};
use std::fs;
use std::process::Command;

/// Compiles `source`, as `NAME.c`, to `output`.
fn compile(bench: &Bench, [name, output]: [&str; 2], source: &str, arguments: &[&str]) {
    let file = format!("{name}.c");
    fs::write(bench.path(&file), source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-w", "-O1", "-fno-omit-frame-pointer", &file, "-o", output]).args(arguments);
    ends_well(cc.current_dir(bench.folder.path()));
}

/// Records `program` as `FILE`.
fn record(bench: &Bench, file: &str, program: &str) {
    let output = bench.run(&["--host", "-o", file, "--", program]);
    assert!(output.status.success(), "{}", stderr_text(&output));
}

/// Runs a verb and returns its standard output.
fn verb(bench: &Bench, arguments: &[&str]) -> String {
    let mut command = Command::new(memtrack());
    let output =
        command.args(arguments).current_dir(bench.folder.path()).env("COLUMNS", "200").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", stderr_text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the line of the user's code that allocates the most bytes, followed by the name of the function that this line
/// calls.
fn first_line(bench: &Bench, file: &str, arguments: &[&str]) -> String {
    let json = verb(bench, &[&["top", file, "--by", "line", "--json"], arguments].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let row = &json["devices"][0]["rows"][0];
    let name = row["name"].as_str().unwrap().to_owned();
    match row["called"][0]["name"].as_str() {
        Some(called) => format!("{name} → {called}"),
        None => name,
    }
}

const PRINTS: &str = r#"#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) void render(char **out) { if (asprintf(out, "%3000000d", 1) < 0) abort(); }
int main(void) { char *p; render(&p); return p[0] == 'x'; }
"#;

#[test]
fn a_function_of_the_c_library_has_the_name_that_callers_use() {
    let bench = Bench::new();
    compile(&bench, ["prints", "prints"], PRINTS, &["-g"]);
    record(&bench, "a", "./prints");
    assert_eq!(first_line(&bench, "a", &[]), "prints.c:4 render → asprintf");
    compile(&bench, ["prints", "plain"], PRINTS, &[]);
    record(&bench, "b", "./plain");
    assert_eq!(first_line(&bench, "b", &[]), "render → asprintf");
    let summary = verb(&bench, &["summary", "a"]);
    assert!(summary.contains("prints.c:4 render"), "{summary}");
}

const STORE: &str = r"#include <stdlib.h>
__attribute__((noinline)) void *pages(long n) { char *p = malloc(n); p[0] = 1; return p; }
__attribute__((noinline)) void *store_open(long n) { char *p = pages(n); p[1] = 2; return p; }
";
const USES_STORE: &str = r"extern void *store_open(long);
char *kept;
__attribute__((noinline)) void fill(void) { kept = store_open(5000000); kept[3] = 1; }
int main(void) { fill(); return kept[0] == 9; }
";

#[test]
fn a_library_without_debug_information_is_not_user_code_unless_a_glob_matches_it() {
    let bench = Bench::new();
    let program = bench.path("program");
    let deps = bench.path("deps");
    fs::create_dir(&program).unwrap();
    fs::create_dir(&deps).unwrap();
    compile(&bench, ["store", "deps/libstore.so"], STORE, &["-shared", "-fPIC"]);
    let search = format!("-Wl,-rpath,{}", deps.display());
    compile(&bench, ["uses", "program/uses"], USES_STORE, &["-g", "-Ldeps", "-lstore", &search]);
    compile(&bench, ["uses", "program/without"], USES_STORE, &["-Ldeps", "-lstore", &search]);
    for (program, line) in [("./program/uses", "uses.c:3 fill"), ("./program/without", "fill")] {
        let file = program.rsplit('/').next().unwrap();
        record(&bench, file, program);
        assert_eq!(first_line(&bench, file, &[]), format!("{line} → store_open"));
        for glob in ["libstore.so", "libstore", "deps", deps.to_str().unwrap()] {
            assert_eq!(first_line(&bench, file, &["--mine", glob]), "pages", "{glob}");
        }
        let binary = program.trim_start_matches("./");
        assert!(first_line(&bench, file, &["--not-mine", binary]).starts_with("not your code: "), "{binary}");
    }
    // A glob for the binary's folder does not match sources in other folders.
    assert_eq!(first_line(&bench, "uses", &["--not-mine", "program"]), "uses.c:3 fill → store_open");
    assert!(first_line(&bench, "without", &["--not-mine", "program"]).starts_with("not your code: "));
}

const SHORT_NAMES: &str = r"#include <stdlib.h>
char *kept[3];
__attribute__((noinline)) void w(void) { kept[0] = malloc(3000000); kept[0][1] = 1; }
__attribute__((noinline)) void i(void) { kept[1] = malloc(2000000); kept[1][1] = 1; }
__attribute__((noinline)) void f(void) { kept[2] = malloc(1000000); kept[2][1] = 1; }
int main(void) { w(); i(); f(); return kept[0][0] == 9; }
";

#[test]
fn c_functions_keep_names_that_look_like_mangled_types() {
    let bench = Bench::new();
    for (program, arguments, places) in [
        ("lines", &["-g"][..], ["short.c:3 w", "short.c:4 i", "short.c:5 f"]),
        ("none", &[][..], ["w", "i", "f"]),
    ] {
        compile(&bench, ["short", program], SHORT_NAMES, arguments);
        record(&bench, &format!("{program}.memtrack"), &format!("./{program}"));
        let json = verb(&bench, &["top", &format!("{program}.memtrack"), "--by", "line", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let name = |row: usize| json["devices"][0]["rows"][row]["name"].as_str().unwrap().to_owned();
        assert_eq!([name(0), name(1), name(2)], places);
    }
}

#[test]
fn every_verb_that_prints_names_finds_moved_binaries() {
    let bench = Bench::new();
    compile(&bench, ["prints", "prints"], PRINTS, &["-g"]);
    record(&bench, "a.memtrack", "./prints");
    fs::create_dir(bench.path("moved")).unwrap();
    fs::rename(bench.path("prints"), bench.path("moved/renamed")).unwrap();
    let verbs: [&[&str]; 6] = [
        &["top", "a.memtrack", "--by", "line"],
        &["summary", "a.memtrack"],
        &["peak", "a.memtrack"],
        &["memory", "a.memtrack", "--folded"],
        &["memory", "a.memtrack", "--at", "peak", "--folded"],
        &["segments", "a.memtrack", "--folded"],
    ];
    for arguments in verbs {
        let without = verb(&bench, arguments);
        assert!(!without.contains("render"), "{arguments:?}: {without}");
        for place in ["moved", "moved/renamed"] {
            let with = verb(&bench, &[arguments, &["--symbols", place]].concat());
            assert!(with.contains("render"), "{arguments:?} {place}: {with}");
        }
    }
    for (arguments, output) in [
        (&["view", "a.memtrack", "-o", "a.html"][..], "a.html"),
        (&["convert", "a.memtrack", "a.json"][..], "a.json"),
    ] {
        verb(&bench, &[arguments, &["--symbols", "moved"]].concat());
        assert!(fs::read(bench.path(output)).unwrap().len() > 100, "{output}");
    }
    assert!(fs::read_to_string(bench.path("a.json")).unwrap().contains("render"));
    let mut command = Command::new(memtrack());
    let refused =
        command.args(["summary", "a.memtrack", "--symbols", "nowhere"]).current_dir(bench.folder.path());
    let refused = refused.output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr_text(&refused));
}

/// The source of a crate whose folder has a different name.
const CLOSURES: &str = r"use std::hint::black_box;
fn each(n: usize) -> Vec<Vec<u8>> {
    (0..n)
        .map(|i| {
            vec![i as u8; 1_000_000]
        })
        .collect()
}
fn main() {
    let run = |n: usize| -> Vec<u64> {
        let mut all = Vec::new();
        all.resize(n, 7u64);
        all
    };
    let here = run(black_box(1_000_000));
    let there = std::thread::spawn(|| {
        vec![1u32; black_box(1_500_000)]
    });
    let there = there.join().unwrap();
    black_box((here, there, each(black_box(4))));
}
";

#[test]
fn closures_are_named_after_the_function_around_them() {
    let bench = Bench::new();
    let source = bench.path("kernels/src");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("main.rs"), CLOSURES).unwrap();
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut rustc = Command::new(compiler);
    rustc.args(["--edition=2021", "-Copt-level=3", "-Cdebuginfo=line-tables-only", "--crate-name=wave"]);
    let main = source.join("main.rs");
    ends_well(rustc.arg(&main).args(["-o", "wave"]).current_dir(bench.folder.path()));
    record(&bench, "a", "./wave");
    let json = verb(&bench, &["top", "a", "--by", "line", "--device", "host", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = json["devices"][0]["rows"].as_array().unwrap();
    let large = rows.iter().filter(|row| row["requested_bytes"].as_u64().unwrap() >= 1_000_000);
    let names: Vec<&str> = large.map(|row| row["name"].as_str().unwrap()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["main.rs:12 main", "main.rs:17 main", "main.rs:5 each"], "{json:#}");
}
