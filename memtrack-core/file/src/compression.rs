//! The compression of files, with the only list of the file name extensions for it.

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
}
