//! Sets a `cfg` for each of the tests' requirements that this machine meets; `src/requirements.rs` lists them.
//!
//! **Why at build time?** Libtest ignores a test only if that was decided when the test was compiled. Cargo cannot watch for
//! files that do not exist yet (if a build script names a missing file, every build runs the script and rebuilds all tests), so
//! `tests/tests/cli/requirements.rs` checks for added files, reports them, and touches a file that this script names. The tests
//! that need the added files are still ignored in that run; the next run rebuilds them.

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
        // Cargo reruns the script when the file is removed. A missing file is not named, because cargo would rebuild all tests
        // each time. When the file is added, `tests/tests/cli/requirements.rs` touches the file below.
        if !file.as_os_str().is_empty() {
            println!("cargo:rerun-if-changed={}", file.display());
        }
        names.push(name);
    }
    println!("cargo:rustc-env=MEMTRACK_TESTS_REQUIREMENTS_MET={}", names.join(" "));
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let file = Path::new(&out).join("requirements");
    fs::write(&file, names.join(" ")).expect("OUT_DIR can be written");
    // Cargo reruns the script if a named file is newer than the script's last run, so the file gets an old date.
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(24 * 60 * 60);
    let of_file = fs::File::options().write(true).open(&file);
    of_file.and_then(|file| file.set_modified(long_ago)).expect("its time can be set");
    println!("cargo:rerun-if-changed={}", file.display());
    let host = env::var("HOST").expect("cargo sets HOST");
    println!("cargo:rustc-env=MEMTRACK_TESTS_HOST={host}");
}
