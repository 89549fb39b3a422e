//! The packages depend on each other as ARCHITECTURE.md says, and never upwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The list of ARCHITECTURE.md, in its order.
fn stated() -> Vec<(String, BTreeSet<String>)> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("memtrack-"));
    let packages = lines.filter_map(|line| line.split_once("->"));
    packages
        .map(|(package, needs)| {
            let needs =
                needs.split_whitespace().filter(|word| word.starts_with("memtrack-")).map(str::to_owned);
            (package.trim().to_owned(), needs.collect())
        })
        .collect()
}

/// The packages of ours among `[dependencies]`.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap_or_else(|error| panic!("{}: {error}", manifest.display()));
    let (_, after) = text.split_once("\n[dependencies]\n").unwrap_or_default();
    let section = after.split("\n[").next().unwrap_or_default();
    let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| name.starts_with("memtrack-")).map(str::to_owned).collect()
}

fn manifest_of(package: &str) -> PathBuf {
    let inner = root().join("memtrack-core").join(package.trim_start_matches("memtrack-")).join("Cargo.toml");
    if inner.is_file() { inner } else { root().join(package).join("Cargo.toml") }
}

#[test]
fn packages_depend_on_what_is_below_them_and_nothing_else() {
    let stated = stated();
    assert!(stated.len() >= 10, "{stated:?}");
    let mut below = BTreeSet::new();
    let mut real = BTreeMap::new();
    for (package, needs) in stated {
        let found = dependencies(&manifest_of(&package));
        assert!(found.is_subset(&below), "{package} needs {found:?}, of which some come after it");
        // The front needs "all of these".
        if !needs.is_empty() {
            assert_eq!(found, needs, "{package}");
        }
        below.insert(package.clone());
        real.insert(package, found);
    }
    assert!(real["memtrack-model"].is_empty() && real["memtrack-core"].len() == 14, "{real:?}");
}
