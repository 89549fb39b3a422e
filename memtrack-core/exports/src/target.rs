//! Determines the target that a file name selects: either a snapshot format, which memtrack can read, or an export.
//! This module searches both lists, so that the accepted names and the messages about them agree.

use crate::registry::{EXPORTS, Export, Packing};
use memtrack_formats::{Compression, Format, split_compression};
use std::path::Path;

/// A format in which a snapshot can be written.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// A file that memtrack can read.
    Snapshot(Format),
    /// A file for other tools.
    Export(&'static Export),
}

impl Target {
    /// Returns the name of the target, such as `json` or `pprof`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snapshot(format) => format.suffix(),
            Self::Export(export) => export.name,
        }
    }

    /// Returns the usual suffix for file names with this compression, without the first dot, such as `json.gz`.
    pub fn suffix(self, compression: Compression) -> String {
        match self {
            Self::Export(export) if export.packing != Packing::None => export.suffixes[0].to_owned(),
            Self::Export(export) => format!("{}{}", export.suffixes[0], compression.suffix()),
            Self::Snapshot(format) => format!("{}{}", format.suffix(), compression.suffix()),
        }
    }
}

/// Returns the target and the compression that a file name selects.
///
/// # Errors
/// Fails if the name selects no target. The message lists the possible suffixes.
pub fn target_of(path: &Path) -> Result<(Target, Compression), String> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    target_of_name(&name)?.ok_or_else(|| {
        format!("the name must end in {}, followed by .gz or .zst to compress it", format_suffixes())
    })
}

/// Returns the target and the compression that a lowercase name selects, or `None` if it selects no target.
///
/// # Errors
/// Fails if the target cannot be compressed in this way. The message contains the reason.
fn target_of_name(name: &str) -> Result<Option<(Target, Compression)>, String> {
    // `.pb.gz` is a suffix in its own right, not the suffix of a compressed `.pb` file.
    if let Some(export) = export_by_suffix(name).filter(|export| export.packing == Packing::Gzip) {
        return Ok(Some((Target::Export(export), Compression::None)));
    }
    let (name, compression) = split_compression(name);
    if let Some(export) = export_by_suffix(name) {
        let suffix = compression.suffix();
        return match (export.packing, compression) {
            (Packing::Gzip, Compression::Zstd) => {
                Err(format!("{} files are gzip already: leave {suffix} out", export.name))
            }
            (Packing::Internal, Compression::Gzip | Compression::Zstd) => {
                Err(format!("{} files are compressed already: leave {suffix} out", export.name))
            }
            _ => Ok(Some((Target::Export(export), compression))),
        };
    }
    let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    Ok(Format::named(suffix).map(|format| (Target::Snapshot(format), compression)))
}

/// Returns the target with this name, and the compression that follows the name (as in `json`, `pprof` or `csv.zst`).
///
/// # Errors
/// Fails for other names. The message lists the possible names.
pub fn target_named(name: &str) -> Result<(Target, Compression), String> {
    let name = name.trim_start_matches('.').to_ascii_lowercase();
    let (plain, compression) = split_compression(&name);
    let suffix = EXPORTS.iter().find(|export| export.name == plain).map(|export| export.suffixes[0]);
    // The usual suffix may include a compression.
    let name = suffix.map_or(name.clone(), |suffix| format!("{suffix}{}", compression.suffix()));
    target_of_name(&format!("output.{name}"))?
        .ok_or_else(|| format!("use {}, followed by .gz or .zst to compress it", targets_listed()))
}

/// Formats the list of targets for a message, as `pickle, json, …`.
pub fn targets_listed() -> String {
    let formats = Format::ALL.iter().rev().map(|format| format.suffix());
    join_with_or(formats.chain(EXPORTS.iter().map(|export| export.name)))
}

/// Returns the export with the longest suffix that matches `name`.
fn export_by_suffix(name: &str) -> Option<&'static Export> {
    let matches = |suffix: &str| name.strip_suffix(suffix).is_some_and(|stem| stem.ends_with('.'));
    let suffixes =
        EXPORTS.iter().flat_map(|export| export.suffixes.iter().map(move |suffix| (export, *suffix)));
    suffixes
        .filter(|(_, suffix)| matches(suffix))
        .max_by_key(|(_, suffix)| suffix.len())
        .map(|(export, _)| export)
}

/// Formats the usual suffixes of file names for a message, as `.pickle, .json, …`.
fn format_suffixes() -> String {
    let formats = Format::ALL.iter().rev().map(|format| format.suffix());
    let suffixes = formats.chain(EXPORTS.iter().map(|export| export.suffixes[0]));
    join_with_or(suffixes.map(|suffix| format!(".{suffix}")))
}

fn join_with_or(names: impl Iterator<Item = impl Into<String>>) -> String {
    let mut names: Vec<String> = names.map(Into::into).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_and_suffix(
        found: Result<(Target, Compression), String>,
    ) -> Result<(&'static str, String), String> {
        found.map(|(target, compression)| (target.name(), target.suffix(compression)))
    }

    #[test]
    fn longest_matching_suffix_selects_target() {
        let of = |name: &str| name_and_suffix(target_of(Path::new(name)));
        for (name, format, suffix) in [
            ("a.json", "json", "json"),
            ("a.b.PKL.gz", "pickle", "pickle.gz"),
            ("a.speedscope.json", "speedscope", "speedscope.json"),
            ("a.speedscope.json.gz", "speedscope", "speedscope.json.gz"),
            ("a.pb.gz", "pprof", "pb.gz"),
            ("a.pprof", "pprof", "pb.gz"),
            // The file is not compressed twice.
            ("a.pprof.gz", "pprof", "pb.gz"),
            ("a.Collapsed.zst", "collapsed", "folded.zst"),
            ("a.csv.zst", "csv", "csv.zst"),
            ("events.parquet", "parquet", "parquet"),
        ] {
            assert_eq!(of(name), Ok((format, suffix.to_owned())), "{name}");
        }
        // The part before the suffix may be empty.
        assert_eq!(of(".csv"), Ok(("csv", "csv".to_owned())));
        for name in ["csv", "a.pb", "a.txt", "speedscope.json.bak", "a.gz", "acsv"] {
            let why = of(name).unwrap_err();
            assert!(
                why.starts_with("the name must end in .pickle, .json, .memtrack, .pb.gz, "),
                "{name}: {why}"
            );
        }
        assert_eq!(of("a.pb.gz.zst").unwrap_err(), "pprof files are gzip already: leave .zst out");
        assert_eq!(of("a.parquet.gz").unwrap_err(), "parquet files are compressed already: leave .gz out");
    }

    #[test]
    fn names_of_formats_may_differ_from_suffixes() {
        for (name, format, suffix) in [
            ("pprof", "pprof", "pb.gz"),
            (".pb.gz", "pprof", "pb.gz"),
            ("speedscope", "speedscope", "speedscope.json"),
            ("SPEEDSCOPE.gz", "speedscope", "speedscope.json.gz"),
            ("collapsed", "collapsed", "folded"),
            ("json.zst", "json", "json.zst"),
        ] {
            assert_eq!(name_and_suffix(target_named(name)), Ok((format, suffix.to_owned())), "{name}");
        }
        for (name, expected) in [
            ("xml", "use pickle, json, memtrack, pprof, "),
            ("", "use pickle, json, memtrack, pprof, "),
            ("pprof.zst", "pprof files are gzip already"),
        ] {
            assert!(target_named(name).unwrap_err().contains(expected), "{name}");
        }
    }

    /// An export with the name or suffix of another export would shadow the other export.
    #[test]
    fn every_export_is_found_by_its_name_and_by_all_its_suffixes() {
        for export in &EXPORTS {
            for name in export.suffixes.iter().chain([&export.name]) {
                let found = target_named(name).map(|(target, _)| target.name());
                assert_eq!(found, Ok(export.name), "{name}");
            }
            assert!(!export.about.ends_with('.') && export.about.len() < 100, "{}", export.about);
        }
    }
}
