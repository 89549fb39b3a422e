//! Tests are ignored or not by what there was when they were built.

use memtrack_tests::{requirements, workspace};

#[test]
fn what_tests_compare_with_is_what_there_was_when_they_were_built() {
    let now = requirements::look(workspace()).into_iter().filter_map(|(name, file)| file.and(Some(name)));
    assert_eq!(
        now.collect::<Vec<_>>().join(" "),
        env!("MEMTRACK_TESTS_REQUIREMENTS_MET"),
        "there is something else here now (left) than when the tests were built: `touch tests/build.rs`, and test again"
    );
}
