//! Demangles symbols, and picks the public name of a function that has several.

use crate::names::readable;
use addr2line::gimli::{DW_LANG_C_plus_plus, DW_LANG_Rust};
use object::read::{Object, ObjectSymbol, ReadCache};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// Demangles a Rust or C++ symbol. Other symbols are C names and are not demangled: as a mangled type, `w`
/// means `wchar_t`, so a function named `w` would get the wrong name.
pub(super) fn demangle(symbol: &str) -> String {
    let symbol = strip_clone_suffix(symbol);
    // Symbols in macOS object files have an extra underscore.
    let plain = if symbol.starts_with("__Z") || symbol.starts_with("__R") { &symbol[1..] } else { symbol };
    let name = match plain.get(..2) {
        Some("_R") => addr2line::demangle(plain, DW_LANG_Rust),
        Some("_Z") => addr2line::demangle(plain, DW_LANG_Rust)
            .or_else(|| addr2line::demangle(plain, DW_LANG_C_plus_plus)),
        // C symbols may have a version suffix, as in `memcpy@@GLIBC_2.14`.
        _ => return symbol.split_once('@').map_or(symbol, |(name, _)| name).to_owned(),
    };
    name.map_or_else(|| symbol.to_owned(), |name| readable(&name).to_owned())
}

/// Removes the suffix that compilers append to the name of a function that they have split or specialized, as in
/// `render.constprop.0`.
fn strip_clone_suffix(symbol: &str) -> &str {
    const CLONE_SUFFIXES: [&str; 7] =
        [".constprop.", ".isra.", ".part.", ".cold", ".lto_priv.", ".llvm.", ".clone."];
    let first = CLONE_SUFFIXES.iter().filter_map(|clone| symbol.find(clone)).min();
    first.filter(|&at| at > 0).map_or(symbol, |at| &symbol[..at])
}

/// Returns whether the symbol is a C name.
pub(super) fn is_c_name(symbol: &str) -> bool {
    !["_Z", "__Z", "_R", "__R"].iter().any(|beginning| symbol.starts_with(beginning))
}

/// The public names of C functions that have several names. For example, `asprintf` is also called `__asprintf`.
#[derive(Debug, Default)]
pub(super) struct PublicNames {
    /// The public names, keyed by the functions' addresses.
    names: HashMap<u64, String, foldhash::fast::RandomState>,
}

impl PublicNames {
    /// Reads the symbols of the binary at `path`. If it cannot be read, there are no names.
    pub(super) fn read(path: &Path) -> Self {
        Self::try_read(path).unwrap_or_default()
    }

    fn try_read(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        // The preferred name at each address so far, and whether there are other names at that address.
        let mut known: HashMap<u64, (NamePreference<'_>, bool), foldhash::fast::RandomState> =
            HashMap::default();
        for symbol in file.dynamic_symbols().chain(file.symbols()) {
            let Ok(name) = symbol.name() else { continue };
            if !symbol.is_definition() || name.is_empty() || !is_c_name(name) {
                continue;
            }
            let preference = name_preference(name, symbol.is_global());
            known
                .entry(symbol.address())
                .and_modify(|(best, several)| {
                    *several |= best.3 != preference.3;
                    *best = (*best).min(preference);
                })
                .or_insert((preference, false));
        }
        let names = known.into_iter().filter(|(_, (_, several))| *several);
        Some(Self {
            names: names.map(|(address, (preferred, _))| (address, preferred.3.to_owned())).collect(),
        })
    }

    /// Returns the public name of the function at `address` if it has several names.
    pub(super) fn name_at(&self, address: u64) -> Option<&str> {
        self.names.get(&address).map(String::as_str)
    }
}

/// The sort key for a function's names, which puts the preferred name first. Exported names come before internal ones.
/// Names are then sorted by the number of leading underscores, by length, and alphabetically.
type NamePreference<'a> = (bool, usize, usize, &'a str);

fn name_preference(name: &str, is_exported: bool) -> NamePreference<'_> {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let underscores = name.len() - name.trim_start_matches('_').len();
    (!is_exported, underscores, name.len(), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_every_mangling_become_readable() {
        for (symbol, name) in [
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
            ("_RINvCs1234_7mycrate3foohE", "mycrate::foo::<u8>"),
            ("_ZN3foo3barEv", "foo::bar()"),
            ("__ZN3foo3barEv", "foo::bar()"),
            ("__RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
        ] {
            assert_eq!(demangle(symbol), name);
        }
    }

    #[test]
    fn c_names_are_unchanged_even_if_they_look_like_mangled_types() {
        let codes = "vwbcahstijlmxynofdegz";
        for name in codes.split("").chain(["malloc", "Pi", "St", "Ss", "Dn", "_Read", "_Zebra", "FvvE"]) {
            assert_eq!(demangle(name), name);
        }
        assert_eq!(demangle("memcpy@@GLIBC_2.14"), "memcpy");
    }

    #[test]
    fn parts_of_function_have_its_name() {
        for (symbol, name) in [
            ("render.constprop.0.isra.0", "render"),
            ("_ZN3foo3barEv.part.0", "foo::bar()"),
            ("render.cold", "render"),
            (".cold", ".cold"),
            ("a.b", "a.b"),
        ] {
            assert_eq!(demangle(symbol), name);
        }
    }

    #[test]
    fn public_function_name_is_exported_and_has_no_leading_underscore() {
        let mut names = [
            name_preference("_IO_asprintf", true),
            name_preference("__asprintf", true),
            name_preference("asprintf@@GLIBC_2.2.5", true),
            name_preference("asp", false),
        ];
        names.sort_unstable();
        assert_eq!(names.map(|(.., name)| name), ["asprintf", "_IO_asprintf", "__asprintf", "asp"]);
    }
}
