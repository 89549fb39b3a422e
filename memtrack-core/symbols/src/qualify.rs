//! Paths for functions whose debug information holds their bare names only, as `debug = "line-tables-only"` leaves it
//! for inlined functions: the crate and the modules follow from the source file. `symbols` calls it.

/// `function` with the path that its source file implies, as `alloc::vec::with_capacity` for `with_capacity` in
/// `/rustc/…/library/alloc/src/vec/mod.rs`. None when it has a path already, or when the file tells none (it is not a
/// Rust file below a `src` folder). The type of a method is not known this way.
pub(super) fn qualified(function: &str, file: &str) -> Option<String> {
    let bare = function.split(['<', '{']).next().unwrap_or(function);
    if function.is_empty() || bare.contains("::") || function.starts_with('<') {
        return None;
    }
    let (folders, inside) = file.strip_suffix(".rs")?.rsplit_once("/src/")?;
    let folder = folders.rsplit('/').next().filter(|name| !name.is_empty())?;
    let mut path = without_version(folder).replace('-', "_");
    let modules = inside.split('/').filter(|&module| !matches!(module, "lib" | "main" | "mod" | "bin"));
    for part in modules.chain([function]) {
        path.push_str("::");
        path.push_str(part);
    }
    Some(path)
}

/// The folder of a crate in cargo's registry is `name-version`.
fn without_version(folder: &str) -> &str {
    folder
        .match_indices('-')
        .find(|&(at, _)| {
            folder[at + 1..].starts_with(|c: char| c.is_ascii_digit()) && folder[at..].contains('.')
        })
        .map_or(folder, |(at, _)| &folder[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_gets_the_path_of_its_file() {
        let path = |function: &str, file: &str| qualified(function, file).unwrap();
        assert_eq!(
            path("with_capacity", "/rustc/5980/library/alloc/src/vec/mod.rs"),
            "alloc::vec::with_capacity"
        );
        let registry = "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f";
        assert_eq!(
            path("f<u8>", &format!("{registry}/candle-core-0.9.1/src/tensor.rs")),
            "candle_core::tensor::f<u8>"
        );
        assert_eq!(path("f", &format!("{registry}/x-1.0.0-rc.2+g1/src/lib.rs")), "x::f");
        assert_eq!(path("{closure#0}", "/work/my-app/src/main.rs"), "my_app::{closure#0}");
    }

    #[test]
    fn a_name_with_a_path_and_a_file_without_one_are_left_alone() {
        for (function, file) in [
            ("a::f", "/x/src/a.rs"),
            ("<a::X as b::Y>::f", "/x/src/a.rs"),
            ("f", "/work/tests/a.rs"),
            ("malloc", "/build/glibc/src/malloc.c"),
            ("f", ""),
            ("", "/src/.rs"),
        ] {
            assert_eq!(qualified(function, file), None, "{function} {file}");
        }
    }
}
