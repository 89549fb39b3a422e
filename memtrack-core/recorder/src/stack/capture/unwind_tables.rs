//! The unwind tables of the loaded binaries, for framehop. Read when monitoring starts; binaries loaded later are found by
//! glibc's lock-free `_dl_find_object` when a new stack holds an address that no known binary covers, so that a hook never
//! waits for the dynamic linker's lock.
//!
//! Nothing is kept loaded: the tables are copies (but for the program's own, which cannot go), and what was unloaded is
//! forgotten by [`refresh`]. Where other code comes to lie on recorded addresses, its own are moved aside before they are
//! kept, so that an address in a recording means one thing.
#![allow(unsafe_code)]

use super::foreign;
use crate::own;
use crate::recorder::{ForkCell, generation as generation_of_process, hooks_have_ended};
use crate::stack::modules::describe_loaded;
use framehop::x86_64::UnwinderX86_64;
use framehop::{ExplicitModuleSectionInfo, Module as Unwound, MustNotAllocateDuringUnwind, Unwinder};
use memtrack_model::snapshot::Module;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

type Table = UnwinderX86_64<Bytes, MustNotAllocateDuringUnwind>;

/// What a walk needs: immutable once published. A replaced one is given back when no hook can be walking with it any more
/// ([`refresh`]).
struct Known {
    table: Table,
    binaries: Vec<Binary>,
}

/// A part of a binary's unwind tables.
#[derive(Clone)]
pub(super) enum Bytes {
    /// The program's own, in place.
    OfProgram(&'static [u8]),
    Copied(Arc<Copied>),
}

pub(super) struct Copied(Box<[u8]>);

impl Default for Bytes {
    fn default() -> Self {
        Self::OfProgram(&[])
    }
}

/// All copies together: a library that no longer finds room ends the stacks that go through it. A forked child goes on
/// with the tables that there are.
pub(crate) const MOST_COPIED_BYTES: usize = 24 << 20;
static COPIED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What is copied when monitoring starts; larger tables only once a stack goes through their library.
const COPIED_AT_START_BYTES: usize = 4 << 20;

impl Bytes {
    fn copy(bytes: &[u8]) -> Option<Self> {
        let room = |copied: usize| Some(copied + bytes.len()).filter(|&all| all <= MOST_COPIED_BYTES);
        COPIED_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        own::keep(bytes.len());
        Some(Self::Copied(Arc::new(Copied(bytes.into()))))
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        COPIED_BYTES.fetch_sub(self.0.len(), Ordering::Relaxed);
        own::let_go(self.0.len());
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::OfProgram(bytes) => bytes,
            Self::Copied(bytes) => &bytes.0,
        }
    }
}

/// One loaded binary's code and unwind tables.
#[derive(Clone)]
struct Binary {
    bias: u64,
    code: Range<u64>,
    eh_frame_hdr: Bytes,
    eh_frame: Bytes,
    /// Where the two were in memory.
    eh_frame_hdr_at: u64,
    eh_frame_at: u64,
    /// How the loader calls it; empty for the program.
    name: String,
    /// What recordings say of it, at its own addresses.
    module: Option<Module>,
    /// What is added to its addresses when they are kept.
    shift: u64,
}

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Counts how often the known binaries have changed.
pub(super) fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

static KNOWN: AtomicPtr<Known> = AtomicPtr::new(std::ptr::null_mut());

fn known() -> Option<&'static Known> {
    // SAFETY: the pointer is null or a leaked box that nothing changes, and that is freed only when every hook that can
    // have seen it has ended. Who is in no hook has it kept by `unchanged`.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }
}

/// The unwinder over all known binaries.
#[inline(always)]
pub(super) fn unwinder() -> Option<&'static Table> {
    known().map(|known| &known.table)
}

/// A binary that is no longer loaded, at the addresses that recordings know.
pub(crate) struct Gone {
    pub(crate) code: Range<u64>,
    pub(crate) module: Option<Module>,
    raw: Range<u64>,
}

/// What the loader says while it holds its lock.
struct Listing {
    known: Option<&'static Known>,
    /// Of the known binaries, which are still there.
    still: Vec<bool>,
    new: Vec<Binary>,
}

/// What is gone and nobody has asked for yet.
static GONE: ForkCell<Mutex<Vec<Gone>>> = ForkCell::new(Mutex::default);

/// The binaries that [`refresh`] has found to be gone since this was last asked.
pub(super) fn take_gone() -> Vec<Gone> {
    std::mem::take(&mut *GONE.get().lock().unwrap_or_else(PoisonError::into_inner))
}

/// Looks at what is loaded: learns what is new and small, and forgets what is gone. Takes the dynamic linker's lock and
/// allocates: never inside a hook. In a forked child, in which a thread that is gone may hold that lock for ever, only what
/// is known is looked at, without it; what is new is learned when a stack goes through it ([`learn`]).
pub(super) fn refresh() {
    let changing = unchanged();
    let known = known();
    let before = known.map_or(&[][..], |known| &known.binaries);
    let (still, new) = if known.is_some() && generation_of_process() > 0 {
        (before.iter().map(is_still_loaded).collect(), Vec::new())
    } else {
        find_object();
        let mut listing = Listing { known, still: vec![false; before.len()], new: Vec::new() };
        // SAFETY: the callback gets `listing` back as its data pointer and dl_iterate_phdr calls it only before returning.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut listing).cast()) };
        (listing.still, listing.new)
    };
    let (here, gone): (Vec<_>, Vec<_>) = before.iter().zip(still).partition(|(_, still)| *still);
    if !new.is_empty() || !gone.is_empty() {
        let gone = gone.into_iter().map(|(binary, _)| Gone {
            code: binary.code.start.wrapping_add(binary.shift)..binary.code.end.wrapping_add(binary.shift),
            module: binary.as_recorded(),
            raw: binary.code.clone(),
        });
        GONE.get().lock().unwrap_or_else(PoisonError::into_inner).extend(gone);
        publish(here.into_iter().map(|(binary, _)| binary.clone()).chain(new).collect());
    }
    drop(changing);
    give_back_retired();
}

/// Whether a binary is where it was, in a forked child. Takes no lock, and follows no pointer of the loader's: another thread
/// may have it unloaded meanwhile.
fn is_still_loaded(binary: &Binary) -> bool {
    if find_object().is_none() {
        return true;
    }
    let Some(object) = object_at(binary.code.start) else { return false };
    let is_named_so = name_of(object.link_map)
        .is_none_or(|(bias, name)| bias == binary.bias && String::from_utf8_lossy(&name) == binary.name);
    object.eh_frame as u64 == binary.eh_frame_hdr_at && is_named_so
}

/// How the loader calls a binary, and where it lies; `None` where the kernel does not copy it.
fn name_of(binary: *const LinkMap) -> Option<(u64, Vec<u8>)> {
    let mut head = [0; 2];
    if foreign::copy_from(binary as u64, &mut head) < size_of_val(&head) {
        return None;
    }
    let [bias, name_at] = head;
    if name_at == 0 {
        return Some((bias, Vec::new()));
    }
    let mut name = [0; LONGEST_NAME / 8];
    let copied = foreign::copy_from(name_at, &mut name);
    let bytes = name.iter().flat_map(|word| word.to_ne_bytes()).take(copied);
    Some((bias, bytes.take_while(|&byte| byte != 0).collect()))
}

/// Longest name of a file.
const LONGEST_NAME: usize = 4096;

/// The binaries as a forked child lists them: of those that its parent has listed what is still there, and what was learned
/// since. Takes no lock of the loader's.
pub(super) fn listed_in_child(of_parent: Vec<Module>) -> Vec<Module> {
    let _unchanged = unchanged();
    let known = known().map_or(&[][..], |known| &known.binaries);
    let described: Vec<(&Binary, Module)> =
        known.iter().filter_map(|binary| Some((binary, binary.as_recorded()?))).collect();
    let is_here = |module: &Module| {
        let is_known = |(binary, known): &(&Binary, Module)| {
            (binary.code.start < module.end && module.start < binary.code.end).then_some(known == module)
        };
        // Where another one's code lies now, it does not; what has no unwind tables is nobody else's.
        match described.iter().find_map(is_known) {
            Some(is_it) => is_it,
            None => {
                described.iter().any(|(_, known)| known == module)
                    || find_object().is_none()
                    || object_at(module.start).is_some()
            }
        }
    };
    let mut all: Vec<Module> = of_parent.into_iter().filter(is_here).collect();
    let new: Vec<Module> =
        described.into_iter().map(|(_, module)| module).filter(|module| !all.contains(module)).collect();
    all.extend(new);
    all
}

impl Binary {
    /// What recordings say of it.
    fn as_recorded(&self) -> Option<Module> {
        self.module.as_ref().map(|module| moved(module, self.shift))
    }
}

/// A module as it is recorded when its addresses are shifted.
fn moved(module: &Module, shift: u64) -> Module {
    let add = |address: u64| address.wrapping_add(shift);
    Module { bias: add(module.bias), start: add(module.start), end: add(module.end), ..module.clone() }
}

/// Addresses that recordings know as those of a binary that is gone.
static TAKEN: ForkCell<Mutex<Vec<Range<u64>>>> = ForkCell::new(Mutex::default);
static ANY_TAKEN: AtomicBool = AtomicBool::new(false);
/// At most so many stretches are remembered; the oldest are forgotten.
const MOST_TAKEN: usize = 4096;

/// From now on code that comes to lie where `gone` was has other addresses in recordings.
pub(super) fn keep_for_recordings(gone: &Gone) {
    let mut taken = TAKEN.get().lock().unwrap_or_else(PoisonError::into_inner);
    if !taken.contains(&gone.raw) {
        if taken.len() == MOST_TAKEN {
            taken.remove(0);
        }
        taken.push(gone.raw.clone());
    }
    ANY_TAKEN.store(true, Ordering::Release);
}

/// What to add to the addresses of new code: nothing where no other code has been.
fn shift_of(code: &Range<u64>) -> u64 {
    /// No program has code there.
    const ELSEWHERE: u64 = 1 << 62;
    const PART: u64 = 1 << 36;
    static PARTS: AtomicU64 = AtomicU64::new(0);
    if !ANY_TAKEN.load(Ordering::Acquire) {
        return 0;
    }
    let taken = TAKEN.get().lock().unwrap_or_else(PoisonError::into_inner);
    if !taken.iter().any(|taken| taken.start < code.end && code.start < taken.end) {
        return 0;
    }
    let part = ELSEWHERE + PARTS.fetch_add(1, Ordering::Relaxed) % (1 << 24) * PART;
    part.wrapping_sub(code.start & !0xfff)
}

/// A loaded binary as it is recorded: perhaps moved, and not at all if its addresses are in no stack while those of one
/// that is gone are.
pub(super) fn as_recorded(module: Module) -> Option<Module> {
    let (start, end) = (module.start, module.end);
    let overlaps = |code: &Range<u64>| code.start < end && start < code.end;
    let _unchanged = unchanged();
    let known = known().and_then(|known| known.binaries.iter().find(|binary| overlaps(&binary.code)));
    if let Some(binary) = known {
        return Some(moved(&module, binary.shift));
    }
    let taken = TAKEN.get().lock().unwrap_or_else(PoisonError::into_inner);
    (!taken.iter().any(overlaps)).then_some(module)
}

/// Moves the addresses of code that lies where other code was when a stack was kept.
pub(super) fn set_apart(addresses: &mut [u64]) {
    if !ANY_TAKEN.load(Ordering::Acquire) {
        return;
    }
    let Some(known) = known() else { return };
    let shifted: Vec<&Binary> = known.binaries.iter().filter(|binary| binary.shift != 0).collect();
    for address in addresses {
        if let Some(binary) = shifted.iter().find(|binary| binary.code.contains(address)) {
            *address = address.wrapping_add(binary.shift);
        }
    }
}

/// Held while the known binaries are replaced, and by who looks at them outside a hook: only hooks are waited for before
/// replaced ones are given back.
static CHANGING: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

/// While this is held the known binaries are not replaced, so that they can be looked at outside a hook. Waits: never inside
/// one.
pub(super) fn unchanged() -> MutexGuard<'static, ()> {
    CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaced tables that a hook may still be walking with.
static RETIRED: ForkCell<Mutex<Vec<Retired>>> = ForkCell::new(Mutex::default);

struct Retired(#[expect(dead_code, reason = "dropped when nobody can use it")] Box<Known>);

/// Gives back what no hook can be using. Waits for those that are under way.
fn give_back_retired() {
    let retired = std::mem::take(&mut *RETIRED.get().lock().unwrap_or_else(PoisonError::into_inner));
    if !retired.is_empty() && !hooks_have_ended() {
        // One is stopped, perhaps by a debugger.
        RETIRED.get().lock().unwrap_or_else(PoisonError::into_inner).extend(retired);
    }
}

/// Learns the binaries that hold those `addresses` no known one covers; whether there were any. Called inside hooks.
pub(super) fn learn(addresses: &[u64]) -> bool {
    let Some(before) = known() else { return false };
    let unknown = |address: u64| !before.binaries.iter().any(|binary| binary.code.contains(&address));
    if !addresses.iter().any(|&address| unknown(address)) {
        return false;
    }
    // A thread that loses the race takes its stack again and learns then.
    let Ok(_changing) = CHANGING.get().try_lock() else { return false };
    let mut new: Vec<Binary> = Vec::new();
    for &address in addresses {
        if unknown(address) && !new.iter().any(|binary| binary.code.contains(&address)) {
            new.extend(find(address));
        }
    }
    if new.is_empty() || known().is_none_or(|now| !std::ptr::eq(now, before)) {
        return false;
    }
    publish(before.binaries.iter().cloned().chain(new).collect());
    true
}

/// Must be called with [`CHANGING`] locked.
fn publish(binaries: Vec<Binary>) {
    let mut table = Table::new();
    for binary in &binaries {
        let relative =
            |at: u64, len: usize| at.wrapping_sub(binary.bias)..at.wrapping_sub(binary.bias) + len as u64;
        let sections = ExplicitModuleSectionInfo {
            eh_frame_svma: Some(relative(binary.eh_frame_at, binary.eh_frame.len())),
            eh_frame: Some(binary.eh_frame.clone()),
            eh_frame_hdr_svma: Some(relative(binary.eh_frame_hdr_at, binary.eh_frame_hdr.len())),
            eh_frame_hdr: Some(binary.eh_frame_hdr.clone()),
            ..Default::default()
        };
        table.add_module(Unwound::new(String::new(), binary.code.clone(), binary.bias, sections));
    }
    let replaced = KNOWN.swap(Box::into_raw(Box::new(Known { table, binaries })), Ordering::AcqRel);
    GENERATION.fetch_add(1, Ordering::Release);
    if !replaced.is_null() {
        // SAFETY: it came from a box, and this is its only owner now; whoever still reads it is waited for.
        let replaced = Retired(unsafe { Box::from_raw(replaced) });
        RETIRED.get().lock().unwrap_or_else(PoisonError::into_inner).push(replaced);
    }
}

extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, listing: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a valid description with `dlpi_phnum` program headers, and `listing` is what
    // `refresh` passed in.
    let (info, listing, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info, &mut *listing.cast::<Listing>(), headers)
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
    // SAFETY: the range is a mapped, readable part of a binary, which stays loaded while the linker's lock is held.
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
    let name = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: a non-null name is a C string.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    let is_it = |binary: &Binary| {
        binary.bias == bias && binary.eh_frame_hdr_at == header_at.start && binary.name == name
    };
    if let Some(at) = listing.known.and_then(|known| known.binaries.iter().position(is_it)) {
        listing.still[at] = true;
        return 0;
    }
    // The program comes first, and is never unloaded.
    let is_program = listing.known.is_none() && listing.new.is_empty() && name.is_empty();
    let tables = if is_program {
        Some((Bytes::OfProgram(eh_frame_hdr), Bytes::OfProgram(eh_frame)))
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
    name: *const c_char,
}

type FindObject = unsafe extern "C" fn(*const c_void, *mut DlFindObject) -> c_int;

/// glibc's look-up, where it has one. Asked first by `refresh`, outside any hook and before any fork.
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

/// What glibc says of the binary that holds `address`. Takes no lock.
fn object_at(address: u64) -> Option<DlFindObject> {
    let find = find_object()?;
    let mut object = DlFindObject {
        flags: 0,
        map_start: std::ptr::null(),
        map_end: std::ptr::null(),
        link_map: std::ptr::null(),
        eh_frame: std::ptr::null(),
        reserved: [0; 7],
    };
    // SAFETY: the address is only compared; glibc fills the structure, which is ours.
    (unsafe { find(address as *const c_void, &mut object) } == 0).then_some(object)
}

/// The binary that holds `address`. Its tables are copied: nobody promised to keep it loaded.
fn find(address: u64) -> Option<Binary> {
    let object = object_at(address)?;
    if object.eh_frame.is_null() || object.link_map.is_null() {
        return None;
    }
    // SAFETY: glibc has filled the structure for a binary that is loaded; the code at `address` is on this thread's stack,
    // so it stays loaded while this runs.
    let (bias, name) = unsafe {
        let LinkMap { bias, name } = *object.link_map;
        (
            bias,
            if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() },
        )
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
    let copy = |at: u64, len: u64| {
        // SAFETY: both ranges were checked to lie within the mapping of a loaded binary; `eh_frame_length` has read
        // the second one already.
        Bytes::copy(unsafe { std::slice::from_raw_parts(at as *const u8, len as usize) })
    };
    let code = start..end;
    Some(Binary {
        bias,
        eh_frame_hdr: copy(header_at, header_len)?,
        eh_frame: copy(eh_frame_at, eh_frame_len)?,
        eh_frame_hdr_at: header_at,
        eh_frame_at,
        module: module_at(start, end, bias, &name),
        name,
        shift: shift_of(&code),
        code,
    })
}

/// What recordings say of the binary that is mapped from `start` to `end`, by its own headers there.
fn module_at(start: u64, end: u64, bias: u64, name: &str) -> Option<Module> {
    // SAFETY: the mapping begins with the file's head, of a binary that is loaded while its code is on this stack; the
    // headers are read only where they lie within the mapping.
    let headers = unsafe {
        let head = &*(start as *const libc::Elf64_Ehdr);
        let at = start.checked_add(head.e_phoff)?;
        let len_bytes = u64::from(head.e_phnum) * size_of::<libc::Elf64_Phdr>() as u64;
        if head.e_ident[..4] != *b"\x7fELF" || at.checked_add(len_bytes)? > end || at % 8 != 0 {
            return None;
        }
        std::slice::from_raw_parts(at as *const libc::Elf64_Phdr, usize::from(head.e_phnum))
    };
    describe_loaded(name, bias, headers)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Duration;

    /// As a program's threads do that unload libraries while the keeper lists what is loaded.
    #[test]
    fn known_binaries_are_not_given_back_while_they_are_looked_at() {
        refresh();
        let libc = known().and_then(|known| known.binaries.last()).and_then(|binary| binary.module.clone());
        let module = libc.expect("the program has libraries");
        let asked = Arc::new(AtomicUsize::new(0));
        let asks = {
            let (asked, module) = (Arc::clone(&asked), module.clone());
            move || {
                for _ in 0..2000 {
                    assert_eq!(
                        as_recorded(module.clone()).map(|found| found.path),
                        Some(module.path.clone())
                    );
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        // Who looks waits for who replaces them.
        let changing = unchanged();
        let looks = thread::spawn(asks);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(asked.load(Ordering::Relaxed), 0, "it did not wait");
        drop(changing);
        while !looks.is_finished() {
            let changing = unchanged();
            publish(known().map_or(Vec::new(), |known| known.binaries.clone()));
            drop(changing);
            give_back_retired();
        }
        looks.join().expect("it found what is loaded");
    }
}
