//! Names of files: the only list of the extensions for compression, and names of files beside another file.

use std::path::{Path, PathBuf};

/// The compression of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// Returns the extension of a file's name with its dot: `.gz`, `.zst`, or nothing.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }

    /// Returns the compression for an extension without its dot, ignoring case: `gz`, `zst` or `zstd`.
    #[must_use]
    pub fn named(suffix: &str) -> Option<Self> {
        let is = |known: &str| suffix.eq_ignore_ascii_case(known);
        match () {
            () if is("gz") => Some(Self::Gzip),
            () if is("zst") || is("zstd") => Some(Self::Zstd),
            () => None,
        }
    }
}

/// Returns the path with `.` and the tag before the extension of the format: with the tag `1`, `a.pickle.gz` becomes
/// `a.1.pickle.gz`.
pub fn tagged_path(path: &Path, tag: &str) -> PathBuf {
    let mut stem = path.to_owned();
    let mut suffixes = std::ffi::OsString::new();
    while let Some(suffix) = stem.extension().map(ToOwned::to_owned) {
        stem.set_extension("");
        let packed = suffix.to_str().and_then(Compression::named).is_some();
        let after = std::mem::replace(&mut suffixes, ".".into());
        suffixes.push(suffix);
        suffixes.push(after);
        if !packed {
            break;
        }
    }
    let mut name = stem.into_os_string();
    name.push(format!(".{tag}"));
    name.push(suffixes);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_recognized() {
        for compression in [Compression::Gzip, Compression::Zstd] {
            assert_eq!(Compression::named(&compression.suffix()[1..]), Some(compression));
        }
        assert_eq!(Compression::named("ZSTD"), Some(Compression::Zstd));
        assert_eq!(Compression::named(""), None);
    }

    #[test]
    fn tag_precedes_extension_of_format() {
        for (name, expected) in [
            ("a.pickle", "a.1.pickle"),
            ("x.y/run.v2.json.gz", "x.y/run.v2.1.json.gz"),
            ("A.MEMTRACK.ZSTD", "A.1.MEMTRACK.ZSTD"),
        ] {
            assert_eq!(tagged_path(Path::new(name), "1"), Path::new(expected));
        }
    }
}
