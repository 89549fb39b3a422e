//! Where the data of a binary ends. Variables that begin as zeros (`.bss`) are not in the file: the kernel maps anonymous
//! memory for them behind it, which may continue into other memory without a border.

use crate::mappings::Mapping;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The lengths of the data of a process's binaries, as far as they were needed.
#[derive(Debug)]
pub(crate) struct DataEnds {
    /// The folder in which the process's paths are.
    root: PathBuf,
    /// By path: the offset in the file, the address and the length in memory of each part that is loaded.
    parts: BTreeMap<String, Vec<Part>>,
}

/// A part of a binary that is loaded (`PT_LOAD`).
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u64,
    address: u64,
    memory_bytes: u64,
}

impl DataEnds {
    pub(crate) fn new(process: &Path) -> Self {
        Self { root: process.join("root"), parts: BTreeMap::new() }
    }

    /// Returns where the data ends that begins with the last mapping of a binary, rounded up to a page; `None` if the file cannot
    /// be read, or the data ends with the mapping.
    pub(crate) fn after(&mut self, last: &Mapping, page_bytes: u64) -> Option<u64> {
        if !self.parts.contains_key(&last.path) {
            let inside = last.path.strip_prefix('/').unwrap_or(&last.path);
            let parts = File::open(self.root.join(inside)).ok().and_then(|file| parts_of(&file));
            self.parts.insert(last.path.clone(), parts.unwrap_or_default());
        }
        // The data is the part with the highest addresses. Its mapping begins at the page of its offset, or, where a part of
        // it was made read-only after loading (`RELRO`), some pages later: address minus offset is the same for both.
        let data = *self.parts[&last.path].iter().max_by_key(|part| part.address)?;
        let bias = last.start.checked_sub(last.offset)?.wrapping_sub(data.address.wrapping_sub(data.offset));
        let end = bias
            .wrapping_add(data.address)
            .checked_add(data.memory_bytes)?
            .checked_next_multiple_of(page_bytes)?;
        (end > last.end).then_some(end)
    }
}

/// Reads the parts of a binary for a 64-bit little-endian processor.
fn parts_of(file: &File) -> Option<Vec<Part>> {
    /// More headers than any linker writes.
    const MAX_HEADERS: u16 = 256;
    const HEADER_BYTES: usize = 56;
    const LOAD: u32 = 1;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let count = u16::from_le_bytes([head[56], head[57]]).min(MAX_HEADERS);
    let is_known_size = u16::from_le_bytes([head[54], head[55]]) == HEADER_BYTES as u16;
    let mut headers = vec![0; usize::from(count) * HEADER_BYTES];
    file.read_exact_at(&mut headers, word(&head, 32)?).ok().filter(|()| is_known_size)?;
    let headers = headers.as_chunks::<HEADER_BYTES>().0.iter();
    let loaded = headers.filter(|header| header.starts_with(&LOAD.to_le_bytes()));
    loaded
        .map(|header| {
            Some(Part {
                offset: word(header, 8)?,
                address: word(header, 16)?,
                memory_bytes: word(header, 40)?,
            })
        })
        .collect()
}

/// Returns the number of 8 bytes at a place.
fn word(bytes: &[u8], place: usize) -> Option<u64> {
    bytes.get(place..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_this_program_ends_after_its_variables() {
        static ZEROS: [std::sync::atomic::AtomicU8; 1 << 20] =
            [const { std::sync::atomic::AtomicU8::new(0) }; 1 << 20];
        ZEROS[1 << 19].store(1, std::sync::atomic::Ordering::Relaxed);
        let process = Path::new("/proc/self");
        let (mappings, page_bytes) = crate::mappings::read_mappings(process).unwrap();
        let program = std::env::current_exe().unwrap();
        let last = mappings.iter().rfind(|mapping| Path::new(&mapping.path) == program).unwrap();
        let end = DataEnds::new(process).after(last, page_bytes).unwrap();
        let variable = ZEROS.as_ptr().addr() as u64;
        assert!((last.end..end).contains(&(variable + (1 << 19))), "{last:x?} {end:x} {variable:x}");
        assert!(end <= variable + (4 << 20), "{end:x} {variable:x}");
    }

    #[test]
    fn a_file_that_is_no_binary_has_no_parts() {
        assert!(parts_of(&File::open("Cargo.toml").unwrap()).is_none());
    }
}
