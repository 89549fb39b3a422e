//! Tells the tests what there is on this machine that they can be compared with: `src/requirements.rs`.
//!
//! **Why when the tests are built?** Libtest can ignore a test only then. Files that appear later cannot be watched
//! (cargo runs a build script at each build if it names a missing file, and builds all tests again), so
//! `tests/tests/cli/requirements.rs` looks for them, reports what has come, and touches a file that the build script
//! names: the tests that need it are ignored in that run, and built anew by the next.

#[path = "src/requirements.rs"]
mod requirements;

use std::env;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/requirements.rs");
    let tests = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let workspace = Path::new(&tests).parent().expect("the tests lie in the workspace");
    let mut names = Vec::new();
    for (name, file) in requirements::look(workspace) {
        println!("cargo:rustc-check-cfg=cfg({name})");
        let Some(file) = file else { continue };
        println!("cargo:rustc-cfg={name}");
        // Looks again when it goes. A file that is not there cannot be watched, cargo would build all tests again each
        // time: when it comes, `tests/cli/requirements.rs` touches the file below.
        if !file.as_os_str().is_empty() {
            println!("cargo:rerun-if-changed={}", file.display());
        }
        names.push(name);
    }
    println!("cargo:rustc-env=MEMTRACK_TESTS_REQUIREMENTS_MET={}", names.join(" "));
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let file = Path::new(&out).join("requirements");
    fs::write(&file, names.join(" ")).expect("OUT_DIR can be written");
    // What is newer than this run of the script has cargo run it again.
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(24 * 60 * 60);
    let of_file = fs::File::options().write(true).open(&file);
    of_file.and_then(|file| file.set_modified(long_ago)).expect("its time can be set");
    println!("cargo:rerun-if-changed={}", file.display());
    let host = env::var("HOST").expect("cargo sets HOST");
    println!("cargo:rustc-env=MEMTRACK_TESTS_HOST={host}");
}
