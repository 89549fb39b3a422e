//! The inconsistencies in a file. Where PyTorch would fail, reports continue with assumed values and record these values
//! here. The command prints the inconsistencies in addition to the report.

use std::fmt;

/// The inconsistencies in a file, with the first example and the count of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inconsistencies {
    kinds: Vec<(&'static str, String, u64)>,
}

impl Inconsistencies {
    /// Records an inconsistency. `kind` is the text that all inconsistencies of the same kind share, and `first` names
    /// the subject of the first one.
    pub(super) fn note(&mut self, kind: &'static str, first: impl FnOnce() -> String) {
        match self.kinds.iter_mut().find(|known| known.0 == kind) {
            Some(known) => known.2 += 1,
            None => self.kinds.push((kind, first(), 1)),
        }
    }

    /// Returns whether there are no inconsistencies.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Adds the inconsistencies of `other`.
    pub fn extend(&mut self, other: Self) {
        for (kind, first, times) in other.kinds {
            match self.kinds.iter_mut().find(|known| known.0 == kind) {
                Some(known) => known.2 += times,
                None => self.kinds.push((kind, first, times)),
            }
        }
    }

    /// Returns one line for each kind.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.kinds.iter().map(|(kind, first, times)| match times {
            1 => format!("{first}: {kind}"),
            _ => format!("{first}: {kind} (and {} more like this)", times - 1),
        })
    }
}

impl fmt::Display for Inconsistencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_reported_once_with_its_first_example() {
        let mut odd = Inconsistencies::default();
        odd.note("has no size", || "block 1".into());
        odd.note("has no size", || unreachable!("only the first is described"));
        odd.note("is empty", || "segment 2".into());
        assert_eq!(odd.to_string(), "block 1: has no size (and 1 more like this)\nsegment 2: is empty\n");
    }
}
