//! Programs in `tests/programs/*`, which need features or versions of their own: built by a nested cargo into a target
//! folder of their own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where the nested cargo of `program` builds.
pub fn target_folder(program: &str) -> PathBuf {
    // A test runs as TARGET/PROFILE/deps/NAME.
    let test = env::current_exe().expect("the path of the running test");
    let target = test.ancestors().nth(3).expect("a test lies in TARGET/PROFILE/deps");
    let folder = target.join("tmp").join(program);
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
    cargo_into(program, program, arguments, environment)
}

/// The same, building in `target_folder(target)`: programs with nearly the same dependencies share one.
///
/// # Panics
/// As [`cargo`] does.
pub fn cargo_into(target: &str, program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
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
    cargo.arg(verb).args(["--locked", "--offline", "--quiet", "--target-dir"]).arg(target_folder(target));
    cargo.args(rest).envs(environment.iter().copied()).current_dir(&folder);
    run(&mut cargo, &format!("cargo {arguments:?} in {program}"))
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
