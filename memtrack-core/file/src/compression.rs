//! How files are compressed, and what their names end in then: the only list of these endings.

/// How a file is compressed.
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
    /// What a file's name ends in: `.gz`, `.zst`, or nothing.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }

    /// What an ending stands for, without its dot and in small or large letters: `gz`, `zst`, `zstd`.
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
    fn what_each_is_called_is_known() {
        for compression in [Compression::Gzip, Compression::Zstd] {
            assert_eq!(Compression::named(&compression.suffix()[1..]), Some(compression));
        }
        assert_eq!(Compression::named("ZSTD"), Some(Compression::Zstd));
        assert_eq!(Compression::named(""), None);
    }
}
