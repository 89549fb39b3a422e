//! The CUDA hook in a program that links memtrack, on the mock driver: each function that the hook wraps is called.

use crate::{lookups, readings, steps};
use memtrack_tests::mock_cuda::run_ignored_test;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;

/// Returns the functions that the hook wraps: a program that links the hook defines them under the driver's names.
fn wrapped() -> BTreeSet<String> {
    let program = std::fs::read(std::env::current_exe().expect("the test's path")).expect("it can be read");
    let program = object::File::parse(&*program).expect("an executable");
    let functions = program.symbols().filter(|symbol| symbol.is_definition());
    let names = functions.filter_map(|symbol| symbol.name().ok().map(str::to_owned));
    names
        .filter(|name| name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase)))
        .collect()
}

#[test]
fn every_wrapped_function_is_called_by_some_test() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace");
    let settings = [("MEMTRACK_MOCK_TRACE", trace.to_str().expect("a path"))];
    run_ignored_test(steps::every_kind, &settings);
    run_ignored_test(lookups::by_procedure, &settings);
    run_ignored_test(steps::teardown, &settings);
    run_ignored_test(steps::unmapping, &settings);
    run_ignored_test(readings::opened, &settings);
    let trace = std::fs::read_to_string(trace).expect("it was traced");
    let called: BTreeSet<&str> = trace.lines().filter_map(|line| line.strip_suffix(" 0")).collect();
    let wrapped = wrapped();
    assert!(wrapped.contains("cuMemAlloc_v2") && wrapped.len() > 30, "{wrapped:?}");
    let missing: Vec<_> = wrapped.iter().filter(|name| !called.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
