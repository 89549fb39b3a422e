//! Builds the programs in `tests/programs/*`, which need other features or versions, by a nested cargo: into a separate target
//! folder or, where they share the workspace's crates, into the tests' target folder.
//!
//! **Why are some of these programs members of the workspace?** A program that must not compile (`tests/macros`), is written by a
//! test (`tests/docs`), or needs one other feature (`cudarc_linked`, `allocators`) is a member behind a feature that only its
//! test enables. It is built in the tests' target folder for the whole workspace, so that cargo selects all other features
//! as for the tests and reuses memtrack's crates; trybuild, or a workspace for each program, would build them again. The
//! other programs are not members, because features and versions of the workspace must not affect them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns the target folder of the nested cargo for `program`.
pub fn target_folder(program: &str) -> PathBuf {
    let folder = folder_of_profile().with_file_name("tmp").join(program);
    fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// Returns a command for the cargo that runs the tests, or for the one in `PATH` if a test was started by hand. In the latter
/// case, a package's `rust-toolchain` file would select the toolchain.
pub fn cargo_command() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs `cargo ARGUMENTS` in `tests/programs/PROGRAM` with its lock file.
///
/// # Panics
/// When the packages in the lock file are missing and cannot be fetched, or when cargo fails. The message names the case and
/// contains cargo's output.
pub fn cargo(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(program);
    // Only this step may need the network, so that later failures are due to the program. It succeeds offline when all
    // packages are present.
    let mut fetch = cargo_command();
    fetch
        .args(["fetch", "--locked", "--quiet", "--target", env!("MEMTRACK_TESTS_HOST")])
        .current_dir(&folder);
    run(&mut fetch, &format!("{program} was not built, its packages cannot be fetched"));

    let (verb, rest) = arguments.split_first().expect("a verb for cargo");
    let mut cargo = cargo_command();
    cargo.arg(verb).args(["--locked", "--offline", "--quiet", "--target-dir"]).arg(target_folder(program));
    cargo.args(rest).envs(environment.iter().copied()).current_dir(&folder);
    run(&mut cargo, &format!("cargo {arguments:?} in {program}"))
}

/// Builds a workspace member's program that requires a feature and has the name of its package, and returns the executable's
/// path.
///
/// It is built in the target folder and profile of the running test, where everything that does not depend on the feature is
/// already built.
///
/// # Panics
/// When cargo fails; the message contains its output.
pub fn member(program: &str, feature: &str, environment: &[(&str, &str)]) -> PathBuf {
    let [path] = members([program], &format!("{program}/{feature}"), environment);
    path
}

/// Builds programs of workspace members that require `feature`, given as PACKAGE/FEATURE, as [`member`] does, and returns their
/// paths.
///
/// # Panics
/// When cargo fails; the message contains its output.
pub fn members<const N: usize>(
    programs: [&str; N],
    feature: &str,
    environment: &[(&str, &str)],
) -> [PathBuf; N] {
    let mut cargo = of_members(&programs, feature);
    cargo.arg("--quiet").envs(environment.iter().copied());
    run(&mut cargo, &format!("{programs:?} with {feature}"));
    programs.map(|program| folder_of_profile().join(program))
}

/// Returns a command that builds programs of workspace members as [`member`] does.
pub fn of_members(programs: &[&str], feature: &str) -> Command {
    let profile = folder_of_profile();
    let name = profile.file_name().and_then(|name| name.to_str()).expect("cargo names the folder");
    let mut cargo = cargo_command();
    // Builds only a few programs. `--workspace` makes cargo select the same features for all other crates as for the tests.
    cargo.args(["build", "--workspace", "--locked", "--offline"]);
    cargo.args(programs.iter().flat_map(|program| ["--bin", program]));
    cargo.args(["--profile", if name == "debug" { "dev" } else { name }, "--features", feature]);
    cargo.arg("--target-dir").arg(profile.with_file_name("")).current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}

/// Returns TARGET/PROFILE: a test runs as TARGET/PROFILE/deps/NAME.
fn folder_of_profile() -> PathBuf {
    let test = env::current_exe().expect("the path of the running test");
    test.ancestors().nth(2).expect("a test is in TARGET/PROFILE/deps").to_owned()
}

fn run(cargo: &mut Command, what: &str) -> Output {
    let output = cargo.output().expect("cargo can be run");
    assert!(
        output.status.success(),
        "{what}:\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
