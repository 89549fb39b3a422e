//! Sets the library's soname to `libcuda.so.1` and generates the table of its entry points: the functions that `src/entry/`
//! defines, and a stub for every other name in `names.txt`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=names.txt");
    println!("cargo:rerun-if-changed=src/entry");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Without this, the table would contain the addresses of a preloaded hook, which would then call itself.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");

    let defined = defined_entries(Path::new("src/entry"));
    let names = fs::read_to_string("names.txt").expect("names.txt can be read");
    let known: BTreeSet<&str> = names.lines().filter(|line| !line.is_empty()).collect();

    let mut code = String::new();
    let stubs: Vec<&str> = known.iter().copied().filter(|&name| !defined.contains(name)).collect();
    writeln!(code, "pub(crate) const STUBS: &std::ffi::CStr = c{:?};", stubs.join(" "))
        .expect("writing to a string cannot fail");
    for name in stubs {
        writeln!(
            code,
            "#[unsafe(no_mangle)]\nextern \"C\" fn {name}() -> i32 {{ crate::call::unsupported({name:?}) }}"
        )
        .expect("writing to a string cannot fail");
    }
    code.push_str("pub(crate) static ENTRIES: &[(&str, Address)] = &[\n");
    let all: BTreeSet<&str> = known.into_iter().chain(defined.iter().map(String::as_str)).collect();
    for name in all {
        writeln!(code, "({name:?}, Address({name} as *const ())),").expect("writing to a string cannot fail");
    }
    code.push_str("];\n");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("entries.rs"), code).expect("OUT_DIR can be written");
}

/// Returns the names of the functions `fn cu…` and their aliases (after `as`) in the source files of a folder.
fn defined_entries(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in fs::read_dir(folder).expect("src/entry can be listed") {
        let text = fs::read_to_string(file.expect("a file").path()).expect("a source can be read");
        for line in text.lines() {
            let Some(rest) = line.trim_start().strip_prefix("fn cu") else { continue };
            let head = rest.split('(').next().expect("split gives one part");
            let mut words = head.split_whitespace();
            names.extend(words.next().map(|name| format!("cu{name}")));
            names.extend(words.next_back().filter(|word| word.starts_with("cu")).map(String::from));
        }
    }
    names
}
