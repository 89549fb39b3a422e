//! Finds the preload libraries, which cargo has built as build-dependencies, and has the command embed them.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(unoptimised_preload)");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // The folder of this machine's libraries where a distribution has one for each kind of machine.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    println!("cargo:rustc-env=MEMTRACK_MULTIARCH={arch}-linux-gnu");
    let recorder = embed("memtrack_preload", &out.join("preload.so"));
    embed("memtrack_preload_heap", &out.join("preload_heap.so"));
    // As its own build script had it say.
    let text = b"memtrack-preload opt-level=0;";
    if recorder.windows(text.len()).any(|window| window == text) {
        println!("cargo:rustc-cfg=unoptimised_preload");
    }
}

/// Copies a library to where the command embeds it from; its bytes, none where there is none.
fn embed(name: &str, to: &Path) -> Vec<u8> {
    // Build-dependencies are built for this machine, so for another one there is nothing to embed.
    let fits = env::var("TARGET") == env::var("HOST")
        && env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux")
        && env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    let bytes = match fits.then(|| library(name)).flatten() {
        Some(library) => {
            println!("cargo:rerun-if-changed={}", library.display());
            fs::read(&library).expect("the preload library can be read")
        }
        None => Vec::new(),
    };
    fs::write(to, &bytes).expect("OUT_DIR can be written");
    bytes
}

/// The newest `libNAME.so` or `libNAME-HASH.so` beside what else was built for this machine: this program runs as
/// `TARGET/PROFILE/build/PACKAGE/build-script-build`.
fn library(name: &str) -> Option<PathBuf> {
    let program = env::current_exe().expect("the path of this program");
    let folder = program.ancestors().nth(3)?.join("deps");
    let is_library = |path: &Path| {
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let rest = file.strip_prefix("lib").and_then(|file| file.strip_prefix(name));
        rest.is_some_and(|rest| rest == ".so" || (rest.starts_with('-') && rest.ends_with(".so")))
    };
    let entries = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    entries
        .filter(|path| is_library(path))
        .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
}
