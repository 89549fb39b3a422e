//! What a file's name stands for: a format of snapshots, which memtrack reads back, or an export. Both lists are asked
//! here, so that names and the sentences about them agree.

use crate::registry::{EXPORTS, Export};
use memtrack_formats::{Compression, Format, format_named, packing};
use std::path::Path;

/// What a snapshot can be written as.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// A file that memtrack reads back.
    Snapshot(Format),
    /// A file for other tools.
    Export(&'static Export),
}

impl Target {
    /// What it is called: `json`, `pprof`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snapshot(format) => format.suffix(),
            Self::Export(export) => export.name,
        }
    }

    /// The usual ending of its files' names, compressed that way, without the first dot: `json.gz`.
    pub fn suffix(self, compression: Compression) -> String {
        let (suffix, is_gzip) = match self {
            Self::Snapshot(format) => (format.suffix(), false),
            Self::Export(export) => (export.suffixes[0], export.is_gzip),
        };
        if is_gzip { suffix.to_owned() } else { format!("{suffix}{}", compression.suffix()) }
    }
}

/// What a file's name stands for, and how it is compressed.
///
/// # Errors
/// A sentence that lists the possible names.
pub fn target_of(path: &Path) -> Result<(Target, Compression), String> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    // `.pb.gz` is a name of its own, and no `.pb` that is compressed.
    let whole = ends_like(&name).filter(|(export, _)| export.is_gzip);
    if let Some((export, _)) = whole {
        return Ok((Target::Export(export), Compression::None));
    }
    let (name, compression) = packing(&name);
    if let Some((export, _)) = ends_like(name) {
        return match compression {
            Compression::Zstd if export.is_gzip => {
                Err(format!("{} files are gzip already: leave .zst out", export.name))
            }
            _ => Ok((Target::Export(export), compression)),
        };
    }
    let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    match format_named(suffix) {
        Some(format) => Ok((Target::Snapshot(format), compression)),
        None => {
            Err(format!("the name must end in {}, followed by .gz or .zst to compress it", endings_listed()))
        }
    }
}

/// What the name of a format (`json`, `pprof`, `csv.zst`) stands for, and how its files are to be compressed.
///
/// # Errors
/// A sentence that lists the possible names.
pub fn target_named(name: &str) -> Result<(Target, Compression), String> {
    let name = name.trim_start_matches('.').to_ascii_lowercase();
    let (plain, compression) = packing(&name);
    let suffix = EXPORTS.iter().find(|export| export.name == plain).map(|export| export.suffixes[0]);
    // The usual ending may be a compressed one.
    let name = suffix.map_or(name.clone(), |suffix| format!("{suffix}{}", compression.suffix()));
    target_of(Path::new(&format!("output.{name}")))
        .map_err(|_| format!("use {}, followed by .gz or .zst to compress it", targets_listed()))
}

/// What a snapshot can be written as, as a sentence lists it: `pickle, json, …`.
pub fn targets_listed() -> String {
    let formats = Format::ALL.iter().rev().map(|format| format.suffix());
    sentence(formats.chain(EXPORTS.iter().map(|export| export.name)))
}

/// The export whose files end like this, and the ending.
fn ends_like(name: &str) -> Option<(&'static Export, &'static str)> {
    let endings =
        EXPORTS.iter().flat_map(|export| export.suffixes.iter().map(move |suffix| (export, *suffix)));
    let fits =
        endings.filter(|(_, suffix)| name.strip_suffix(suffix).is_some_and(|stem| stem.ends_with('.')));
    fits.max_by_key(|(_, suffix)| suffix.len())
}

/// The usual endings of names, as a sentence lists them: `.pickle, .json, …`.
fn endings_listed() -> String {
    let formats = Format::ALL.iter().rev().map(|format| format.suffix());
    let endings = formats.chain(EXPORTS.iter().map(|export| export.suffixes[0]));
    sentence(endings.map(|ending| format!(".{ending}")))
}

fn sentence(names: impl Iterator<Item = impl Into<String>>) -> String {
    let mut names: Vec<String> = names.map(Into::into).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}
