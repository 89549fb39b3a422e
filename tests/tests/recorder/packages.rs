//! The packages depend on each other as listed in ARCHITECTURE.md, and never on packages above them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the packages in ARCHITECTURE.md in the listed order, each with the packages that it depends on.
fn documented_dependencies() -> Vec<(String, BTreeSet<String>)> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let list =
        text.split("```").find(|block| block.contains("\nmodel        ->")).expect("the list of packages");
    let full = |name: &str| format!("memtrack-{name}");
    let packages = list.lines().filter_map(|line| line.split_once("->"));
    let needed = |needs: &str| match needs.trim() {
        "all of these" => BTreeSet::new(),
        names => names.split_whitespace().map(full).collect(),
    };
    packages.map(|(package, needs)| (full(package.trim()), needed(needs))).collect()
}

/// Returns memtrack's packages in the `[dependencies]` of a manifest.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap_or_else(|error| panic!("{}: {error}", manifest.display()));
    let (_, after) = text.split_once("\n[dependencies]\n").unwrap_or_default();
    let section = after.split("\n[").next().unwrap_or_default();
    let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| name.starts_with("memtrack-")).map(str::to_owned).collect()
}

fn manifest_of(package: &str) -> PathBuf {
    let inner = package.trim_start_matches("memtrack-");
    let folders = [root().join("memtrack-core").join(inner), root().join("memtrack-cli").join(inner)];
    let inside = folders.map(|folder| folder.join("Cargo.toml")).into_iter().find(|file| file.is_file());
    inside.unwrap_or_else(|| root().join(package).join("Cargo.toml"))
}

/// Returns the workspace's published packages.
fn published() -> Vec<String> {
    let manifests =
        members().into_iter().map(|folder| fs::read_to_string(folder.join("Cargo.toml")).unwrap());
    let published = manifests.filter(|manifest| !manifest.contains("\npublish = false\n"));
    published
        .map(|manifest| {
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = "));
            name.expect("a package has a name").trim_matches('"').to_owned()
        })
        .collect()
}

#[test]
fn packages_depend_only_on_packages_below_them() {
    let stated = documented_dependencies();
    assert!(stated.len() >= 10, "{stated:?}");
    let mut below = BTreeSet::new();
    let mut real = BTreeMap::new();
    for (package, needs) in stated {
        let found = dependencies(&manifest_of(&package));
        assert!(found.is_subset(&below), "{package} needs {found:?}, of which some come after it");
        // The front package is listed with "all of these" instead of names.
        if !needs.is_empty() {
            assert_eq!(found, needs, "{package}");
        }
        below.insert(package.clone());
        real.insert(package, found);
    }
    assert!(real["memtrack-model"].is_empty() && real["memtrack-core"].len() == 21, "{real:?}");
    for package in published() {
        assert!(real.contains_key(&package), "{package} is not in the list");
    }
}

/// Returns whether a Rust file in `folder` contains one of these paths outside comments.
fn uses(folder: &Path, paths: &[&str]) -> bool {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|file| {
        let text = fs::read_to_string(&file).unwrap();
        let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        code.any(|line| paths.iter().any(|path| line.contains(path)))
    })
}

#[test]
fn the_recorders_layers_depend_on_lower_ones_only() {
    let folder = |name| root().join("memtrack-core/recorder/src").join(name);
    assert!(uses(&folder("allocator"), &["crate::events"]) && uses(&folder("events"), &["crate::host"]));
    assert!(!uses(&folder("events"), &["crate::allocator"]));
    assert!(!uses(&folder("host"), &["crate::allocator", "crate::events"]));
}

/// Returns the folders of all packages of the workspace.
fn members() -> Vec<PathBuf> {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, after) = text.split_once("members = [").unwrap();
    let (list, _) = after.split_once(']').unwrap();
    list.split('"').skip(1).step_by(2).map(|member| root().join(member)).collect()
}

/// Returns whether a documentation comment under `folder` contains an example that rustdoc would test.
fn has_example(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return has_example(&path);
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            return false;
        }
        let text = fs::read_to_string(&path).unwrap();
        let comments = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
        });
        let mut fences = comments.filter_map(|line| line.trim_start().strip_prefix("```"));
        // Every second fence closes an example.
        std::iter::from_fn(|| fences.next().map(|begin| (begin, fences.next()))).any(|(begin, _)| {
            let of_rust = ["", "rust", "no_run", "compile_fail", "should_panic"];
            let first = begin.split(',').next().unwrap_or_default().trim();
            of_rust.contains(&first)
        })
    })
}

#[test]
fn every_example_in_a_comment_is_tested() {
    let (mut without, mut with) = (0, 0);
    for package in members() {
        let manifest = fs::read_to_string(package.join("Cargo.toml")).unwrap();
        let tested = !manifest.contains("\ndoctest = false\n");
        // The examples of memtrack-macros need memtrack-core, which depends on memtrack-macros: `tests/macros` tests them.
        let has = has_example(&package.join("src")) && !package.ends_with("memtrack-macros");
        assert!(tested || !has, "{} has examples that `doctest = false` leaves out", package.display());
        with += u32::from(has);
        without += u32::from(!tested);
    }
    assert!(with >= 5 && without >= 10, "{with} with examples, {without} without");
}
