//! Infers the paths of functions for which the debug information contains only bare names, as is the case for inlined
//! functions with `debug = "line-tables-only"`. The crate and the modules are inferred from the source file, and the
//! function that contains a closure is inferred from the surrounding functions.

use memtrack_model::Frame;
use memtrack_model::paths::with_slashes;

/// A placeholder for a closure for which only the file is known. It has no braces, because text in braces is removed
/// from names.
const UNKNOWN_CLOSURE: &str = "closure";

/// Names closures after the functions that contain them, given the functions at one address (innermost first). If a
/// function that calls the closure has the containing function's path in its type arguments, that path is used.
/// Otherwise, the closure is attributed to the next function in the same file.
pub(super) fn name_closures(frames: &mut [Frame]) {
    for place in 0..frames.len() {
        let Some(number) = closure_number(&frames[place].function).map(str::to_owned) else { continue };
        let Some(file) = frames[place].file.clone() else { continue };
        for frame in &frames[place + 1..] {
            let from_types =
                enclosing_function_path(&frame.function, &number).filter(|path| is_path_in(path, &file));
            let is_beside = frame.file.as_deref() == Some(&file) && !is_closure(&frame.function);
            let beside = || qualify(&frame.function, &file).unwrap_or_else(|| frame.function.clone());
            let parent = from_types.or_else(|| is_beside.then(beside));
            if let Some(parent) = parent.filter(|parent| !parent.is_empty()) {
                frames[place].function = format!("{parent}::{{closure#{number}}}");
                break;
            }
        }
    }
}

/// Returns whether a function with this path can be in this file, i.e. whether the file is named after one of the
/// path's modules.
fn is_path_in(path: &str, file: &str) -> bool {
    let file = with_slashes(file);
    let Some(stem) = file.strip_suffix(".rs") else { return false };
    let mut parts = stem.rsplit('/');
    let module = match parts.next() {
        Some("main" | "lib") | None => return true,
        Some("mod") => parts.next().unwrap_or_default(),
        Some(module) => module,
    };
    path.split("::").any(|part| part == module)
}

/// Returns whether a bare name is the name of a closure, i.e. `{closure#0}`, possibly followed by types.
fn is_closure(function: &str) -> bool {
    closure_number(function).is_some()
}

/// Returns the number of a closure for which only the bare name is known.
fn closure_number(function: &str) -> Option<&str> {
    let rest = function.strip_prefix("{closure").or_else(|| function.strip_prefix("{async_block"))?;
    let rest = rest.strip_prefix("_env").unwrap_or(rest);
    let (number, _) = rest.strip_prefix('#')?.split_once('}')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)
}

/// Returns the path of the function that contains closure `number`, if the type arguments of `function` name exactly
/// one such path. For example, this is `app::main` in `spawn<app::main::{closure_env#1}>`.
fn enclosing_function_path(function: &str, number: &str) -> Option<String> {
    let types = &function[function.find('<')?..];
    let mut found: Option<&str> = None;
    for kind in ["closure_env", "closure", "async_block_env", "async_block"] {
        let name = format!("::{{{kind}#{number}}}");
        for (at, _) in types.match_indices(&name) {
            let begins_before =
                |&(_, letter): &(usize, char)| matches!(letter, '<' | '>' | ',' | ' ' | '&' | '(');
            let begin = types[..at]
                .char_indices()
                .rfind(begins_before)
                .map_or(0, |(at, letter)| at + letter.len_utf8());
            let path = &types[begin..at];
            if found.is_some_and(|other| other != path) {
                return None;
            }
            found = Some(path).filter(|path| !path.is_empty());
        }
    }
    found.map(str::to_owned)
}

/// Returns `function` with the path implied by its source file, such as `alloc::vec::with_capacity` for `with_capacity`
/// in `/rustc/…/library/alloc/src/vec/mod.rs`. Returns `None` if it already has a path, or if the file implies none
/// because it is not a Rust file below a `src` folder. The type of a method, and the function that contains a closure,
/// cannot be determined in this way.
pub(super) fn qualify(function: &str, file: &str) -> Option<String> {
    let file = with_slashes(file);
    let bare = function.split(['<', '{']).next().unwrap_or(function);
    if function.is_empty() || bare.contains("::") || function.starts_with('<') {
        return None;
    }
    let (folders, inside) = file.strip_suffix(".rs")?.rsplit_once("/src/")?;
    let mut path = crate_of_folder(folders)?.replace('-', "_");
    let modules = inside.split('/').filter(|&module| !matches!(module, "lib" | "main" | "mod" | "bin"));
    let function = if is_closure(function) { UNKNOWN_CLOSURE } else { function };
    for part in modules.chain([function]) {
        path.push_str("::");
        path.push_str(part);
    }
    Some(path)
}

/// Returns the name of the crate whose source files are in this folder.
fn crate_of_folder(folder: &str) -> Option<&str> {
    let mut outwards = folder.rsplit('/');
    let name = outwards.next().filter(|name| !name.is_empty())?;
    // This is a git repository that contains a single crate: `git/checkouts/NAME-HASH/REVISION`.
    if let (Some(repository), Some("checkouts")) = (outwards.next(), outwards.next()) {
        return repository.rsplit_once('-').map(|(name, _)| name);
    }
    Some(strip_version(name))
}

/// Removes the version from the name of a folder in Cargo's registry, which has the form `name-version`.
fn strip_version(folder: &str) -> &str {
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
    fn bare_name_gets_path_of_its_file() {
        let path = |function: &str, file: &str| qualify(function, file).unwrap();
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
        assert_eq!(path("{closure#0}", "/work/my-app/src/main.rs"), "my_app::closure");
        assert_eq!(path("f", "/root/.cargo/git/checkouts/einops-rs-00aa/11bb22/src/lib.rs"), "einops_rs::f");
        assert_eq!(path("f", "C:\\work\\my-app\\src\\a\\b.rs"), "my_app::a::b::f");
    }

    /// Returns the names given to frames that are written as `FUNCTION @ FILE`, innermost first.
    fn names_of(frames: &[&str]) -> Vec<String> {
        let frame = |text: &&str| {
            let (function, file) = text.split_once(" @ ").unwrap();
            Frame { function: function.into(), file: Some(file.into()), ..Frame::default() }
        };
        let mut frames: Vec<Frame> = frames.iter().map(frame).collect();
        name_closures(&mut frames);
        frames.into_iter().map(|frame| frame.function).collect()
    }

    #[test]
    fn closure_is_named_after_function_in_caller_type() {
        let spawned = names_of(&[
            "{closure#1} @ /work/kernels/src/main.rs",
            "__rust_begin_short_backtrace<wave::main::{closure_env#1}, alloc::vec::Vec<u32>> @ /rustc/5980/library/std/src/sys/backtrace.rs",
        ]);
        assert_eq!(spawned[0], "wave::main::{closure#1}");
        let v0 = names_of(&[
            "{closure#0} @ /w/a/src/b.rs",
            "core::option::Option::<u8>::map::<u8, a::b::f::{closure#0}> @ /rustc/o.rs",
        ]);
        assert_eq!(v0[0], "a::b::f::{closure#0}");
        let of_another =
            names_of(&["{closure#0} @ /w/a/src/b.rs", "map<a::b::f::{closure_env#3}> @ /rustc/o.rs"]);
        assert_eq!(of_another[0], "{closure#0}");
        let of_another_file = names_of(&[
            "{closure#1} @ /w/kernels/src/layer.rs",
            "forward @ /w/kernels/src/layer.rs",
            "__rust_begin_short_backtrace<wave::main::{closure_env#1}> @ /rustc/5980/library/std/src/sys/backtrace.rs",
        ]);
        assert_eq!(of_another_file[0], "kernels::layer::forward::{closure#1}");
        let passed_on = names_of(&[
            "{closure#0} @ /w/a/src/b.rs",
            "f<a::b::g::{closure_env#0}> @ /w/a/src/b.rs",
            "g @ /w/a/src/b.rs",
        ]);
        assert_eq!(passed_on[0], "a::b::g::{closure#0}");
        let of_two = names_of(&[
            "{closure#0} @ /w/a/src/b.rs",
            "zip<a::f::{closure_env#0}, a::g::{closure_env#0}> @ /rustc/o.rs",
        ]);
        assert_eq!(of_two[0], "{closure#0}");
    }

    #[test]
    fn closure_without_such_caller_is_named_after_next_function_in_file() {
        let inlined = names_of(&[
            "{closure#0} @ /w/wave/src/ops/tensor.rs",
            "map @ /rustc/5980/library/core/src/option.rs",
            "{closure#2}<u8> @ /w/wave/src/ops/tensor.rs",
            "sqrt @ /w/wave/src/ops/tensor.rs",
            "wave::main @ /w/wave/src/main.rs",
        ]);
        assert_eq!(inlined[0], "wave::ops::tensor::sqrt::{closure#0}");
        assert_eq!(inlined[2], "wave::ops::tensor::sqrt::{closure#2}");
        let alone =
            names_of(&["{closure#0} @ /w/wave/src/ops/tensor.rs", "wave::main @ /w/wave/src/main.rs"]);
        assert_eq!(alone[0], "{closure#0}");
    }

    #[test]
    fn qualified_names_and_files_without_paths_are_unchanged() {
        for (function, file) in [
            ("a::f", "/x/src/a.rs"),
            ("<a::X as b::Y>::f", "/x/src/a.rs"),
            ("f", "/work/tests/a.rs"),
            ("malloc", "/build/glibc/src/malloc.c"),
            ("f", ""),
            ("", "/src/.rs"),
        ] {
            assert_eq!(qualify(function, file), None, "{function} {file}");
        }
    }
}
