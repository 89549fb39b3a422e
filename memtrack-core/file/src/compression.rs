//! The compression of files, and the endings of their names: the only list of these endings.

/// The compression of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// Returns the ending of a file's name: `.gz`, `.zst`, or nothing.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }

    /// Returns the compression for an ending, without its dot and in small or large letters: `gz`, `zst`, `zstd`.
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
    fn endings_are_recognized() {
        for compression in [Compression::Gzip, Compression::Zstd] {
            assert_eq!(Compression::named(&compression.suffix()[1..]), Some(compression));
        }
        assert_eq!(Compression::named("ZSTD"), Some(Compression::Zstd));
        assert_eq!(Compression::named(""), None);
    }
}
