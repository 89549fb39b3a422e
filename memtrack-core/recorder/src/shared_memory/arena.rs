//! The program's side: an [`Arena`] is the shared memory of one process. It takes extents from the region and pages from its
//! extents, without waiting. If there is no page, the event is lost, and the loss is counted.

use super::command::{CommandWatch, UNKNOWN, is_in_other_namespace, is_running, pid_namespace};
use super::layout::{
    ABI, EXTENT_BYTES, EXTENT_PAGES, ExtentHeader, FREE, MAGIC, MAX_EXTENTS, PAGE_BYTES, PAGE_CONTENT_BYTES,
    PageHeader, PageKind, ProcessHeader, RegionHeader, owner_of, page_content,
};
use super::log::{self, Record};
use super::protocol;
use super::room::{Purpose, RESERVED_FIRST_EXTENTS, Room};
use crate::clock::{self, set_counter_kind};
use crate::events::{ForkCell, generation, is_copy, watch_forks};
use crate::{internal_bytes, switch};
use memtrack_model::event::StackId;
use std::ffi::CStr;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of bytes at the beginning of the region that a program maps.
const HEADER_BYTES: usize = size_of::<RegionHeader>().next_multiple_of(PAGE_BYTES);

/// The maximum number of times that a process tries to get its first extent.
const MAX_WAIT_TRIES: u32 = 50;

/// The region's header; null in a process that is not connected. Forked children inherit the mapping.
static HEADER: AtomicPtr<RegionHeader> = AtomicPtr::new(null_mut());

/// This process's arena; `None` if the process cannot be recorded. A forked child takes another arena.
static ARENA: ForkCell<Option<Arena>> = ForkCell::new(Arena::begin);

/// Returns whether recording goes to shared memory.
#[inline]
pub(crate) fn is_connected() -> bool {
    !HEADER.load(Ordering::Relaxed).is_null()
}

/// Returns this process's arena; `None` if recording does not go to shared memory, or if this process cannot be recorded.
#[inline]
pub(crate) fn arena() -> Option<&'static Arena> {
    if is_connected() && !is_copy() { ARENA.get().as_ref() } else { None }
}

/// Maps the region whose file has this path. Recording will go there, once a session begins. Returns false, and changes
/// nothing, if this is impossible: because the command has ended or is of another version, or because this program's
/// rights, root or limits differ from the command's.
pub fn connect(path: &CStr) -> bool {
    with_header(path, |header| {
        super::command_line::keep();
        // SAFETY: the header is mapped.
        set_counter_kind(unsafe { header.as_ref() }.counter_kind.load(Ordering::Relaxed));
        HEADER.store(header.as_ptr(), Ordering::Release);
        true
    })
}

/// Counts this program in the region whose file has this path, as a program that is not recorded because its address
/// space has no room for the recorder's tables.
pub fn count_this_program(path: &CStr) {
    with_header(path, |header| {
        // SAFETY: the header is mapped.
        unsafe { header.as_ref() }.refused.fetch_add(1, Ordering::Relaxed);
        false
    });
}

/// Maps the header of the region whose file has this path, if it is of this version, and passes it to `accept`, which returns
/// whether the header stays mapped.
fn with_header(path: &CStr, accept: impl FnOnce(NonNull<RegionHeader>) -> bool) -> bool {
    let Some(header) = map_header(path) else { return false };
    // SAFETY: the mapping has the size of a header, and is shared memory in which all fields are integers.
    let region = unsafe { header.as_ref() };
    let stays = (region.magic, region.abi) == (MAGIC, ABI) && accept(header);
    if !stays {
        // SAFETY: the mapping was made above, and nothing refers to it.
        unsafe { libc::munmap(header.as_ptr().cast(), HEADER_BYTES) };
    }
    stays
}

/// Whether this program is recorded with the smallest budget. A forked child inherits this from its parent.
static IS_BEYOND_LIMIT: AtomicBool = AtomicBool::new(false);

/// Returns whether this program is to be recorded with the smallest budget, because too many programs were started. The result
/// is valid only after [`has_arena`] was called.
pub fn is_beyond_limit() -> bool {
    IS_BEYOND_LIMIT.load(Ordering::Relaxed)
}

/// Returns whether this process has its own memory in the region, so that it can be recorded. The first call takes this
/// memory.
pub fn has_arena() -> bool {
    arena().is_some()
}

/// Reports to the command that driver calls will bypass the hook, because the binary with this name exports its own
/// `dlsym`.
pub fn note_bypass(owner: &str) {
    append(&Record::Bypass(owner.into()));
}

/// Reports to the command that the process has loaded the driver, after [`note_bypass`]. May be called in a signal handler.
pub fn note_bypassed_driver() {
    if let Some(arena) = arena() {
        arena.process.bypass.store(1, Ordering::Relaxed);
    }
}

/// Counts a program that is about to be started and cannot be recorded: because no library can be preloaded into it, or
/// because the library is not in its environment.
pub fn count_unrecorded_program(cannot_be_preloaded: bool) {
    // SAFETY: the pointer is null or points to the mapped header, which is never unmapped while the pointer is set.
    if let Some(region) = unsafe { HEADER.load(Ordering::Acquire).as_ref() } {
        let count = if cannot_be_preloaded { &region.refused } else { &region.without_library };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn map_header(path: &CStr) -> Option<NonNull<RegionHeader>> {
    // SAFETY: the path is a C string. The descriptor was opened here, and is closed before any other code of the
    // program runs.
    unsafe {
        let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
        let file = libc::open(path.as_ptr(), flags);
        if file < 0 {
            return None;
        }
        if !is_region(file) {
            libc::close(file);
            return None;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let header = libc::mmap(null_mut(), HEADER_BYTES, access, libc::MAP_SHARED, file, 0);
        libc::close(file);
        if header == libc::MAP_FAILED { None } else { NonNull::new(header.cast()) }
    }
}

/// Returns whether a file can be a region. The path may name another file after the command has ended.
fn is_region(file: i32) -> bool {
    // SAFETY: zero is valid for all fields, and the call only writes to the local variable.
    let (result, status) = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(file, &mut status), status)
    };
    result == 0
        && status.st_mode & libc::S_IFMT == libc::S_IFREG
        && status.st_size as u64 == (MAX_EXTENTS * EXTENT_BYTES) as u64
}

/// The shared memory of one process.
pub(crate) struct Arena {
    region: &'static RegionHeader,
    process: &'static ProcessHeader,
    /// The number of the extent that contains `process`.
    number: u32,
    pid: u32,
    /// The mapped extents: the first [`Self::count`] entries. An entry is null while its extent is being added.
    extents: Box<[AtomicPtr<ExtentHeader>]>,
    count: AtomicUsize,
    /// The index of the extent in which the search for a free page begins.
    next: AtomicUsize,
    /// The value of [`RegionHeader::freed`] when no page was found, plus one. No page is searched for until that value
    /// changes.
    exhausted: AtomicU64,
    /// Whether a process id certainly refers to the same process here as it does for the command.
    shares_pids: bool,
    watch: CommandWatch,
    log: Mutex<Log>,
}

// SAFETY: the pointers refer to shared memory that stays mapped, whose fields are atomic or have one writer.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Takes the first extent of this process, and announces the process.
    fn begin() -> Option<Self> {
        // SAFETY: the pointer is null or points to the mapped header, which is never unmapped while the pointer is set.
        let region = unsafe { HEADER.load(Ordering::Acquire).as_ref() }?;
        // A forked child must take another arena.
        watch_forks();
        let namespaces = (pid_namespace(), region.pid_namespace.load(Ordering::Relaxed));
        if is_in_other_namespace(namespaces) {
            // In the collector's namespace, this process's id may belong to another process, which the collector would
            // then watch.
            region.in_other_namespaces.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let (pid, parent) = (std::process::id(), parent_of_this_process());
        let is_forked = generation() > 0;
        let command = region.command.load(Ordering::Relaxed);
        let has_room = |count: &AtomicU64, most: u64| count.fetch_add(1, Ordering::Relaxed) < most;
        let most = region.max_programs.load(Ordering::Relaxed);
        let may_begin = match is_forked {
            true => has_room(&region.forks, most),
            // The programs that the command's child executes are always recorded.
            false if pid == command || parent == command => true,
            false => has_room(&region.programs, most),
        };
        if !may_begin {
            if is_forked || region.samples_beyond_limit.load(Ordering::Relaxed) == 0 {
                return None;
            }
            IS_BEYOND_LIMIT.store(true, Ordering::Relaxed);
        }
        let (number, extent) = first_extent(region, pid)?;
        // SAFETY: the extent was just mapped and stays mapped.
        let header = unsafe { extent.as_ref() };
        let process = &header.header;
        process.pid.store(pid, Ordering::Relaxed);
        process.parent.store(parent, Ordering::Relaxed);
        process.is_forked.store(u32::from(is_forked), Ordering::Relaxed);
        process.is_beyond_limit.store(u32::from(is_beyond_limit()), Ordering::Relaxed);
        process.image.store(image_number(), Ordering::Relaxed);
        let (ticks, epoch_ns) = clock::reading();
        process.clock[0].store(ticks, Ordering::Relaxed);
        process.clock[1].store(epoch_ns, Ordering::Relaxed);
        process.start_ticks.store(ticks, Ordering::Relaxed);
        header.process.store(number, Ordering::Release);
        let extents: Box<[_]> = (0..MAX_EXTENTS).map(|_| AtomicPtr::new(null_mut())).collect();
        extents[0].store(extent.as_ptr(), Ordering::Release);
        internal_bytes::add(EXTENT_BYTES);
        process.is_begun.store(1, Ordering::Release);
        Some(Self {
            region,
            process,
            number,
            pid,
            extents,
            count: AtomicUsize::new(1),
            next: AtomicUsize::new(0),
            exhausted: AtomicU64::new(0),
            shares_pids: namespaces.0 != UNKNOWN && namespaces.0 == namespaces.1,
            watch: CommandWatch::default(),
            log: Mutex::new(Log::default()),
        })
    }

    /// Returns the header with the data that this process reports about itself.
    pub(super) fn process(&self) -> &'static ProcessHeader {
        self.process
    }

    /// Takes a page. Returns `None` if no page is available for this purpose, or if the command has ended.
    #[cold]
    pub(crate) fn take_page(&self, kind: PageKind, purpose: Purpose) -> Option<NonNull<PageHeader>> {
        if self.region.is_closed.load(Ordering::Relaxed) != 0 {
            turn_off();
            return None;
        }
        let freed = self.region.freed.load(Ordering::Acquire);
        // Sums may also take the extents that are reserved for them, so a page for sums may be free when none is free
        // for events.
        let may_be_free = purpose == Purpose::Sums
            || self.exhausted.load(Ordering::Relaxed) != freed.wrapping_add(1)
                && self.room().suffices(purpose);
        if may_be_free {
            loop {
                if let Some(page) = self.find_page() {
                    self.process.pages_taken.fetch_add(1, Ordering::Relaxed);
                    // SAFETY: the page was just taken, so that no other thread uses it, and stays mapped.
                    let header = unsafe { page.as_ref() };
                    if kind == PageKind::Sums {
                        // The page may have held events. Zero is valid for all sums.
                        // SAFETY: the page was just taken and stays mapped.
                        unsafe { page_content(page.as_ptr()).write_bytes(0, PAGE_CONTENT_BYTES) };
                    }
                    header.is_finished.store(0, Ordering::Relaxed);
                    if !matches!(kind, PageKind::Log | PageKind::None) {
                        protocol::begin(&header.kind, &header.len, kind as u32);
                    }
                    return Some(page);
                }
                if !self.add_extent(purpose == Purpose::Sums) {
                    break;
                }
            }
            self.exhausted.store(freed.wrapping_add(1), Ordering::Relaxed);
        }
        let heartbeat = self.region.heartbeat.load(Ordering::Relaxed);
        let collector_runs = || self.shares_pids && is_running(self.region.collector.load(Ordering::Relaxed));
        if self.watch.has_ended(heartbeat, clock::coarse_ns(), collector_runs) {
            turn_off();
        }
        None
    }

    /// Returns the lowest sampling class, which has the shortest interval, for which there is enough memory for events.
    pub(crate) fn min_class(&self) -> u8 {
        self.room().min_class()
    }

    fn room(&self) -> Room {
        let extents = self.count.load(Ordering::Relaxed).min(self.extents.len());
        Room::of(self.region, self.process, extents)
    }

    /// Counts a page that is full or finished, and now belongs to the command.
    pub(crate) fn count_completed_page(&self) {
        self.process.pages_completed.fetch_add(1, Ordering::Relaxed);
    }

    fn find_page(&self) -> Option<NonNull<PageHeader>> {
        let count = self.count.load(Ordering::Acquire).min(self.extents.len());
        let first = self.next.load(Ordering::Relaxed);
        for index in (0..count).map(|offset| (first + offset) % count) {
            let extent = self.extents[index].load(Ordering::Acquire);
            // SAFETY: the pointer is null or points to a mapped extent of this process.
            let Some(header) = (unsafe { extent.as_ref() }) else { continue };
            if header.free_pages.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if let Some(page) = (1..EXTENT_PAGES).find(|&page| protocol::claim(&header.pages[page])) {
                header.free_pages.fetch_sub(1, Ordering::Relaxed);
                self.next.store(index, Ordering::Relaxed);
                return NonNull::new(extent.cast::<u8>().wrapping_add(page * PAGE_BYTES).cast());
            }
        }
        None
    }

    /// Maps another extent. If it is `important`, it may be one of the extents that are kept for processes that begin. Returns
    /// false if there is no extent, or no room for it in the address space.
    fn add_extent(&self, important: bool) -> bool {
        let Some((_, extent)) = take_extent(self.region, self.pid, important) else { return false };
        // SAFETY: the extent was just mapped and stays mapped.
        unsafe { extent.as_ref() }.process.store(self.number, Ordering::Release);
        let index = self.count.fetch_add(1, Ordering::AcqRel);
        let Some(entry) = self.extents.get(index) else { return false };
        entry.store(extent.as_ptr(), Ordering::Release);
        internal_bytes::add(EXTENT_BYTES);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the log; `None` if it has no room for this many bytes.
    pub(crate) fn try_lock_log(&'static self, bytes: usize) -> Option<LockedLog> {
        let log = self.lock();
        log.has_room(bytes).then_some(LockedLog { log })
    }

    /// Makes room for a record of this many bytes in the log. Returns false if there is no page, or if the record is larger
    /// than a page. Must be called while the log is not locked.
    pub(crate) fn make_room(&self, bytes: usize) -> bool {
        if bytes > PAGE_CONTENT_BYTES {
            return false;
        }
        if self.lock().has_room(bytes) {
            return true;
        }
        let Some(page) = self.take_page(PageKind::Log, Purpose::Device) else { return false };
        let mut log = self.lock();
        if log.spare.is_none() {
            if log.page.is_some() {
                // The current page is finished before the spare page is used.
                self.count_completed_page();
            }
            log.spare = Some(page);
        } else {
            drop(log);
            self.free_page(page);
        }
        true
    }

    /// Frees a page that was taken and not used.
    fn free_page(&self, page: NonNull<PageHeader>) {
        for extent in &self.extents[..self.count.load(Ordering::Acquire).min(self.extents.len())] {
            let extent = extent.load(Ordering::Acquire);
            let offset = page.as_ptr().addr().wrapping_sub(extent.addr());
            if offset < EXTENT_BYTES {
                // SAFETY: the page lies in this extent, which is mapped.
                let header = unsafe { &*extent };
                header.pages[offset / PAGE_BYTES].store(protocol::PAGE_FREE, Ordering::Release);
                header.free_pages.fetch_add(1, Ordering::Relaxed);
                self.process.pages_taken.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Appends a record to the log. Returns false if there is no room for it.
    pub(crate) fn append(&'static self, record: &Record<'_>) -> bool {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let with_head = log::HEAD_BYTES + bytes.len();
        loop {
            if let Some(mut log) = self.try_lock_log(with_head) {
                log.append(record.number(), &[&bytes]);
                return true;
            }
            if !self.make_room(with_head) {
                return false;
            }
        }
    }
}

impl Drop for Arena {
    /// Frees the first extent. An arena is dropped only if its thread has lost the race to create it, and such an arena has
    /// no pages.
    fn drop(&mut self) {
        let extent = self.extents[0].load(Ordering::Relaxed);
        // SAFETY: the extent is mapped until the end of this function, and nothing else refers to it.
        let header = unsafe { &*extent };
        let process = &header.header;
        process.is_begun.store(0, Ordering::Relaxed);
        header.process.store(0, Ordering::Relaxed);
        for field in [&process.pid, &process.parent, &process.is_forked] {
            field.store(0, Ordering::Relaxed);
        }
        for field in [&process.image, &process.clock[0], &process.clock[1], &process.start_ticks] {
            field.store(0, Ordering::Relaxed);
        }
        release_extent(self.region, self.number as usize);
        // SAFETY: as above.
        unsafe { libc::munmap(extent.cast(), EXTENT_BYTES) };
        internal_bytes::subtract(EXTENT_BYTES);
    }
}

/// The pages at the end of the log. One thread at a time appends to them.
#[derive(Default)]
struct Log {
    page: Option<NonNull<PageHeader>>,
    /// The page that follows when `page` is full.
    spare: Option<NonNull<PageHeader>>,
    /// The number of bytes in `page`.
    len: usize,
    /// The number of pages of the log so far, including earlier ones.
    pages: u64,
}

impl Log {
    fn has_room(&self, bytes: usize) -> bool {
        let left = if self.page.is_some() { PAGE_CONTENT_BYTES - self.len } else { 0 };
        let more = if self.spare.is_some() { PAGE_CONTENT_BYTES } else { 0 };
        left + more >= bytes
    }

    /// Appends bytes, for which there must be room.
    fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let page = match self.page {
                Some(page) if self.len < PAGE_CONTENT_BYTES => page,
                _ => match self.next_page() {
                    Some(page) => page,
                    None => return,
                },
            };
            let count = bytes.len().min(PAGE_CONTENT_BYTES - self.len);
            let (now, later) = bytes.split_at(count);
            // SAFETY: the page is mapped, this thread alone writes to it because the log is locked, and the command reads only
            // bytes before `len`.
            unsafe {
                let to = page_content(page.as_ptr()).add(self.len);
                std::ptr::copy_nonoverlapping(now.as_ptr(), to, count);
                self.len += count;
                protocol::publish(&page.as_ref().len, self.len as u32);
            }
            bytes = later;
        }
    }

    fn next_page(&mut self) -> Option<NonNull<PageHeader>> {
        let page = self.spare.take()?;
        if let Some(full) = self.page {
            // SAFETY: pages of the log stay mapped.
            unsafe { full.as_ref() }.is_finished.store(1, Ordering::Release);
        }
        // SAFETY: as above; the page was taken for the log.
        let header = unsafe { page.as_ref() };
        header.number.store(self.pages, Ordering::Relaxed);
        protocol::begin(&header.kind, &header.len, PageKind::Log as u32);
        (self.page, self.len) = (Some(page), 0);
        self.pages += 1;
        Some(page)
    }
}

/// The log, locked, with room for a record.
pub(crate) struct LockedLog {
    log: MutexGuard<'static, Log>,
}

impl LockedLog {
    /// Appends a stack, whose outermost frame comes first.
    pub(crate) fn append_stack(&mut self, id: StackId, outermost_first: &[u64]) {
        self.append(log::STACK, &log::stack_pieces(&id.0.to_ne_bytes(), outermost_first));
    }

    /// Appends a record whose content is these pieces.
    fn append(&mut self, number: u32, pieces: &[&[u8]]) {
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        self.log.append(&log::head(number, bytes));
        pieces.iter().for_each(|piece| self.log.append(piece));
    }
}

/// Sets the number and then the kind of a page that was taken as [`PageKind::None`].
pub(crate) fn set_number(page: NonNull<PageHeader>, kind: PageKind, number: u64) {
    // SAFETY: the page was taken by this process and stays mapped.
    let header = unsafe { page.as_ref() };
    header.number.store(number, Ordering::Relaxed);
    protocol::begin(&header.kind, &header.len, kind as u32);
}

/// Returns the number of bytes that a stack takes in the log.
pub(crate) fn log_bytes_of_stack(addresses: &[u64]) -> usize {
    log::HEAD_BYTES + size_of::<StackId>() + size_of_val(addresses)
}

/// Appends a record to the log of this process, if recording goes to shared memory.
pub(crate) fn append(record: &Record<'_>) {
    if let Some(arena) = arena() {
        // If there is no room, the record is lost, and what it describes is unknown in the events that refer to it.
        arena.append(record);
    }
}

/// Takes a free extent of the region for a process and maps it. Returns its number.
fn take_extent(region: &RegionHeader, pid: u32, important: bool) -> Option<(u32, NonNull<ExtentHeader>)> {
    let owner = owner_of(pid);
    let from = if important { 1 } else { 1 + RESERVED_FIRST_EXTENTS };
    let number = (from..MAX_EXTENTS).find(|&number| {
        let extent = &region.owners[number];
        extent.load(Ordering::Relaxed) == FREE
            && extent.compare_exchange(FREE, owner, Ordering::Acquire, Ordering::Relaxed).is_ok()
    })?;
    region.free_extents.fetch_sub(1, Ordering::Relaxed);
    let Some(extent) = map_extent(region, number) else {
        release_extent(region, number);
        return None;
    };
    Some((number as u32, extent))
}

/// Lets other processes take an extent that this process has not used.
fn release_extent(region: &RegionHeader, number: usize) {
    region.free_extents.fetch_add(1, Ordering::Relaxed);
    region.owners[number].store(FREE, Ordering::Release);
}

/// Takes the first extent of a process. If many processes have just begun, waits for an extent for at most [`MAX_WAIT_TRIES`]
/// milliseconds, because without it nothing of the process would be recorded.
fn first_extent(region: &RegionHeader, pid: u32) -> Option<(u32, NonNull<ExtentHeader>)> {
    for _ in 0..MAX_WAIT_TRIES {
        let taken = take_extent(region, pid, true);
        if taken.is_some() || region.is_closed.load(Ordering::Relaxed) != 0 {
            return taken;
        }
        let millisecond = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // SAFETY: the call only waits. The C library's function would be a cancellation point.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const millisecond, null_mut::<libc::timespec>()) };
    }
    region.without_memory.fetch_add(1, Ordering::Relaxed);
    None
}

/// Maps an extent of the region through the mapping of its header.
fn map_extent(region: &RegionHeader, number: usize) -> Option<NonNull<ExtentHeader>> {
    let before = number * EXTENT_BYTES;
    let header = std::ptr::from_ref(region).cast_mut().cast();
    // SAFETY: with an old size of 0 the call maps the file of the header's mapping, from its beginning, at a new address; the
    // part before the extent is unmapped at once.
    unsafe {
        let all = libc::mremap(header, 0, before + EXTENT_BYTES, libc::MREMAP_MAYMOVE);
        if all == libc::MAP_FAILED {
            return None;
        }
        libc::munmap(all, before);
        NonNull::new(all.cast::<u8>().add(before).cast())
    }
}

/// Returns a number that is different after each `exec`: random bytes that the system provides.
fn image_number() -> u64 {
    // SAFETY: the call only queries a number.
    let bytes = unsafe { libc::getauxval(libc::AT_RANDOM) } as usize;
    let bytes = std::ptr::with_exposed_provenance::<u64>(bytes);
    // SAFETY: the system provides 16 bytes there, which need not be aligned.
    if bytes.is_null() { 0 } else { unsafe { bytes.read_unaligned() } }
}

fn parent_of_this_process() -> u32 {
    std::os::unix::process::parent_id()
}

/// Turns recording off, because the command no longer writes.
fn turn_off() {
    switch::set(switch::EVENTS | switch::SCOPES | switch::HOST | switch::OPERATORS, false);
}
