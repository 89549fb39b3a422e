//! Names the allocator or language runtime that took mapped memory, from the binary that called `mmap`. Its own blocks are not
//! recorded, and a user who does not know that it is there would look in vain for the lines that use them.

use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::top::{By, TopOptions, top_with};
use memtrack_core::analysis::units::{human_bytes, printable};
use memtrack_core::event::{DeviceId, StackId};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::Symbolizer;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Binaries that took less are not named.
const MIN_BYTES: u64 = 1 << 20;
/// The largest binary that is searched; larger ones have other things in them.
const MAX_BINARY_BYTES: u64 = 512 << 20;
/// The number of events whose stacks are looked at.
const MAX_EVENTS: usize = 10_000;
/// The maximum number of binaries that are named.
const MAX_NAMED: usize = 3;

/// An allocator or runtime, a text that each binary with it contains, and how to see its blocks.
struct Known {
    name: &'static str,
    text: &'static [u8],
    more: &'static str,
}

const KNOWN: [Known; 5] = [
    Known {
        name: JEMALLOC,
        text: b"<jemalloc>: ",
        more: "; those of jemalloc 5.2 and 5.3 in the program itself are, unless it was stripped",
    },
    Known { name: "mimalloc", text: b"mimalloc: ", more: LINK },
    Known { name: "tcmalloc", text: b"tcmalloc.", more: LINK },
    Known { name: "the Go runtime", text: b"\xff Go buildinf:", more: "; its own profile (pprof) has them" },
    Known { name: "V8", text: b"max_old_space_size", more: "; its own profile (--heap-prof) has them" },
];

const JEMALLOC: &str = "jemalloc";
/// The function of jemalloc that calls the hooks by which its blocks are recorded.
const JEMALLOC_HOOK: &str = "hook_invoke_alloc";

const LINK: &str =
    "; a Rust program that links memtrack-core around it (TrackingAllocator::new) records them";

/// The files whose runtime is known by their name.
const BY_FILE: [(&str, &str, &str); 1] =
    [("libjvm.so", "the Java virtual machine", "; a heap dump (jcmd PID GC.heap_dump) has them")];

/// Returns a line for each binary that contains a known allocator and took much of the mapped memory at its peak.
pub(super) fn lines(snapshot: &Snapshot, symbols: &mut Symbolizer) -> String {
    if !snapshot.device_ids().contains(&DeviceId::MAPPED) {
        return String::new();
    }
    let options = TopOptions::new().at(Moment::Peak).limit(usize::MAX);
    let report = top_with(snapshot, symbols, By::Stack, DeviceId::MAPPED, &options);
    let mut binaries: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &report.rows {
        if let Some(binary) = row.stack.first().and_then(|line| line.frame.binary.as_ref()) {
            *binaries.entry(&binary.path).or_default() += row.allocated_bytes;
        }
    }
    let mut binaries: Vec<(&str, u64)> =
        binaries.into_iter().filter(|(_, bytes)| *bytes >= MIN_BYTES).collect();
    binaries.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let mut line = |(path, bytes): (&str, u64)| {
        let path = Path::new(path);
        let (name, more) = identify(path)?;
        if name == JEMALLOC && records_jemalloc(snapshot, symbols) {
            // The program maps this memory itself.
            return None;
        }
        let file = path.file_name()?.to_string_lossy();
        let (bytes, file) = (human_bytes(bytes), printable(&file));
        Some(format!(
            "memtrack: {bytes} of mapped memory were taken by {name} ({file}), whose blocks are not recorded{more}\n"
        ))
    };
    binaries.into_iter().take(MAX_NAMED).filter_map(&mut line).collect()
}

/// Returns whether blocks of jemalloc are recorded.
fn records_jemalloc(snapshot: &Snapshot, symbols: &mut Symbolizer) -> bool {
    /// If jemalloc's blocks are recorded, most of the heap's blocks are.
    const STACKS: usize = 64;
    let rows = snapshot.events.rows_of(DeviceId::HOST);
    let mut stacks: Vec<StackId> = rows.map(|row| snapshot.events.stack[row]).take(MAX_EVENTS).collect();
    stacks.sort_unstable();
    stacks.dedup();
    stacks.iter().take(STACKS).any(|&stack| {
        let innermost = snapshot.frame_keys(stack).first().map(|&key| symbols.frames(key));
        innermost.is_some_and(|frames| frames.iter().any(|frame| frame.function.ends_with(JEMALLOC_HOOK)))
    })
}

/// Returns the name of the allocator in a binary, and how to see its blocks.
fn identify(path: &Path) -> Option<(&'static str, &'static str)> {
    let file = path.file_name()?.to_str()?;
    if let Some((_, name, more)) = BY_FILE.iter().find(|(known, ..)| file == *known) {
        return Some((name, more));
    }
    let input = File::open(path)
        .ok()
        .filter(|file| file.metadata().is_ok_and(|data| data.len() <= MAX_BINARY_BYTES))?;
    let known = find(BufReader::new(input))?;
    Some((known.name, known.more))
}

/// Returns the first known allocator whose text is in the input.
fn find(mut input: impl Read) -> Option<&'static Known> {
    const PIECE: usize = 1 << 20;
    let longest = KNOWN.iter().map(|known| known.text.len()).max().unwrap_or(0);
    let mut found = [false; KNOWN.len()];
    let mut buffer = vec![0; PIECE + longest];
    let mut kept = 0;
    loop {
        let count = input.read(&mut buffer[kept..]).ok().filter(|&count| count > 0);
        let Some(count) = count else { break };
        let filled = kept + count;
        for (found, known) in found.iter_mut().zip(&KNOWN) {
            *found = *found || memchr::memmem::find(&buffer[..filled], known.text).is_some();
        }
        // A text may continue in the next piece.
        kept = filled.min(longest - 1);
        buffer.copy_within(filled - kept..filled, 0);
    }
    found.into_iter().zip(&KNOWN).find_map(|(found, known)| found.then_some(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes in pieces of three.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(3).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn allocators_are_recognized_by_their_texts() {
        let name = |bytes: &[u8]| find(Slow(bytes)).map(|known| known.name);
        assert_eq!(name(b"\x7fELF .... <jemalloc>: Unsupported"), Some("jemalloc"));
        assert_eq!(name(b"xx\0mimalloc: warning: \0"), Some("mimalloc"));
        assert_eq!(name(b"\x7fELF nothing of the kind <jemalloc>"), None);
        let long = [vec![b'.'; 3 << 20], b"\xff Go buildinf:".to_vec()].concat();
        assert_eq!(find(&long[..]).map(|known| known.name), Some("the Go runtime"));
    }
}
