//! The exported symbols of a loaded binary, found in its memory through its hash table, without the dynamic linker: the
//! interpreter may be noticed inside a hook, where `dlsym` must not be called.
#![allow(unsafe_code)]

use std::ops::Range;

const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// The size of a symbol in the table.
const SYMBOL_BYTES: u64 = 24;

/// The symbol table of a loaded binary.
pub(super) struct Exports {
    bias: u64,
    /// The readable segments.
    segments: Vec<Range<u64>>,
    symbols: u64,
    names: Range<u64>,
    hashes: u64,
}

/// An exported symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) address: u64,
    pub(super) size_bytes: u64,
}

impl Exports {
    /// Finds the symbol table of the binary with this load address and these program headers.
    ///
    /// # Safety
    /// The binary must be loaded until the last call on the result.
    pub(super) unsafe fn of(bias: u64, headers: &[libc::Elf64_Phdr]) -> Option<Self> {
        let range = |header: &libc::Elf64_Phdr| {
            let start = bias.wrapping_add(header.p_vaddr);
            start..start.wrapping_add(header.p_memsz)
        };
        let is_readable =
            |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0;
        let segments = headers.iter().filter(is_readable).map(range).collect();
        let dynamic = range(headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?);
        let mut exports = Self { bias, segments, symbols: 0, names: 0..0, hashes: 0 };
        let mut name_bytes = 0;
        for entry in dynamic.step_by(16) {
            let value = exports.word(entry + 8)?;
            match exports.word(entry)? {
                DT_NULL => break,
                DT_STRTAB => exports.names.start = exports.absolute(value),
                DT_SYMTAB => exports.symbols = exports.absolute(value),
                DT_GNU_HASH => exports.hashes = exports.absolute(value),
                DT_STRSZ => name_bytes = value,
                _ => {}
            }
        }
        exports.names.end = exports.names.start.checked_add(name_bytes)?;
        (exports.symbols != 0 && exports.hashes != 0 && name_bytes > 0).then_some(exports)
    }

    /// Returns the address for a value of the dynamic section, in which the dynamic linker of glibc has replaced
    /// offsets by addresses where it could write to the section.
    fn absolute(&self, value: u64) -> u64 {
        if self.segments.iter().any(|segment| segment.contains(&value)) {
            value
        } else {
            self.bias.wrapping_add(value)
        }
    }

    /// Returns whether the bytes at an address lie in a readable segment.
    fn is_loaded(&self, address: u64, bytes: u64) -> bool {
        let is_in = |segment: &Range<u64>| segment.start <= address && segment.end - address >= bytes;
        self.segments.iter().any(|segment| segment.contains(&address) && is_in(segment))
    }

    fn word(&self, address: u64) -> Option<u64> {
        // SAFETY: the address lies in a segment of a binary that is loaded (`of`).
        self.is_loaded(address, 8).then(|| unsafe { (address as *const u64).read_unaligned() })
    }

    fn half(&self, address: u64) -> Option<u32> {
        // SAFETY: as above.
        self.is_loaded(address, 4).then(|| unsafe { (address as *const u32).read_unaligned() })
    }

    fn is_named(&self, name_at: u64, name: &str) -> bool {
        let bytes = name.len() as u64 + 1;
        if name_at.checked_add(bytes).is_none_or(|end| end > self.names.end)
            || !self.is_loaded(name_at, bytes)
        {
            return false;
        }
        // SAFETY: as above.
        let found = unsafe { std::slice::from_raw_parts(name_at as *const u8, bytes as usize) };
        found[..name.len()] == *name.as_bytes() && found[name.len()] == 0
    }

    /// Returns the symbol with this name that the binary defines.
    pub(super) fn find(&self, name: &str) -> Option<Export> {
        let head = |index: u64| self.half(self.hashes + 4 * index).map(u64::from);
        let [buckets, first, bloom_words, shift] = [head(0)?, head(1)?, head(2)?, head(3)?];
        let hash = gnu_hash(name);
        let bits = self.word(self.hashes + 16 + 8 * (u64::from(hash) / 64).checked_rem(bloom_words)?)?;
        let has_bit = |hash: u64| bits >> (hash % 64) & 1 == 1;
        if !has_bit(hash.into()) || !has_bit(u64::from(hash) >> shift.min(63)) {
            return None;
        }
        let buckets_at = self.hashes + 16 + 8 * bloom_words;
        let mut index = u64::from(self.half(buckets_at + 4 * u64::from(hash).checked_rem(buckets)?)?);
        while index >= first {
            let entry = self.half(buckets_at + 4 * buckets + 4 * (index - first))?;
            if entry | 1 == hash | 1 {
                let symbol = self.symbols + SYMBOL_BYTES * index;
                let name_at = self.names.start + u64::from(self.half(symbol)?);
                let is_defined = self.half(symbol + 4)? >> 16 != 0;
                if is_defined && self.is_named(name_at, name) {
                    let address = self.bias.wrapping_add(self.word(symbol + 8)?);
                    return Some(Export { address, size_bytes: self.word(symbol + 16)? });
                }
            }
            // The last entry of a bucket has this bit set.
            if entry & 1 == 1 {
                break;
            }
            index += 1;
        }
        None
    }
}

/// Returns the hash of a name in the section `.gnu.hash`.
fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, c_int, c_void};

    /// Collects what the C library and the other binaries export under some names.
    extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the dynamic linker passes a valid entry; `found` is the vector below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<(String, Option<Export>)>>()) };
        // SAFETY: an entry has this many headers, and the binary stays loaded while the linker's lock is held.
        let exports = unsafe {
            Exports::of(info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
        };
        // SAFETY: the name is a C string.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned();
        for name in ["getenv", "_PyRuntime"] {
            let export = exports.as_ref().and_then(|exports| exports.find(name));
            found.push((format!("{path} {name}"), export));
        }
        0
    }

    #[test]
    fn symbol_is_where_the_dynamic_linker_finds_it() {
        let mut found: Vec<(String, Option<Export>)> = Vec::new();
        // SAFETY: the callback receives the vector, and only during the call.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
        let of_libc = found.iter().find(|(name, _)| name.contains("libc.so") && name.ends_with("getenv"));
        let export = of_libc.and_then(|(_, export)| *export).expect("the C library exports it");
        assert_eq!(export.address, libc::getenv as *const () as u64);
        assert!(export.size_bytes > 0);
        assert!(found.iter().all(|(name, export)| !name.ends_with("_PyRuntime") || export.is_none()));
    }
}
