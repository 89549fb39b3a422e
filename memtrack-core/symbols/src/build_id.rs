//! Identifies binaries by their GNU build id or, if they have none, by the length and checksum of their code.
//! The recorder computes the same identity from memory, and `locate` compares the two.

use memtrack_file::binary_id::{compute_code_id, to_hex};
use object::read::{Object, ObjectSegment, ReadCache};
use object::{SegmentFlags, elf};
use std::fs::File;
use std::path::Path;

/// The identity of a binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BinaryId {
    /// The GNU build id in lower-case hex, or an empty string if there is none.
    pub build_id: String,
    /// The length and CRC-32 of the executable segments, as `len:crc` in hex; an empty string if there is a
    /// build id.
    pub code_id: String,
    /// Whether the file contains line tables.
    pub has_lines: bool,
}

/// Reads the identity of the ELF file at `path`. Returns `None` if it cannot be read or is not an ELF file.
/// Only the necessary parts of the file are read.
pub fn read(path: &Path) -> Option<BinaryId> {
    // Opening a FIFO or a device could block forever.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let build_id = file.build_id().ok().flatten().map(to_hex).unwrap_or_default();
    let code_id = if build_id.is_empty() {
        compute_code_id(executable_segments(&file).into_iter())
    } else {
        String::new()
    };
    let has_lines = file.section_by_name(".debug_line").is_some();
    Some(BinaryId { build_id, code_id, has_lines })
}

/// Returns the length and checksum of the code in the ELF file at `path`, even if it has a build id.
pub fn code_id_of(path: &Path) -> Option<String> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    Some(compute_code_id(executable_segments(&file).into_iter()))
}

/// Returns the executable segments.
fn executable_segments<'a>(file: &object::File<'a, &'a ReadCache<File>>) -> Vec<&'a [u8]> {
    let is_code = |flags| match flags {
        SegmentFlags::Elf { p_flags, .. } => p_flags.contains(elf::PF_X),
        _ => false,
    };
    file.segments()
        .filter(|segment| is_code(segment.flags()))
        .filter_map(|segment| segment.data().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_not_binary_has_no_identity() {
        assert_eq!(read(Path::new("/dev/null")), None);
        assert_eq!(read(Path::new("/")), None);
        assert_eq!(read(Path::new("/etc/passwd")), None);
    }
}
