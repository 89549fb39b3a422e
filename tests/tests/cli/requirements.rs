//! Tests are ignored or not by what there was when they were built. Cargo builds them anew when something of that has gone; when
//! something has come, this program sees to it.

use memtrack_tests::{requirements, workspace};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// What of `now` is not in `before`, in words.
fn new(now: &[&str], before: &[&str]) -> String {
    now.iter().filter(|name| !before.contains(name)).copied().collect::<Vec<_>>().join(", ")
}

/// The message about the difference, if there is one.
fn difference(built: &[&str], now: &[&str]) -> Option<String> {
    let (came, went) = (new(now, built), new(built, now));
    let parts = [(came, "has come"), (went, "has gone")];
    let parts: Vec<_> = parts
        .iter()
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, how)| format!("{names} {how}"))
        .collect();
    (!parts.is_empty()).then(|| {
        format!(
            "since the tests were built, {}: tests that need it are ignored, or not, as it was before, and the next \
             `cargo test` builds them anew\n",
            parts.join(", ")
        )
    })
}

/// Whether cargo will run the build script again because of its file: it writes it as of long ago.
fn is_touched(file: &Path) -> bool {
    let modified = fs::metadata(file).and_then(|data| data.modified()).expect("the build script makes it");
    modified > SystemTime::UNIX_EPOCH + Duration::from_secs(365 * 24 * 60 * 60)
}

#[test]
fn what_tests_compare_with_is_looked_for_again_when_something_was_installed() {
    let file = Path::new(env!("OUT_DIR")).join("requirements");
    let built: Vec<&str> = env!("MEMTRACK_TESTS_REQUIREMENTS_MET").split_whitespace().collect();
    let now: Vec<&str> = requirements::look(workspace())
        .into_iter()
        .filter_map(|(name, found)| found.and(Some(name)))
        .collect();
    let difference = difference(&built, &now);
    if let Some(text) = &difference {
        fs::write(&file, now.join(" ")).expect("the target folder can be written");
        // Past libtest, which would keep to itself what a test prints that passes.
        std::io::stderr().write_all(text.as_bytes()).expect("stderr can be written");
    }
    assert!(difference.is_none() || is_touched(&file));
}

#[test]
fn what_came_and_what_went_is_named() {
    assert_eq!(difference(&["bash", "git"], &["bash", "git"]), None);
    let came = difference(&["bash"], &["bash", "git", "perl"]).unwrap();
    assert!(came.starts_with("since the tests were built, git, perl has come: "), "{came}");
    let both = difference(&["bash", "git"], &["perl"]).unwrap();
    assert!(both.starts_with("since the tests were built, perl has come, bash, git has gone: "), "{both}");
}
