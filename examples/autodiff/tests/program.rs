//! Runs the example as a user does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the program and returns its standard output and standard error.
fn run(folder: &Path, arguments: &[&str]) -> (String, String) {
    let program = env!("CARGO_BIN_EXE_autodiff");
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    let [text, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{text}\n{errors}");
    (text, errors)
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_cycle_is_reported_once_and_its_pages_contain_the_stack() {
    let folder = folder("mistake");
    let (text, errors) = run(&folder, &[]);
    assert!(text.contains("step 8 "), "{text}");
    assert!(text.contains("8 cycles that nothing else holds keep 16.0 MiB (16 device buffers)"), "{text}");
    // The only warning follows the first step.
    assert_eq!(errors.matches("memtrack: ").count(), 1, "{errors}");
    assert!(errors.contains("1 cycle that nothing else holds keeps 2.0 MiB (2 device buffers)"), "{errors}");
    assert!(errors.contains("; make that reference weak"), "{errors}");
    assert!(errors.contains(".backward.handles.output::Kept.0"), "{errors}");
    let named = PathBuf::from(errors.split_once("\n  see ").expect("a path").1.trim_end());
    for page in [named, folder.join("memtrack-out/autodiff/cycles.html")] {
        let html = fs::read_to_string(&page).unwrap();
        assert!(html.contains("src/operators.rs:"), "the page {} has no stack", page.display());
        assert!(html.contains("operators::tanh"), "{}", page.display());
    }

    // A second run removes the files of the first; without the mistake, it writes none.
    let (text, errors) = run(&folder, &["fixed"]);
    assert!(text.contains("\nNo cycle.\n"), "{text}");
    assert_eq!(errors, "");
    assert_eq!(fs::read_dir(folder.join("memtrack-out/autodiff")).unwrap().count(), 0);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn another_argument_is_an_error_and_writes_nothing() {
    let folder = folder("argument");
    let output =
        Command::new(env!("CARGO_BIN_EXE_autodiff")).arg("fix").current_dir(&folder).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("`fixed`"));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    fs::remove_dir_all(folder).unwrap();
}
