//! Names of files beside another file.

use crate::Compression;
use std::path::{Path, PathBuf};

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
