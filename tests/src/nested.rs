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

/// Runs `cargo ARGUMENTS` in `tests/programs/PROGRAM` with its lock file: without the network first, then with it.
///
/// # Panics
/// When cargo fails both ways; the message holds its output.
pub fn cargo(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    cargo_into(program, program, arguments, environment)
}

/// The same, building in `target_folder(target)`: programs with nearly the same dependencies share one.
///
/// # Panics
/// When cargo fails both ways; the message holds its output.
pub fn cargo_into(target: &str, program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(program);
    let (verb, rest) = arguments.split_first().expect("a verb for cargo");
    let run = |network: &[&str]| {
        Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .arg(verb)
            .args(["--locked", "--quiet", "--target-dir"])
            .arg(target_folder(target))
            .args(network)
            .args(rest)
            .envs(environment.iter().copied())
            .current_dir(&folder)
            .output()
            .expect("cargo can be run")
    };
    let mut output = run(&["--offline"]);
    if !output.status.success() {
        output = run(&[]);
    }
    assert!(
        output.status.success(),
        "cargo {arguments:?} in {program}:\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
