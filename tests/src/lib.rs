//! What the end-to-end tests share: the real executable, the fixtures, and the reference data beside the project.

pub mod allocator;
pub mod child;
pub mod counting;
pub mod here;
pub mod mock_cuda;
pub mod nested;
pub mod opcodes;
pub mod pluggable;
pub mod pytorch;
pub mod replay;
pub mod run;
pub mod scopes;
pub mod snapshots;
pub mod verbs;
pub mod watched;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The `memtrack` executable, built once per test process into the target folder the tests themselves run from, with
/// the profile they were built with.
///
/// # Panics
/// When it cannot be built; cargo's own message is on standard error.
pub fn memtrack() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(build).clone()
}

/// cargo builds no executables of other packages for an integration test, so the tests ask for it themselves.
fn build() -> PathBuf {
    // A test runs as TARGET/PROFILE/deps/NAME.
    let test = std::env::current_exe().expect("the path of the running test");
    let profile_folder = test.ancestors().nth(2).expect("a test lies in TARGET/PROFILE/deps");
    let target_folder = profile_folder.parent().expect("a profile folder lies in the target folder");
    let mut cargo = nested::cargo_command();
    cargo
        .args(["build", "--quiet", "--locked", "-p", "memtrack-cli", "--bin", "memtrack", "--target-dir"])
        .arg(target_folder);
    // Folders have the names of their profiles, but for the oldest of them.
    match profile_folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => {}
        Some(profile) => {
            cargo.args(["--profile", profile]);
        }
    }
    let status = cargo.current_dir(workspace()).status().expect("cargo can be run");
    assert!(status.success(), "memtrack-cli does not build");
    profile_folder.join(format!("memtrack{}", std::env::consts::EXE_SUFFIX))
}

/// A file or folder in `tests/fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// The reference data shared by all work on memtrack: `shared/` beside the workspace. Only tests that are ignored without
/// it ask for it (see [`here`]).
///
/// # Panics
/// When it is not there.
pub fn shared() -> PathBuf {
    let shared = workspace().join("../shared");
    assert!(
        shared.join("oracle").is_dir(),
        "a test that needs {} is not ignored without it",
        shared.display()
    );
    shared
}

/// The workspace's root.
///
/// # Panics
/// Never: the tests lie in it.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the workspace")
}
