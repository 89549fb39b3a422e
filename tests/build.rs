//! Tells the tests what there is on this machine that they can be compared with: `src/here.rs`.

#[path = "src/here.rs"]
mod here;

use std::env;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/here.rs");
    let tests = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let workspace = Path::new(&tests).parent().expect("the tests lie in the workspace");
    let mut names = Vec::new();
    for (name, file) in here::look(workspace) {
        println!("cargo:rustc-check-cfg=cfg({name})");
        let Some(file) = file else { continue };
        println!("cargo:rustc-cfg={name}");
        // Asks again when it goes. A file that is not there cannot be watched, cargo would build all tests again each
        // time: when it comes, `tests/cli/here.rs` says so.
        if !file.as_os_str().is_empty() {
            println!("cargo:rerun-if-changed={}", file.display());
        }
        names.push(name);
    }
    println!("cargo:rustc-env=MEMTRACK_TESTS_HERE={}", names.join(" "));
    let host = env::var("HOST").expect("cargo sets HOST");
    println!("cargo:rustc-env=MEMTRACK_TESTS_HOST={host}");
}
