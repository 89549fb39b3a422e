//! Programs in `tests/programs/*`, which need features or versions of their own: built by a nested cargo, into a target
//! folder of their own or, as far as they are built from the same crates, into that of the tests.
//!
//! **Why are some of them members of the workspace?** A program that must not compile (`tests/macros`), is written by a
//! test (`tests/docs`), or needs one other feature (`cudarc_linked`) is a member behind a feature that only its test
//! names. It is built in the tests' own target folder for the whole workspace, so that cargo chooses all other features
//! as it did for the tests; trybuild, and a workspace for each program, built all of memtrack's crates again. Features
//! and versions of the workspace must not reach the others.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where the nested cargo of `program` builds.
pub fn target_folder(program: &str) -> PathBuf {
    let folder = folder_of_profile().with_file_name("tmp").join(program);
    fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// A command for the cargo that runs the tests, or for the one in `PATH` where a test was started by hand: cargo itself
/// without rustup's choice of a toolchain would let packages choose, some of which hold a `rust-toolchain` file.
pub fn cargo_command() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs `cargo ARGUMENTS` in `tests/programs/PROGRAM` with its lock file.
///
/// # Panics
/// When the packages that the lock file names are not here and cannot be fetched, or when cargo fails. The message says
/// which of the two, and holds cargo's output.
pub fn cargo(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(program);
    // First what may need the network, and nothing else: what fails after it is the program's fault. Without the network
    // it goes well too when everything is here.
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

/// Builds the program of a member of the workspace that is built with a feature only, and is called as its package is;
/// the executable.
///
/// It lies in the target folder of the running test, in the same profile: what does not depend on the feature is there.
///
/// # Panics
/// When cargo fails; the message holds its output.
pub fn member(program: &str, feature: &str, environment: &[(&str, &str)]) -> PathBuf {
    let mut cargo = of_members(&[program], &format!("{program}/{feature}"));
    cargo.arg("--quiet").envs(environment.iter().copied());
    run(&mut cargo, &format!("{program} with {feature}"));
    folder_of_profile().join(program)
}

/// A command that builds programs of members of the workspace, as [`member`] does.
pub fn of_members(programs: &[&str], feature: &str) -> Command {
    let profile = folder_of_profile();
    let name = profile.file_name().and_then(|name| name.to_str()).expect("cargo names the folder");
    let mut cargo = cargo_command();
    // Of the whole workspace a few programs: so cargo chooses the features of all other crates as it did for the tests.
    cargo.args(["build", "--workspace", "--locked", "--offline"]);
    cargo.args(programs.iter().flat_map(|program| ["--bin", program]));
    cargo.args(["--profile", if name == "debug" { "dev" } else { name }, "--features", feature]);
    cargo.arg("--target-dir").arg(profile.with_file_name("")).current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}

/// TARGET/PROFILE: a test runs as TARGET/PROFILE/deps/NAME.
fn folder_of_profile() -> PathBuf {
    let test = env::current_exe().expect("the path of the running test");
    test.ancestors().nth(2).expect("a test lies in TARGET/PROFILE/deps").to_owned()
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
