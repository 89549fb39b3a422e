//! Shared parts of the end-to-end tests: the command, child processes, the fixtures, and the reference data next to the project.
//!
//! **Why so few test programs?** Each links all of memtrack: 94 of them took 4.5 GB, eight took 0.4 GB, and now there are
//! seven. Cargo passes a test only the paths of programs of the same package, so the tests build the command as
//! `memtrack-tested`, with the features that cargo unifies, including the hook. `.ci/run` tests the release build
//! without these features.

pub mod allocator;
pub mod at_once;
pub mod child;
pub mod counting;
#[cfg(unix)]
pub mod forked;
pub mod http;
pub mod lone;
pub mod mock_cuda;
pub mod nested;
pub mod opcodes;
pub mod pluggable;
pub mod pprof;
pub mod pytorch;
pub mod ranks;
pub mod replay;
pub mod requirements;
pub mod run;
pub mod schema;
pub mod scopes;
pub mod snapshots;
#[cfg(unix)]
pub mod time;
pub mod verbs;
pub mod watched;

use std::path::{Path, PathBuf};

/// Returns the path of this package's `memtrack` command, which cargo builds before it runs a test.
///
/// # Panics
/// When the command was never built.
pub fn memtrack() -> PathBuf {
    // Cargo passes the path to tests. A test that was started by hand is in TARGET/PROFILE/deps, and the command is in the
    // parent folder.
    let beside = || {
        let test = std::env::current_exe().ok()?;
        Some(test.parent()?.with_file_name(format!("memtrack-tested{}", std::env::consts::EXE_SUFFIX)))
    };
    let named = std::env::var_os("CARGO_BIN_EXE_memtrack-tested").map(PathBuf::from);
    named.or_else(beside).filter(|path| path.is_file()).expect("cargo builds the command for the tests")
}

/// Returns the path of a file or folder in `tests/fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// Returns the path of a file or folder in `tests/oracle/data`: reference data with PyTorch's results for it.
pub fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle/data").join(name)
}

/// Returns the folder with reference data that cannot be published, such as other people's snapshots: `shared/` next to the
/// workspace. Only tests that are ignored without it use it (see [`requirements`]).
///
/// # Panics
/// When the folder does not exist.
pub fn shared() -> PathBuf {
    let shared = workspace().join("../shared");
    assert!(
        shared.join("oracle").is_dir(),
        "a test that needs {} is not ignored without it",
        shared.display()
    );
    shared
}

/// Returns the workspace's root.
///
/// # Panics
/// Never: the tests are in the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in the workspace")
}
