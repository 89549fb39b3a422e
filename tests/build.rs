//! Tells the tests what there is on this machine that they can be compared with: `src/requirements.rs`.

#[path = "src/requirements.rs"]
mod requirements;

use std::env;
use std::path::Path;

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
        // Asks again when it goes. A file that is not there cannot be watched, cargo would build all tests again each
        // time: when it comes, `tests/cli/requirements.rs` says so.
        if !file.as_os_str().is_empty() {
            println!("cargo:rerun-if-changed={}", file.display());
        }
        names.push(name);
    }
    println!("cargo:rustc-env=MEMTRACK_TESTS_REQUIREMENTS_MET={}", names.join(" "));
    let host = env::var("HOST").expect("cargo sets HOST");
    println!("cargo:rustc-env=MEMTRACK_TESTS_HOST={host}");
}
