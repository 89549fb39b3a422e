//! The unwind tables of the loaded binaries, for framehop. Read once when monitoring starts; binaries loaded later are
//! found by glibc's lock-free `_dl_find_object` when a new stack holds an address that no known binary covers, so that
//! a hook never waits for the dynamic linker's lock.
#![allow(unsafe_code)]

use crate::recorder::{ForkCell, generation as generation_of_process};
use framehop::x86_64::UnwinderX86_64;
use framehop::{ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder};
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

type Table = UnwinderX86_64<&'static [u8], MustNotAllocateDuringUnwind>;

/// What a walk needs: immutable once published. Replaced ones are leaked, because a thread may be walking with them;
/// there is one per binary loaded after the start at most.
struct Known {
    table: Table,
    code: Vec<Range<u64>>,
    binaries: Vec<Binary>,
}

/// One loaded binary's code and unwind tables.
#[derive(Clone)]
struct Binary {
    bias: u64,
    code: Range<u64>,
    eh_frame_hdr: &'static [u8],
    eh_frame: &'static [u8],
    /// Where the two slices were in memory, when they are copies.
    eh_frame_hdr_at: u64,
    eh_frame_at: u64,
}

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Counts how often the known binaries have changed.
pub(super) fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

static KNOWN: AtomicPtr<Known> = AtomicPtr::new(std::ptr::null_mut());

fn known() -> Option<&'static Known> {
    // SAFETY: the pointer is null or a leaked box that nothing changes or frees.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }
}

/// The unwinder over all known binaries.
#[inline(always)]
pub(super) fn unwinder() -> Option<&'static Table> {
    known().map(|known| &known.table)
}

/// Reads all binaries loaded now and keeps them loaded, so that their tables stay readable.
pub(super) fn load() {
    // In the child of a fork a thread that is gone may hold the list's lock for ever (`recorder::binaries`).
    if known().is_some() && generation_of_process() > 0 {
        return;
    }
    let mut found: Vec<(Binary, Vec<u8>)> = Vec::new();
    // SAFETY: the callback gets `found` back as its data pointer and dl_iterate_phdr calls it only before returning.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    let same = |known: &Known| known.code.iter().eq(found.iter().map(|(binary, _)| &binary.code));
    if known().is_some_and(same) {
        return;
    }
    for (_, path) in &found {
        if path.len() > 1 {
            // SAFETY: `path` is NUL-terminated; RTLD_NOLOAD only raises the count of a binary that is loaded already.
            // The handle is never closed: that is the purpose.
            unsafe { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        }
    }
    find_object();
    let _changing = CHANGING.get().lock();
    publish(found.into_iter().map(|(binary, _)| binary).collect());
}

/// Held while the known binaries are replaced.
static CHANGING: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

/// In the child of a fork: a thread that is gone may have held the lock.
pub(super) fn reset_after_fork() {
    CHANGING.forget();
}

/// Learns the binaries that hold those `addresses` no known one covers; whether there were any.
pub(super) fn learn(addresses: &[u64]) -> bool {
    let Some(known) = known() else { return false };
    let unknown = |address: u64| !known.code.iter().any(|range| range.contains(&address));
    let mut new: Vec<Binary> = Vec::new();
    for &address in addresses {
        if unknown(address) && !new.iter().any(|binary| binary.code.contains(&address)) {
            new.extend(find(address));
        }
    }
    if new.is_empty() {
        return false;
    }
    // A thread that loses the race takes its stack again and learns then.
    let Ok(_changing) = CHANGING.get().try_lock() else { return false };
    publish(known.binaries.iter().cloned().chain(new).collect());
    true
}

fn publish(binaries: Vec<Binary>) {
    let mut table = Table::new();
    for binary in &binaries {
        let relative =
            |at: u64, len: usize| at.wrapping_sub(binary.bias)..at.wrapping_sub(binary.bias) + len as u64;
        let sections = ExplicitModuleSectionInfo {
            eh_frame_svma: Some(relative(binary.eh_frame_at, binary.eh_frame.len())),
            eh_frame: Some(binary.eh_frame),
            eh_frame_hdr_svma: Some(relative(binary.eh_frame_hdr_at, binary.eh_frame_hdr.len())),
            eh_frame_hdr: Some(binary.eh_frame_hdr),
            ..Default::default()
        };
        table.add_module(Module::new(String::new(), binary.code.clone(), binary.bias, sections));
    }
    let code = binaries.iter().map(|binary| binary.code.clone()).collect();
    KNOWN.store(Box::into_raw(Box::new(Known { table, code, binaries })), Ordering::Release);
    GENERATION.fetch_add(1, Ordering::Release);
}

extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a valid description with `dlpi_phnum` program headers, and `found` is the
    // vector `load` passed in.
    let (info, found, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info, &mut *found.cast::<Vec<(Binary, Vec<u8>)>>(), headers)
    };
    let bias = info.dlpi_addr;
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
    // SAFETY: the range is a mapped, readable part of a loaded binary, which `load` keeps loaded.
    let eh_frame_hdr = unsafe {
        std::slice::from_raw_parts(header_at.start as *const u8, (header_at.end - header_at.start) as usize)
    };
    let Some(eh_frame_at) = eh_frame_pointer(eh_frame_hdr, header_at.start) else { return 0 };
    // The section's length is written nowhere: it ends with a zero entry, at the latest with its segment.
    let Some(segment) =
        segments.iter().map(|header| loaded(header)).find(|range| range.contains(&eh_frame_at))
    else {
        return 0;
    };
    // SAFETY: as above; the range ends with the segment that holds it.
    let eh_frame =
        unsafe { std::slice::from_raw_parts(eh_frame_at as *const u8, (segment.end - eh_frame_at) as usize) };
    let path = if info.dlpi_name.is_null() {
        vec![0]
    } else {
        // SAFETY: a non-null name is a C string.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes_with_nul().to_vec()
    };
    found.push((
        Binary { bias, code, eh_frame_hdr, eh_frame, eh_frame_hdr_at: header_at.start, eh_frame_at },
        path,
    ));
    0
}

/// The address of `.eh_frame`, from the head of `.eh_frame_hdr` at `at`. Linkers write it pc-relative in four bytes.
fn eh_frame_pointer(header: &[u8], at: u64) -> Option<u64> {
    const PCREL_SDATA4: u8 = 0x1b;
    if header.len() < 8 || header[0] != 1 || header[1] != PCREL_SDATA4 {
        return None;
    }
    let offset = i32::from_le_bytes(header[4..8].try_into().ok()?);
    Some((at + 4).wrapping_add_signed(i64::from(offset)))
}

/// glibc's `struct dl_find_object` (2.35).
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: *const u8,
    map_end: *const u8,
    link_map: *const LinkMap,
    eh_frame: *const u8,
    reserved: [u64; 7],
}

/// The public head of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    bias: u64,
}

type FindObject = unsafe extern "C" fn(*const c_void, *mut DlFindObject) -> c_int;

/// glibc's look-up, where it has one. Asked first by `load`, outside any hook and before any fork.
fn find_object() -> Option<FindObject> {
    static FIND: OnceLock<Option<FindObject>> = OnceLock::new();
    *FIND.get_or_init(|| {
        // SAFETY: a look-up by name; the function, where glibc has it, is documented with this signature.
        unsafe {
            let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr());
            (!symbol.is_null()).then(|| std::mem::transmute::<*mut c_void, FindObject>(symbol))
        }
    })
}

/// The binary that holds `address`. Its tables are copied: nobody promised to keep it loaded.
fn find(address: u64) -> Option<Binary> {
    let find = find_object()?;
    let mut object = DlFindObject {
        flags: 0,
        map_start: std::ptr::null(),
        map_end: std::ptr::null(),
        link_map: std::ptr::null(),
        eh_frame: std::ptr::null(),
        reserved: [0; 7],
    };
    // SAFETY: on success glibc has filled the structure for a binary that is loaded; the code at `address` is on this
    // thread's stack, so it stays loaded while this runs.
    let bias = unsafe {
        if find(address as *const c_void, &mut object) != 0
            || object.eh_frame.is_null()
            || object.link_map.is_null()
        {
            return None;
        }
        (*object.link_map).bias
    };
    let (start, end, header_at) = (object.map_start as u64, object.map_end as u64, object.eh_frame as u64);
    // SAFETY: `.eh_frame_hdr` lies within the mapping and is at least its fixed head long.
    let head = unsafe { std::slice::from_raw_parts(object.eh_frame, 12) };
    let eh_frame_at = eh_frame_pointer(head, header_at)?;
    // The search table: a count and eight bytes an entry (encodings 0x03 and 0x3b, as every linker writes them).
    let entries = u64::from(u32::from_le_bytes(head[8..12].try_into().ok()?));
    let header_len = 12 + entries * 8;
    if head[2] != 0x03
        || head[3] != 0x3b
        || header_at + header_len > end
        || eh_frame_at < start
        || eh_frame_at >= end
    {
        return None;
    }
    let eh_frame_len = eh_frame_length(eh_frame_at, end)?;
    let copy = |at: u64, len: u64| -> &'static [u8] {
        // SAFETY: both ranges were checked to lie within the mapping of a loaded binary; `eh_frame_length` has read
        // the second one already.
        Box::leak(unsafe { std::slice::from_raw_parts(at as *const u8, len as usize) }.into())
    };
    Some(Binary {
        bias,
        code: start..end,
        eh_frame_hdr: copy(header_at, header_len),
        eh_frame: copy(eh_frame_at, eh_frame_len),
        eh_frame_hdr_at: header_at,
        eh_frame_at,
    })
}

/// Length of the `.eh_frame` section at `at`, by following its entries to the closing zero.
fn eh_frame_length(at: u64, end: u64) -> Option<u64> {
    let mut cursor = at;
    while cursor + 4 <= end {
        // SAFETY: entries follow each other without gaps up to the closing zero, so the cursor stays in the section;
        // the bound keeps a damaged one within the mapping.
        let len = u64::from(unsafe { (cursor as *const u32).read_unaligned() });
        cursor += 4;
        match len {
            0 => return Some(cursor - at),
            0xffff_ffff => return None,
            len => cursor += len,
        }
    }
    None
}
