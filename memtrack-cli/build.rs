//! Finds the preload library, which cargo has built as a build-dependency, and has the command embed it.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(unoptimised_preload)");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let embedded = out.join("preload.so");
    // Build-dependencies are built for this machine, so for another one there is nothing to embed.
    let fits = env::var("TARGET") == env::var("HOST")
        && env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux")
        && env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    match fits.then(library).flatten() {
        Some(library) => {
            println!("cargo:rerun-if-changed={}", library.display());
            let bytes = fs::read(&library).expect("the preload library can be read");
            // As its own build script had it say.
            let says = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
            if says(b"memtrack-preload opt-level=0;") {
                println!("cargo:rustc-cfg=unoptimised_preload");
            }
            fs::write(&embedded, bytes).expect("OUT_DIR can be written");
        }
        None => fs::write(&embedded, []).expect("OUT_DIR can be written"),
    }
}

/// The newest `libmemtrack_preload*.so` beside what else was built for this machine: this program runs as
/// `TARGET/PROFILE/build/PACKAGE/build-script-build`.
fn library() -> Option<PathBuf> {
    let program = env::current_exe().expect("the path of this program");
    let folder = program.ancestors().nth(3)?.join("deps");
    let is_library = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libmemtrack_preload") && name.ends_with(".so")
    };
    let entries = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    entries
        .filter(|path| is_library(path))
        .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
}
