//! Whether a test is ignored depends on the tools and data that were present when the tests were built. Cargo rebuilds the tests
//! when one of these was removed; this module makes cargo rebuild them when one was added.

use memtrack_tests::{requirements, workspace};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Lists the names in `now` that are not in `before`.
fn new(now: &[&str], before: &[&str]) -> String {
    now.iter().filter(|name| !before.contains(name)).copied().collect::<Vec<_>>().join(", ")
}

/// Returns the message about tools and data that were added or removed since the build.
fn difference(built: &[&str], now: &[&str]) -> Option<String> {
    let (added, removed) = (new(now, built), new(built, now));
    let parts = [(added, "was added"), (removed, "was removed")];
    let parts: Vec<_> = parts
        .iter()
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, how)| format!("{names} {how}"))
        .collect();
    (!parts.is_empty()).then(|| {
        format!(
            "since the tests were built, {}: tests that need it are ignored, or not, as it was before, and the next \
             `cargo test` rebuilds them\n",
            parts.join(", ")
        )
    })
}

/// Returns whether the file of the build script was modified, so that cargo will rerun the script. The script sets the file's
/// modification time to a date long ago.
fn is_touched(file: &Path) -> bool {
    let modified = fs::metadata(file).and_then(|data| data.modified()).expect("the build script writes it");
    modified > SystemTime::UNIX_EPOCH + Duration::from_secs(365 * 24 * 60 * 60)
}

#[test]
fn newly_installed_requirements_make_cargo_rebuild_the_tests() {
    let file = Path::new(env!("OUT_DIR")).join("requirements");
    let built: Vec<&str> = env!("MEMTRACK_TESTS_REQUIREMENTS_MET").split_whitespace().collect();
    let now: Vec<&str> = requirements::look(workspace())
        .into_iter()
        .filter_map(|(name, found)| found.and(Some(name)))
        .collect();
    let difference = difference(&built, &now);
    if let Some(text) = &difference {
        fs::write(&file, now.join(" ")).expect("the target folder can be written");
        // Bypasses libtest, which hides the output of tests that pass.
        std::io::stderr().write_all(text.as_bytes()).expect("stderr can be written");
    }
    assert!(difference.is_none() || is_touched(&file));
}

#[test]
fn the_message_names_what_was_added_and_removed() {
    assert_eq!(difference(&["bash", "git"], &["bash", "git"]), None);
    let added = difference(&["bash"], &["bash", "git", "perl"]).unwrap();
    assert!(added.starts_with("since the tests were built, git, perl was added: "), "{added}");
    let both = difference(&["bash", "git"], &["perl"]).unwrap();
    assert!(
        both.starts_with("since the tests were built, perl was added, bash, git was removed: "),
        "{both}"
    );
}
