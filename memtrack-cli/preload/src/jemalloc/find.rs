//! Finds jemalloc in the program's file, by the symbol table.

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

/// The size of the largest file of a program, in bytes, in which jemalloc is searched for.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// The size of the largest range, in bytes, in which the functions of a jemalloc lie. They take a third of a MiB.
const MAX_CODE_BYTES: u64 = 4 << 20;

/// jemalloc in the program.
pub(super) struct Found {
    /// The address of its `mallctl`.
    pub(super) control: u64,
    /// The addresses of its functions.
    pub(super) code: Range<u64>,
}

/// Returns where jemalloc is; `None` if there is none, or not all of it is known.
pub(super) fn find() -> Option<Found> {
    ProgramFile::open()?.find()
}

/// The program's file, mapped.
struct ProgramFile {
    start: *const u8,
    bytes: usize,
}

impl ProgramFile {
    fn open() -> Option<Self> {
        let file = std::fs::File::open("/proc/self/exe").ok()?;
        let bytes = file.metadata().ok().map(|data| data.len()).filter(|&bytes| bytes <= MAX_FILE_BYTES)?;
        let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)?;
        // SAFETY: a new mapping of the file; the running program's file cannot be written.
        let start =
            unsafe { libc::mmap(null_mut(), bytes, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
        (start != libc::MAP_FAILED).then_some(Self { start: start.cast(), bytes })
    }

    /// Returns the addresses of jemalloc's functions; `None` if there is no jemalloc, or not all of it is known.
    fn find(&self) -> Option<Found> {
        // SAFETY: the mapping has this many bytes, and exists as long as `self`.
        let data = unsafe { std::slice::from_raw_parts(self.start, self.bytes) };
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let symbols = sections.symbols(endian, data, elf::SHT_SYMTAB).ok()?;
        // Most programs have no such name, and their symbols need not be read.
        let names = sections.section(symbols.string_section()).ok()?.data(endian, data).ok()?;
        memchr::memmem::find(names, b"mallctl\0")?;
        let functions = || {
            symbols.iter().filter_map(|symbol| {
                let is_function = symbol.st_type() == elf::STT_FUNC && !symbol.is_undefined(endian);
                let name = is_function.then(|| symbol.name(endian, symbols.strings()).ok()).flatten()?;
                let start = symbol.st_value(endian);
                Some((name, start..start.saturating_add(symbol.st_size(endian))))
            })
        };
        let is_there =
            |of: &[u8], rest: &[u8]| functions().any(|(name, _)| name.strip_prefix(of) == Some(rest));
        // Each build of jemalloc has its own prefix, or none.
        let (prefix, control) = functions().find_map(|(name, at)| {
            let prefix = name.strip_suffix(b"mallctl")?;
            is_there(prefix, b"malloc").then_some((prefix, at.start))
        })?;
        // Internal functions have a prefix even if public ones have none.
        let internal = if prefix.is_empty() { b"je_".as_slice() } else { prefix };
        // The functions that map memory are in one file of jemalloc. Compilers put unlikely functions and parts of functions
        // elsewhere, in front of the program's own code, so a range of all of jemalloc would have the program in it.
        let is_unlikely_part = |name: &[u8]| name.windows(5).any(|part| part == b".cold");
        let maps_memory = |name: &[u8]| {
            let own = name.strip_prefix(internal).map(|name| name.strip_prefix(b"je_").unwrap_or(name));
            let is_static = name.starts_with(b"os_pages_") || name == b"pages_map_slow";
            (is_static || own.is_some_and(|name| name.starts_with(b"pages_"))) && !is_unlikely_part(name)
        };
        let code = functions().filter(|(name, _)| maps_memory(name)).map(|(_, at)| at);
        let code = code.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))?;
        if code.end - code.start > MAX_CODE_BYTES {
            return None;
        }
        let bias = program_bias();
        let loaded = |address: u64| bias.wrapping_add(address);
        Some(Found { control: loaded(control), code: loaded(code.start)..loaded(code.end) })
    }
}

impl Drop for ProgramFile {
    fn drop(&mut self) {
        // SAFETY: the mapping is from `open`, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.bytes) };
    }
}

/// Returns the difference between the program's addresses and those in its file.
fn program_bias() -> u64 {
    extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, bias: *mut c_void) -> c_int {
        // SAFETY: the dynamic linker passes a valid entry, and `bias` is the variable below. The first entry is the program.
        unsafe { bias.cast::<u64>().write((*info).dlpi_addr) };
        1
    }
    let mut bias = 0_u64;
    // SAFETY: `visit` has the required signature, and `bias` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut bias).cast()) };
    bias
}
