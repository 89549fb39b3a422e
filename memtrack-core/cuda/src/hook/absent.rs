//! Hides the driver's names in a process without the driver. This library exports functions with these names, because
//! programs that are linked against the driver bind to them. But a program may use `dlsym` or a weak reference to check
//! whether there is a driver, and must then find none. The hook's `dlsym` handles the first case. Weak references are bound
//! when the program is loaded, before any code of this library runs. The library's constructor sets those that are bound to
//! this library to null.
//!
//! The same applies to functions that `memtrack run --host` exports from its second library, memtrack-preload-heap, but
//! that the C library or allocator may lack.
//!
//! **Why not export nothing, and bind the binaries that need the driver?** Binaries would also have to be bound after each
//! `dlopen`. But if the hook called `dlopen` in order to act afterwards, the loader would take the hook for the caller,
//! and would not search the folders of the real caller.
//!
//! Weak references in libraries that are opened later remain bound to this library. If there is no driver, its
//! functions fail.

use super::entry::{binary_of, look_up, process_symbol};
use super::table;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The names exported by memtrack-preload-heap that some C libraries lack, because C23 added them.
const HEAP_NAMES: [&[u8]; 2] = [b"free_sized", b"free_aligned_sized"];

/// The load address of memtrack-preload-heap; null if it is not loaded.
static HEAP_LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Returns whether memtrack exports a function with this name that the process may lack without memtrack.
pub(super) fn may_be_undefined(name: &[u8]) -> bool {
    HEAP_NAMES.contains(&name) || table::find_by_symbol(name).is_some()
}

/// Returns whether `address` is the address of memtrack's function with this name.
pub(super) fn is_here(name: &[u8], address: *const c_void) -> bool {
    match table::find_by_symbol(name) {
        Some(hooked) => hooked.is_export(address),
        None => {
            let library = HEAP_LIBRARY.load(Ordering::Relaxed).cast_const();
            !library.is_null() && HEAP_NAMES.contains(&name) && binary_of(address) == library
        }
    }
}

/// Returns whether memtrack is the only binary in the program's search order that defines `name`.
pub(super) fn is_defined_only_here(name: &CStr) -> bool {
    // The lookup that is expected to fail comes last, because it sets the error message.
    is_here(name.to_bytes(), process_symbol(name)) && look_up(libc::RTLD_NEXT, name).is_null()
}

/// Sets to null the weak references to names that only memtrack defines. Must be called after the program was loaded,
/// while the process has only one thread.
pub(crate) fn hide_absent_names() {
    let library = binary_of(process_symbol(c"memtrack_heap_library")).cast_mut();
    HEAP_LIBRARY.store(library, Ordering::Relaxed);
    let mut found: Vec<WeakReference> = Vec::new();
    // SAFETY: the callback receives `found` as its data pointer, and is called only before `dl_iterate_phdr` returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    // This is not done in the callback, because the loader's locks would be taken in a different order there.
    for reference in found {
        if is_here(reference.name.to_bytes(), reference.bound) && is_defined_only_here(reference.name) {
            // The lookup above has failed, and the program must not see its error message.
            // SAFETY: the binary is still loaded. The other call returns this thread's last message.
            unsafe {
                clear(&reference);
                libc::dlerror();
            }
        }
    }
}

/// A weak reference to a name that the process may lack without memtrack.
struct WeakReference {
    /// The name, in the binary's string table.
    name: &'static CStr,
    /// The function that the reference is bound to.
    bound: *const c_void,
    place: *mut *const c_void,
    /// The end of the part of the binary that the loader has made read-only, which it does only for whole pages.
    protected_until: usize,
}

/// The entries of a dynamic section that are needed here.
#[derive(Default)]
struct Dynamic {
    names: usize,
    symbols: usize,
    /// The addresses and sizes of the two tables of relocations.
    relocations: [(usize, usize); 2],
    /// The number of relocations without a symbol. They are at the start of the first table.
    relative: usize,
}

/// An entry of a dynamic section.
#[repr(C)]
struct DynamicEntry {
    tag: i64,
    value: usize,
}

const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const DT_RELACOUNT: i64 = 0x6fff_fff9;

const STB_WEAK: u8 = 2;
const SHN_UNDEF: u16 = 0;

/// The kinds of relocations that store the address of a symbol: `R_X86_64_64` and `R_X86_64_GLOB_DAT`, or the same for aarch64.
/// Relocations for calls are omitted: they may be bound at the first call, and a program makes no call if the reference is
/// null.
#[cfg(target_arch = "x86_64")]
const ADDRESSES: [u32; 2] = [1, 6];
#[cfg(target_arch = "aarch64")]
const ADDRESSES: [u32; 2] = [257, 1025];

extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description with `dlpi_phnum` program headers of a binary that it has loaded and
    // relocated, and `found` is the pointer passed by `hide_absent_names`.
    unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        find_references(info.dlpi_addr as usize, headers, &mut *found.cast::<Vec<WeakReference>>());
    }
    0
}

/// Appends a binary's weak references to names that the process may lack without memtrack.
///
/// # Safety
/// The headers must be those of a binary that the loader has loaded at this address and relocated.
unsafe fn find_references(bias: usize, headers: &[libc::Elf64_Phdr], found: &mut Vec<WeakReference>) {
    let Some(section) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else { return };
    // SAFETY: the section is mapped, and the loader has read it.
    let dynamic = unsafe { read_dynamic(bias, at(bias.wrapping_add(section.p_vaddr as usize))) };
    if dynamic.names == 0 || dynamic.symbols == 0 {
        return;
    }
    for ((table, bytes), first) in dynamic.relocations.into_iter().zip([dynamic.relative, 0]) {
        let count = if table == 0 { 0 } else { bytes / size_of::<libc::Elf64_Rela>() };
        for index in first..count {
            // SAFETY: the loader has applied this relocation, so the relocation, its symbol, the symbol's name and the place
            // are mapped. They need not be aligned. The name is used only while the binary is loaded.
            let (name, offset) = unsafe {
                let relocation = at::<libc::Elf64_Rela>(table).add(index).read_unaligned();
                if !ADDRESSES.contains(&(relocation.r_info as u32)) {
                    continue;
                }
                let symbol = (relocation.r_info >> 32) as usize;
                let symbol = at::<libc::Elf64_Sym>(dynamic.symbols).add(symbol).read_unaligned();
                if symbol.st_info >> 4 != STB_WEAK || symbol.st_shndx != SHN_UNDEF {
                    continue;
                }
                (CStr::from_ptr(at(dynamic.names + symbol.st_name as usize)), relocation.r_offset)
            };
            if !may_be_undefined(name.to_bytes()) {
                continue;
            }
            let contains = |header: &&libc::Elf64_Phdr| {
                (header.p_vaddr..header.p_vaddr.wrapping_add(header.p_memsz)).contains(&offset)
            };
            let is_writable = |header: &libc::Elf64_Phdr| {
                header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0
            };
            if !headers.iter().filter(contains).any(is_writable) {
                continue;
            }
            let place = at::<*const c_void>(bias.wrapping_add(offset as usize)).cast_mut();
            // SAFETY: as above.
            let bound = unsafe { place.read_unaligned() };
            let protected =
                headers.iter().filter(contains).find(|header| header.p_type == libc::PT_GNU_RELRO);
            let protected_until = protected
                .map_or(0, |header| bias.wrapping_add(header.p_vaddr.wrapping_add(header.p_memsz) as usize));
            found.push(WeakReference { name, bound, place, protected_until });
        }
    }
}

/// Reads a dynamic section.
///
/// # Safety
/// The section must belong to a loaded binary.
unsafe fn read_dynamic(bias: usize, mut section: *const DynamicEntry) -> Dynamic {
    let mut dynamic = Dynamic::default();
    // The loader has replaced offsets with addresses, except in sections that it cannot write to.
    let address = |value: usize| if value < bias { bias.wrapping_add(value) } else { value };
    loop {
        // SAFETY: the caller guarantees a valid section, and every section ends with `DT_NULL`.
        let entry = unsafe { section.read_unaligned() };
        match entry.tag {
            DT_NULL => return dynamic,
            DT_STRTAB => dynamic.names = address(entry.value),
            DT_SYMTAB => dynamic.symbols = address(entry.value),
            DT_RELA => dynamic.relocations[0].0 = address(entry.value),
            DT_RELASZ => dynamic.relocations[0].1 = entry.value,
            DT_RELACOUNT => dynamic.relative = entry.value,
            DT_JMPREL => dynamic.relocations[1].0 = address(entry.value),
            DT_PLTRELSZ => dynamic.relocations[1].1 = entry.value,
            _ => {}
        }
        section = section.wrapping_add(1);
    }
}

/// Sets a reference to null.
///
/// # Safety
/// The binary must be loaded.
unsafe fn clear(reference: &WeakReference) {
    let place = reference.place;
    // SAFETY: the call only queries a number.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let page_of = |address: usize| address & !(page_bytes - 1);
    let page = place.map_addr(page_of);
    if page_of(place.addr() + size_of_val(&reference.bound) - 1) != page.addr() {
        return;
    }
    let is_protected = page.addr() < page_of(reference.protected_until);
    // SAFETY: the place is in a segment that the loader could write to when it stored the address. The rest of a page that is
    // made writable does not change, and is read-only again afterwards.
    unsafe {
        if is_protected && libc::mprotect(page.cast(), page_bytes, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return;
        }
        place.write_unaligned(std::ptr::null());
        if is_protected {
            libc::mprotect(page.cast(), page_bytes, libc::PROT_READ);
        }
    }
}

/// Returns a pointer to memory that the loader has mapped.
fn at<T>(address: usize) -> *const T {
    std::ptr::with_exposed_provenance(address)
}
