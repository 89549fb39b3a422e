//! The dynamic linker's data about the loaded binaries. Data about all of them is read under the linker's lock. Data
//! about the binary that contains an address is read with glibc's lock-free `_dl_find_object`.
#![allow(unsafe_code)]

use super::relocation::shift_of;
use super::sections::{Bytes, COPIED_AT_START_BYTES, eh_frame_length, eh_frame_pointer};
use super::{Binary, Known};
use crate::python;
use crate::settings::internal_code;
use crate::stack::capture::foreign;
use crate::stack::modules::describe_loaded;
use memtrack_model::snapshot::Module;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The result of a listing, filled while the dynamic linker holds its lock.
struct Listing {
    known: Option<&'static Known>,
    /// For each known binary, whether it is still loaded.
    still_loaded: Vec<bool>,
    new: Vec<Binary>,
}

/// Returns which of the known binaries are still loaded, and the new binaries with small tables. Takes the dynamic
/// linker's lock.
pub(super) fn list(known: Option<&'static Known>) -> (Vec<bool>, Vec<Binary>) {
    find_object();
    let still_loaded = vec![false; known.map_or(0, |known| known.binaries.len())];
    let mut listing = Listing { known, still_loaded, new: Vec::new() };
    // SAFETY: the callback receives `listing` as its data pointer, and is called only before `dl_iterate_phdr` returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut listing).cast()) };
    (listing.still_loaded, listing.new)
}

extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, listing: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a valid description with `dlpi_phnum` program headers, and `listing` is the
    // pointer passed by `list`.
    let (info, listing, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info, &mut *listing.cast::<Listing>(), headers)
    };
    let bias = info.dlpi_addr;
    let name = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: a non-null name is a C string.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    // SAFETY: the binary stays loaded while the linker's lock is held.
    unsafe { python::notice(&name, bias, headers) };
    let loaded = |header: &libc::Elf64_Phdr| {
        let start = bias.wrapping_add(header.p_vaddr);
        start..start.wrapping_add(header.p_memsz)
    };
    let segments: Vec<_> = headers.iter().filter(|header| header.p_type == libc::PT_LOAD).collect();
    let code = segments.iter().filter(|header| header.p_flags & libc::PF_X != 0).map(|header| loaded(header));
    let code = code.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
    let tables = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
    let (Some(code), Some(tables)) = (code, tables) else { return 0 };
    let header_at = loaded(tables);
    // Packed executables may have program headers whose ranges are not loaded.
    let is_loaded = |range: &std::ops::Range<u64>| {
        segments.iter().any(|header| {
            let segment = loaded(header);
            header.p_flags & libc::PF_R != 0 && segment.start <= range.start && range.end <= segment.end
        })
    };
    if header_at.end < header_at.start || !is_loaded(&header_at) {
        return 0;
    }
    // SAFETY: the range is a mapped, readable part of a binary, which stays loaded while the linker's lock is held.
    let eh_frame_hdr = unsafe {
        std::slice::from_raw_parts(header_at.start as *const u8, (header_at.end - header_at.start) as usize)
    };
    let Some(eh_frame_at) = eh_frame_pointer(eh_frame_hdr, header_at.start) else { return 0 };
    // The length of the section is not stored. The section ends with a zero entry, or at the latest with its segment.
    let Some(segment) =
        segments.iter().map(|header| loaded(header)).find(|range| range.contains(&eh_frame_at))
    else {
        return 0;
    };
    // SAFETY: as above, and the range ends with its segment.
    let eh_frame =
        unsafe { std::slice::from_raw_parts(eh_frame_at as *const u8, (segment.end - eh_frame_at) as usize) };
    let is_same = |binary: &Binary| {
        binary.bias == bias && binary.eh_frame_hdr_at == header_at.start && binary.name == name
    };
    if let Some(at) = listing.known.and_then(|known| known.binaries.iter().position(is_same)) {
        listing.still_loaded[at] = true;
        return 0;
    }
    // The program comes first, and is never unloaded.
    let is_program = listing.known.is_none() && listing.new.is_empty() && name.is_empty();
    let tables = if is_program || is_permanent(&code, bias) {
        Some((Bytes::InPlace(eh_frame_hdr), Bytes::InPlace(eh_frame)))
    } else {
        let length =
            eh_frame_length(eh_frame_at, segment.end).map_or(eh_frame.len(), |length| length as usize);
        (length <= COPIED_AT_START_BYTES)
            .then(|| Bytes::copy(eh_frame_hdr).zip(Bytes::copy(&eh_frame[..length])))
            .flatten()
    };
    if let Some((eh_frame_hdr, eh_frame)) = tables {
        let module = describe_loaded(&name, bias, headers);
        let shift = shift_of(&code);
        let eh_frame_hdr_at = header_at.start;
        let binary =
            Binary { bias, code, eh_frame_hdr, eh_frame, eh_frame_hdr_at, eh_frame_at, name, module, shift };
        listing.new.push(binary);
    }
    0
}

unsafe extern "C" {
    /// A function of libgcc, which is only declared here to find the library.
    fn _Unwind_Backtrace();
}

/// Returns whether a binary with this code and load address is certain to remain loaded: the dynamic linker, the C
/// library, the preload library, or libgcc, which the preload library needs.
fn is_permanent(code: &std::ops::Range<u64>, bias: u64) -> bool {
    // SAFETY: the call only queries a number.
    let linker = unsafe { libc::getauxval(libc::AT_BASE) };
    let internal = internal_code();
    let of_preload =
        || code.contains(&internal.start) || code.contains(&(_Unwind_Backtrace as *const () as u64));
    bias != 0 && bias == linker
        || code.contains(&(libc::dl_iterate_phdr as *const () as u64))
        || !internal.is_empty() && of_preload()
}

/// glibc's `struct dl_find_object` (2.35).
#[repr(C)]
pub(super) struct DlFindObject {
    flags: u64,
    map_start: *const u8,
    map_end: *const u8,
    link_map: *const LinkMap,
    eh_frame: *const u8,
    reserved: [u64; 7],
}

impl DlFindObject {
    /// Returns the addresses of the binary.
    pub(super) fn mapped(&self) -> std::ops::Range<u64> {
        self.map_start as u64..self.map_end as u64
    }

    /// Returns the address of the binary's `.eh_frame_hdr`.
    pub(super) fn eh_frame_at(&self) -> u64 {
        self.eh_frame as u64
    }
}

/// The public first fields of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    bias: u64,
    name: *const c_char,
}

pub(super) type FindObject = unsafe extern "C" fn(*const c_void, *mut DlFindObject) -> c_int;

/// Returns `_dl_find_object`, if glibc has it. [`list`] is the first to call this, outside hooks and before any fork.
pub(super) fn find_object() -> Option<FindObject> {
    static FIND: OnceLock<Option<FindObject>> = OnceLock::new();
    *FIND.get_or_init(|| {
        // SAFETY: the call looks up a name, and glibc documents the function with this signature.
        unsafe {
            let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr());
            (!symbol.is_null()).then(|| std::mem::transmute::<*mut c_void, FindObject>(symbol))
        }
    })
}

/// Returns glibc's data about the binary that contains `address`. Takes no lock.
pub(super) fn object_at(address: u64) -> Option<DlFindObject> {
    let find = find_object()?;
    let mut object = DlFindObject {
        flags: 0,
        map_start: std::ptr::null(),
        map_end: std::ptr::null(),
        link_map: std::ptr::null(),
        eh_frame: std::ptr::null(),
        reserved: [0; 7],
    };
    // SAFETY: the address is only compared, and glibc fills the structure, which is a local variable.
    (unsafe { find(address as *const c_void, &mut object) } == 0).then_some(object)
}

/// The unwind tables of a binary.
#[derive(Default)]
struct Tables {
    eh_frame_hdr: Bytes,
    eh_frame: Bytes,
    eh_frame_at: u64,
}

/// The length of an `.eh_frame_hdr` from which on the tables are not copied. It has 8 bytes for each function, and
/// `.eh_frame` about 64.
const MAX_COPIED_HEADER_BYTES: u64 = 512 << 10;

/// Returns the binary that contains `address`, a return address of this thread's stack. Small tables are copied, because the
/// binary may be unloaded at any time. If it has no tables that can be used, only its code is known.
pub(super) fn find(address: u64) -> Option<Binary> {
    let object = object_at(address)?;
    if object.link_map.is_null() {
        return None;
    }
    // SAFETY: glibc has filled the structure for a binary that is loaded. The code at `address` is on this thread's
    // stack, so the binary stays loaded while this runs.
    let (bias, name) = unsafe {
        let LinkMap { bias, name } = *object.link_map;
        (
            bias,
            if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() },
        )
    };
    let code = object.mapped();
    let Tables { eh_frame_hdr, eh_frame, eh_frame_at } = tables_of(&object, bias).unwrap_or_default();
    Some(Binary {
        bias,
        eh_frame_hdr,
        eh_frame,
        eh_frame_hdr_at: object.eh_frame_at(),
        eh_frame_at,
        module: module_of(&object, bias, &name),
        name,
        shift: shift_of(&code),
        code,
    })
}

/// Returns the tables of a binary whose code is on this thread's stack; `None` if it has none, or none in the form that all
/// linkers produce.
fn tables_of(object: &DlFindObject, bias: u64) -> Option<Tables> {
    let headers = headers_of(object)?;
    let header_at = object.eh_frame_at();
    let header_end = readable_end(headers, bias, header_at).filter(|end| end - header_at >= 12)?;
    // SAFETY: the head of `.eh_frame_hdr` lies within a readable segment, as was just checked.
    let head = unsafe { std::slice::from_raw_parts(object.eh_frame, 12) };
    let eh_frame_at = eh_frame_pointer(head, header_at)?;
    // The search table consists of a count and eight bytes per entry (encodings 0x03 and 0x3b, which every linker
    // uses).
    let entries = u64::from(u32::from_le_bytes(head[8..12].try_into().ok()?));
    let header_len = 12 + entries * 8;
    let end = readable_end(headers, bias, eh_frame_at)?;
    if head[2] != 0x03 || head[3] != 0x3b || header_len > header_end - header_at {
        return None;
    }
    let copied = || {
        let eh_frame_len = eh_frame_length(eh_frame_at, end)?;
        let copy = |at: u64, len: u64| {
            // SAFETY: both ranges have been checked to lie within readable segments of a loaded binary.
            Bytes::copy(unsafe { std::slice::from_raw_parts(at as *const u8, len as usize) })
        };
        copy(header_at, header_len).zip(copy(eh_frame_at, eh_frame_len))
    };
    let is_large = header_len > MAX_COPIED_HEADER_BYTES;
    let (eh_frame_hdr, eh_frame) = if is_large { None } else { copied() }.unwrap_or_else(|| {
        // SAFETY: the tables lie within readable segments of the binary.
        unsafe { (Bytes::guarded(header_at, header_len), Bytes::guarded(eh_frame_at, end - eh_frame_at)) }
    });
    Some(Tables { eh_frame_hdr, eh_frame, eh_frame_at })
}

/// Returns the end of the readable segment that contains an address; `None` if there is none.
fn readable_end(headers: &[libc::Elf64_Phdr], bias: u64, address: u64) -> Option<u64> {
    let loads =
        headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0);
    let mut segments = loads.map(|header| {
        let start = bias.wrapping_add(header.p_vaddr);
        start..start.wrapping_add(header.p_memsz)
    });
    segments.find(|segment| segment.contains(&address)).map(|segment| segment.end)
}

/// Returns the program headers of a binary, if it begins with its ELF header and they lie within its mapping. Its code must be
/// on this thread's stack, so that it stays loaded.
fn headers_of(object: &DlFindObject) -> Option<&[libc::Elf64_Phdr]> {
    let std::ops::Range { start, end } = object.mapped();
    // SAFETY: the mapping begins with the ELF header of the binary, which stays loaded while its code is on this stack.
    // The program headers are read only if they lie within the mapping.
    unsafe {
        let head = &*(start as *const libc::Elf64_Ehdr);
        let at = start.checked_add(head.e_phoff)?;
        let len_bytes = u64::from(head.e_phnum) * size_of::<libc::Elf64_Phdr>() as u64;
        if head.e_ident[..4] != *b"\x7fELF" || at.checked_add(len_bytes)? > end || at % 8 != 0 {
            return None;
        }
        Some(std::slice::from_raw_parts(at as *const libc::Elf64_Phdr, usize::from(head.e_phnum)))
    }
}

/// Returns the module that recordings contain for a binary whose code is on this thread's stack. Also looks for a Python
/// interpreter in it.
fn module_of(object: &DlFindObject, bias: u64, name: &str) -> Option<Module> {
    let headers = headers_of(object)?;
    // SAFETY: the binary stays loaded while its code is on this stack.
    unsafe { python::notice(name, bias, headers) };
    describe_loaded(name, bias, headers)
}

/// Returns whether, in a forked child, a binary is still loaded at the same address. Takes no lock and dereferences
/// none of the dynamic linker's pointers, because another thread may unload the binary at the same time.
pub(super) fn is_still_loaded(binary: &Binary) -> bool {
    if find_object().is_none() {
        return true;
    }
    let Some(object) = object_at(binary.code.start) else { return false };
    let is_named_so = name_of(object.link_map)
        .is_none_or(|(bias, name)| bias == binary.bias && String::from_utf8_lossy(&name) == binary.name);
    object.eh_frame as u64 == binary.eh_frame_hdr_at && is_named_so
}

/// Returns a binary's load address and the dynamic linker's name for it, or `None` if the kernel cannot copy them.
fn name_of(binary: *const LinkMap) -> Option<(u64, Vec<u8>)> {
    let mut head = [0; 2];
    if foreign::copy_from(binary as u64, &mut head) < size_of_val(&head) {
        return None;
    }
    let [bias, name_at] = head;
    if name_at == 0 {
        return Some((bias, Vec::new()));
    }
    let mut name = [0; MAX_NAME_BYTES / 8];
    let copied = foreign::copy_from(name_at, &mut name);
    let bytes = name.iter().flat_map(|word| word.to_ne_bytes()).take(copied);
    Some((bias, bytes.take_while(|&byte| byte != 0).collect()))
}

/// The maximum length of a file name in bytes.
const MAX_NAME_BYTES: usize = 4096;
