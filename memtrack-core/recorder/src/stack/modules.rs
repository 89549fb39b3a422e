//! The binaries loaded into this process, as the dynamic linker lists them. The recorder calls [`loaded_modules`] when
//! it writes a recording, so that addresses can be symbolized later. The unsafe code here only reads memory that the
//! dynamic linker has mapped and describes while holding its lock.
#![allow(unsafe_code)]

use libc::{PF_R, PF_X, PT_LOAD, PT_NOTE, dl_phdr_info};
use memtrack_file::binary_id::{compute_code_id, to_hex};
use memtrack_model::snapshot::Module;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::path::Path;

/// The type of the GNU note that contains the build id.
const NT_GNU_BUILD_ID: u32 = 3;

/// Lists the loaded binaries that contain code, the program first.
///
/// Takes the dynamic linker's lock and allocates, so it must be called where that is allowed. It costs a few
/// microseconds per binary, plus a checksum of the code for a binary without a build id.
pub fn loaded_modules() -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    // SAFETY: `visit` has the signature that the dynamic linker requires, and `modules` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut modules).cast()) };
    for module in &mut modules {
        module.path = real_path(&module.path);
    }
    modules
}

/// Returns the range of addresses at which the binary that contains `address` is mapped; `None` if no binary contains
/// it, or if the binary cannot be determined without a search (on processors other than x86-64, and with glibc before
/// 2.35). Takes no lock.
pub fn binary_at(address: u64) -> Option<Range<u64>> {
    super::capture::binary_at(address)
}

/// Converts the dynamic linker's name for a binary to a path that is also valid in other processes.
fn real_path(name: &str) -> String {
    if is_the_program(name) {
        let program = std::env::current_exe().unwrap_or_default().to_string_lossy().into_owned();
        // The kernel appends this suffix if the program's file was replaced while the program was running.
        return program.strip_suffix(" (deleted)").map(str::to_owned).unwrap_or(program);
    }
    if name.contains('/') && !name.starts_with('/') {
        return std::path::absolute(Path::new(name))
            .map_or_else(|_| name.to_owned(), |path| path.to_string_lossy().into_owned());
    }
    name.to_owned()
}

/// Returns whether the dynamic linker's name denotes the program itself. glibc uses an empty name. musl uses the
/// kernel's link to the program, or the name that was used to start the program.
fn is_the_program(name: &str) -> bool {
    const LINK: &str = "/proc/self/exe";
    let is_called =
        || std::env::current_exe().is_ok_and(|program| program.file_name() == Some(name.as_ref()));
    name.is_empty() || name == LINK || (!name.contains('/') && is_called())
}

extern "C" fn visit(info: *mut dl_phdr_info, _size: usize, modules: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a valid entry, and `modules` is the vector in `loaded_modules`, which waits for
    // this call.
    let (info, modules) = unsafe { (&*info, &mut *modules.cast::<Vec<Module>>()) };
    if !info.dlpi_phdr.is_null() {
        // SAFETY: an entry has `dlpi_phnum` program headers, which exist while the binary is loaded.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let name = if info.dlpi_name.is_null() {
            String::new()
        } else {
            // SAFETY: the name is a C string that exists while the binary is loaded.
            unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
        };
        modules.extend(describe(name, info.dlpi_addr, headers));
    }
    0
}

/// Describes a loaded binary according to its program headers. Returns `None` if it has no code.
pub(crate) fn describe_loaded(name: &str, bias: u64, headers: &[libc::Elf64_Phdr]) -> Option<Module> {
    let module = describe(name.to_owned(), bias, headers)?;
    Some(Module { path: real_path(name), ..module })
}

fn describe(path: String, bias: u64, headers: &[libc::Elf64_Phdr]) -> Option<Module> {
    let loads = || headers.iter().filter(|header| header.p_type == PT_LOAD);
    let code = || loads().filter(|header| header.p_flags & PF_X != 0);
    let start = code().map(|header| bias.wrapping_add(header.p_vaddr)).min()?;
    let end = code().map(|header| bias.wrapping_add(header.p_vaddr).wrapping_add(header.p_memsz)).max()?;
    // Returns the bytes of `header` that are in the file, if a readable segment contains all of them.
    let bytes = |header: &libc::Elf64_Phdr| -> Option<&[u8]> {
        let mapped = loads().any(|load| {
            load.p_flags & PF_R != 0
                && load.p_vaddr <= header.p_vaddr
                && header.p_vaddr.saturating_add(header.p_filesz)
                    <= load.p_vaddr.saturating_add(load.p_filesz)
        });
        let address = bias.wrapping_add(header.p_vaddr) as *const u8;
        // SAFETY: the range lies in a readable segment that the dynamic linker has mapped from the file and does not
        // unmap during the call; segments of code and notes are not written to.
        mapped.then(|| unsafe { std::slice::from_raw_parts(address, header.p_filesz as usize) })
    };
    let notes = headers.iter().filter(|header| header.p_type == PT_NOTE);
    let build_id = notes
        .filter_map(|note| build_id_note(bytes(note)?, if note.p_align == 8 { 8 } else { 4 }))
        .next()
        .map(to_hex)
        .unwrap_or_default();
    let code_id = if build_id.is_empty() { compute_code_id(code().filter_map(bytes)) } else { String::new() };
    Some(Module { path, bias, start, end, build_id, code_id })
}

/// Returns the build id found in a segment's notes. Each note has three words (length of the name, length of the
/// content, type), followed by the name and the content, each padded to `align`.
fn build_id_note(mut notes: &[u8], align: usize) -> Option<&[u8]> {
    loop {
        let (head, rest) = notes.split_first_chunk::<12>()?;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (name_bytes, content_bytes) = (word(0), word(4));
        // Padding counts from the start of the note, whose head is 12 bytes.
        let content_at = (12 + name_bytes).checked_next_multiple_of(align)? - 12;
        let content = rest.get(content_at..content_at.checked_add(content_bytes)?)?;
        if word(8) == NT_GNU_BUILD_ID as usize && rest.get(..name_bytes) == Some(b"GNU\0") {
            return Some(content);
        }
        let next = (12 + content_at + content_bytes).checked_next_multiple_of(align)? - 12;
        notes = rest.get(next..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_symbols::build_id;

    #[test]
    fn this_function_lies_in_the_first_module_whose_file_has_the_same_id() {
        let modules = loaded_modules();
        let here = this_function_lies_in_the_first_module_whose_file_has_the_same_id as fn() as usize as u64;
        let program = &modules[0];
        assert!((program.start..program.end).contains(&here));
        let id = build_id::read(Path::new(&program.path)).unwrap();
        assert_eq!((id.build_id, id.code_id), (program.build_id.clone(), program.code_id.clone()));
    }

    #[test]
    fn every_loader_name_of_the_program_becomes_its_path() {
        let program = std::env::current_exe().unwrap();
        let called = program.file_name().unwrap().to_str().unwrap();
        for name in ["", "/proc/self/exe", called] {
            assert_eq!(Path::new(&real_path(name)), program, "{name}");
        }
        for other in ["linux-vdso.so.1", "/usr/lib/libz.so.1"] {
            assert_eq!(real_path(other), other);
        }
    }

    #[test]
    fn the_c_library_has_its_path_and_the_id_of_its_file() {
        let modules = loaded_modules();
        let libc = modules.iter().find(|module| module.path.contains("libc.so")).unwrap();
        assert!(libc.path.starts_with('/'));
        assert_eq!(build_id::read(Path::new(&libc.path)).unwrap().build_id, libc.build_id);
    }

    #[test]
    fn code_ids_in_memory_and_in_the_file_are_equal() {
        /// Describes the first module again, as if it had no notes.
        extern "C" fn first(info: *mut dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
            // SAFETY: as in `visit`; `found` is the option below.
            let (info, found) = unsafe { (&*info, &mut *found.cast::<Option<Module>>()) };
            // SAFETY: as in `visit`.
            let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
            let loads: Vec<_> = headers.iter().copied().filter(|h| h.p_type == PT_LOAD).collect();
            *found = describe(String::new(), info.dlpi_addr, &loads);
            1
        }
        let mut found: Option<Module> = None;
        // SAFETY: as in `loaded_modules`.
        unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
        let module = found.unwrap();
        assert!(module.build_id.is_empty());
        assert_eq!(build_id::code_id_of(&std::env::current_exe().unwrap()), Some(module.code_id));
    }

    #[test]
    fn notes_are_parsed_and_a_damaged_note_ends_the_search() {
        let mut notes = Vec::new();
        for (kind, content) in [(1u32, &b"abcde"[..]), (NT_GNU_BUILD_ID, &[1, 2, 3])] {
            notes.extend(4u32.to_ne_bytes());
            notes.extend((content.len() as u32).to_ne_bytes());
            notes.extend(kind.to_ne_bytes());
            notes.extend(b"GNU\0");
            notes.extend(content);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id_note(&notes, 4), Some(&[1, 2, 3][..]));
        assert_eq!(build_id_note(&notes[..30], 4), None);
        assert_eq!(build_id_note(&[0xff; 40], 4), None);
        assert_eq!(build_id_note(&[0; 24], 4), None);
    }
}
