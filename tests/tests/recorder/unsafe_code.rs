//! The complete list of the files that may use `unsafe`. The workspace denies `unsafe` (`unsafe_code` in Cargo.toml); each of
//! these files, or the root file of its folder, allows it.

use memtrack_tests::workspace;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Folders, the files in them that use `unsafe`, and the purpose of that use.
const FILES: &[(&str, &str, &str)] = &[
    ("memtrack-cli/src", "c_heap", "a setting of glibc's heap"),
    (
        "memtrack-cli/src/run",
        "collector exec inherited library wait",
        "forks; reads before `main`; a query to the loader; signals",
    ),
    (
        "memtrack-cli/preload/src",
        "ends heap lib mapped next_function pages private_heap tls",
        "the loader's list of functions, C's heap",
    ),
    (
        "memtrack-cli/preload/src/python",
        "arenas calls domains interpreter sizes",
        "functions of CPython, tables by address",
    ),
    ("memtrack-cli/preload/src/jemalloc", "find mod sizes", "functions of jemalloc, tables by address"),
    ("memtrack-cli/preload-heap/src", "lib", "naked jumps"),
    ("memtrack-core/allocator/src/api", "device_buffer", "calls to the driver"),
    ("memtrack-core/allocator/src/backend", "pluggable", "the functions of another library"),
    ("memtrack-core/allocator/src/backend/malloc_async", "device", "calls to the driver"),
    ("memtrack-core/allocator/src/memory", "cuda_context cuda_memory", "calls to the driver"),
    (
        "memtrack-core/cuda/src/hook",
        "absent driver entry mod table watch",
        "the driver's C functions, a naked `dlsym`",
    ),
    (
        "memtrack-core/cuda/src/hook/wrap",
        "arrays contexts ipc memory physical pools procedures",
        "the driver's C functions",
    ),
    ("memtrack-core/cuda/src", "run", "system calls"),
    ("memtrack-core/report/src", "terminal", "system calls"),
    ("memtrack-core/run/src", "census lib limits", "C strings, exit handlers, system calls"),
    ("memtrack-core/cuda/src/stats", "calls", "cudarc's raw functions"),
    ("memtrack-core/pluggable/src", "lib extensions", "C functions"),
    ("memtrack-core/recorder/src/allocator", "mod", "`GlobalAlloc`"),
    (
        "memtrack-core/recorder/src",
        "clock environment errno",
        "the processor's counter, the auxiliary vector, `errno`",
    ),
    (
        "memtrack-core/recorder/src",
        "background guarded_file internal_pages message signals",
        "threads, system calls",
    ),
    ("memtrack-core/recorder/src/dumps", "signal stall", "a signal's handler, `poll`"),
    ("memtrack-core/recorder/src", "probes", "a `nop` with a note that tools outside the program read"),
    ("memtrack-core/serve/src/http", "forked", "a fork handler"),
    ("memtrack-core/collector/src", "system", "descriptors of processes"),
    (
        "memtrack-core/recorder/src/shared_memory",
        "arena command log mod region",
        "memory that other processes map too",
    ),
    ("memtrack-core/recorder/src/mapped", "kind", "queries about a file"),
    ("memtrack-core/recorder/src", "shared_map", "the pairs of a locked shard"),
    ("memtrack-core/recorder/src", "zeroed", "tables that begin as zeros"),
    (
        "memtrack-core/recorder/src/host",
        "counting live_filter mod reserve transferred",
        "tables that are read without a lock",
    ),
    (
        "memtrack-core/recorder/src/events",
        "barrier binaries chunk collect current_thread exit filling fork inherit resident ring same_memory scope_sums \
         stream_file streaming thread_names thread_sums threads unload",
        "chunks, states that are never freed, a few system calls",
    ),
    (
        "memtrack-core/recorder/src/python/reader",
        "codes elf functions interpreter memory stacks suspension table walk",
        "the interpreter's memory, and the functions that it exports",
    ),
    ("memtrack-core/recorder/src/scope", "link", "pointers to nodes and names that are never freed"),
    ("memtrack-core/recorder/src/stack", "modules", "the loader's list"),
    ("memtrack-core/recorder/src/stack", "separate_stack", "a naked switch of stacks"),
    (
        "memtrack-core/recorder/src/stack/capture",
        "bounds foreign frame_pointers mappings registers slow",
        "registers, the words of stacks",
    ),
    ("memtrack-core/recorder/src/stack/capture/unwind_tables", "loader mod sections", "the loader's memory"),
];

/// Folders in which any file may use `unsafe`: tests, benchmarks and examples, which are not part of the library.
const FOLDERS: [&str; 4] = ["examples/benches/", "examples/cuda/", "memtrack-core/benches/", "tests/"];

#[test]
fn only_listed_files_use_unsafe() {
    let listed: BTreeSet<String> = FILES
        .iter()
        .flat_map(|(folder, names, _)| {
            names.split_whitespace().map(move |name| format!("{folder}/{name}.rs"))
        })
        .collect();
    let mut files = Vec::new();
    sources(workspace(), &mut files);
    assert!(files.len() > 500, "{} files", files.len());
    let (mut using, mut elsewhere) = (BTreeSet::new(), BTreeSet::new());
    let mut unlisted = Vec::new();
    for file in files {
        let uses = uses_of(&code_of(&fs::read_to_string(workspace().join(&file)).unwrap()));
        if let Some(folder) = FOLDERS.into_iter().find(|folder| file.starts_with(folder)) {
            elsewhere.extend((uses != Uses::Nothing).then_some(folder));
        } else if uses != Uses::Nothing && !listed.contains(&file) {
            unlisted.push(file);
        } else if uses == Uses::Unsafe || uses == Uses::Permission && is_head_of_folder(&file) {
            using.insert(file);
        }
    }
    assert!(unlisted.is_empty(), "`unsafe` in files that are not on the list: {unlisted:#?}");
    let unused: Vec<&String> = listed.difference(&using).collect();
    assert!(unused.is_empty(), "on the list, but without `unsafe` or not there: {unused:#?}");
    assert_eq!(elsewhere, BTreeSet::from(FOLDERS), "every folder on the list has `unsafe`");
}

/// Collects all Rust files below `folder`, except in build-output folders.
fn sources(folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap_or_default();
        if path.is_symlink() || name.starts_with('.') || ["target", "node_modules"].contains(&name) {
            continue;
        }
        if path.is_dir() {
            sources(&path, files);
        } else if name.ends_with(".rs") {
            files.push(path.strip_prefix(workspace()).unwrap().to_str().unwrap().to_owned());
        }
    }
}

/// A file's use of `unsafe`.
#[derive(Debug, PartialEq)]
enum Uses {
    Nothing,
    /// Only the attribute that allows `unsafe`, which the root file of a folder needs.
    Permission,
    Unsafe,
}

fn uses_of(code: &str) -> Uses {
    let words = words(code);
    let mut found = Uses::Nothing;
    for (at, &word) in words.iter().enumerate() {
        if word == "unsafe" && is_code(&words[at + 1..]) {
            return Uses::Unsafe;
        }
        if word == "unsafe_code" {
            let level = words[..at].iter().rfind(|word| LEVELS.contains(word));
            if level.is_some_and(|level| ["allow", "expect"].contains(level)) {
                found = Uses::Permission;
            }
        }
    }
    found
}

const LEVELS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];

/// Returns whether a file's attributes apply to other files, too.
fn is_head_of_folder(file: &str) -> bool {
    ["mod.rs", "lib.rs"].iter().any(|name| file.ends_with(&format!("/{name}")))
}

/// Returns whether an `unsafe` before these words is code, not part of a type (`unsafe extern "C" fn(…)`) or a macro's token.
fn is_code(after: &[&str]) -> bool {
    let mut after = after.iter().skip_while(|word| ["async", "const", "extern", "\"\""].contains(word));
    match after.next() {
        Some(&"fn") => after.next().is_some_and(|word| *word != "("),
        Some(word) => ["{", "(", "impl", "trait"].contains(word),
        None => false,
    }
}

/// Splits code into names, `""` for each string, and all other characters singly.
fn words(code: &str) -> Vec<&str> {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    let mut words = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if is_name(first) => rest.find(|character: char| !is_name(character)).unwrap_or(rest.len()),
            '"' => 2,
            _ => first.len_utf8(),
        };
        words.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    words
}

/// Returns a file's text without comments and character literals, and with `""` for each string.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let in_name = code.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let (length, stands_for) = match first {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), " "),
            '/' if rest.starts_with("/*") => (block_comment(rest), " "),
            '"' => (1 + until_quote(&rest[1..], '"'), "\"\""),
            'r' if !in_name || code.ends_with(['b', 'c']) => match raw_string(rest) {
                Some(length) => (length, "\"\""),
                None => (1, "r"),
            },
            '\'' if is_character(rest) => (1 + until_quote(&rest[1..], '\''), " "),
            _ => (first.len_utf8(), &rest[..first.len_utf8()]),
        };
        code.push_str(stands_for);
        rest = &rest[length..];
    }
    code
}

/// Returns the length of a block comment, which may contain nested comments.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        depth = match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => depth + 1,
            [b'*', b'/', ..] => depth - 1,
            [_, ..] => {
                at += 1;
                continue;
            }
            [] => return at,
        };
        at += 2;
        if depth == 0 {
            return at;
        }
    }
}

/// Returns the length up to and including the next `quote` that is not escaped.
fn until_quote(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in rest.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the length of a raw string, if one begins with this `r`.
fn raw_string(rest: &str) -> Option<usize> {
    let (hashes, _) = rest[1..].split_once('"')?;
    if hashes.contains(|character: char| character != '#') {
        return None;
    }
    let begin = 2 + hashes.len();
    let end = format!("\"{hashes}");
    Some(begin + rest[begin..].find(&end)? + end.len())
}

/// Returns whether a character literal begins here, rather than a lifetime.
fn is_character(rest: &str) -> bool {
    let mut characters = rest.chars().skip(1);
    characters.next() == Some('\\') || characters.next() == Some('\'')
}

#[test]
fn only_code_counts_as_unsafe() {
    let uses = |text: &str| uses_of(&code_of(text));
    for text in [
        "unsafe { f() }",
        "unsafe fn f() {}",
        "pub unsafe extern \"C\" fn f() {}",
        "unsafe impl Send for A {}",
        "unsafe extern \"C\" { fn f(); }",
        "#[unsafe(no_mangle)] fn f() {}",
        "let a = '\"'; unsafe { f() } // \"",
        "fn f<'a>(a: &'a str) { unsafe { g(a) } }",
        "let a = r#\"\"\"#; unsafe {}",
        "let a = '\\''; /* /* */ */ unsafe {}",
    ] {
        assert_eq!(uses(text), Uses::Unsafe, "{text}");
    }
    for text in [
        "// unsafe { f() }",
        "/* /* */ unsafe { f() } */",
        "let a = \"\\\" unsafe {\";",
        "let a = br#\"\" unsafe {\"#;",
        "type A = unsafe extern \"C\" fn(i32);",
        "input.peek(Token![unsafe])",
        "#![forbid(unsafe_code)]",
    ] {
        assert_eq!(uses(text), Uses::Nothing, "{text}");
    }
    assert_eq!(uses("#![allow(dead_code, unsafe_code)]"), Uses::Permission);
}
