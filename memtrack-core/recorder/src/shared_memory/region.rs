//! The command's side: the [`Region`] that all processes of a run share. The command creates it, reads the data that the
//! processes write, and frees pages and extents.
//!
//! Nothing in a region is trusted: a program may write anywhere in its memory. A damaged record or event is dropped.

use super::command::pid_namespace;
use super::layout::{
    ABI, COMMAND, Counter, EVENTS_PER_PAGE, EXTENT_BYTES, EXTENT_PAGES, ExtentHeader, FREE, MAGIC,
    MAX_EXTENTS, PAGE_BYTES, PAGE_CONTENT_BYTES, PageHeader, PageKind, ProcessHeader, RegionHeader,
    page_content, pid_of,
};
use super::log::{self, Record, Taken};
use super::protocol::{self, PAGE_USED};
use crate::clock::counter_kind;
use crate::events::{DEVICE_SLOTS, Sums};
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};
use memtrack_model::snapshot::{CountedPeak, Unrecorded};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The maximum number of extents that are reserved at once. Reserving them takes a fraction of a millisecond, during which
/// nothing is read.
const RESERVED_AT_ONCE: usize = 8;
/// If fewer extents than this are free, as when many processes begin, this many are reserved at once.
const FEW_EXTENTS: usize = 32;

/// The shared memory of a run.
#[derive(Debug)]
pub struct Region {
    file: File,
    memory: NonNull<RegionHeader>,
    /// The number of extents that are reserved.
    reserved: usize,
}

// SAFETY: the pointer refers to a mapping that the region owns.
unsafe impl Send for Region {}

impl Region {
    /// Creates a region with this number of free extents, in which at most `max_programs` programs are recorded besides the one
    /// that the process `command` starts. If `samples_beyond_limit`, further programs are recorded with the smallest budget;
    /// otherwise, they are not recorded.
    ///
    /// # Errors
    /// Fails when the system has no memory for it.
    pub fn create(
        free_extents: usize,
        command: u32,
        max_programs: u64,
        samples_beyond_limit: bool,
    ) -> io::Result<Self> {
        // SAFETY: the calls create and map a new file; the descriptor is owned by `file` at once.
        let (file, memory) = unsafe {
            let file = libc::memfd_create(c"memtrack".as_ptr(), libc::MFD_CLOEXEC);
            if file < 0 {
                return Err(io::Error::last_os_error());
            }
            let file = File::from_raw_fd(file);
            let bytes = MAX_EXTENTS * EXTENT_BYTES;
            without_file_size_signal(|| file.set_len(bytes as u64))?;
            reserve(&file, 0, 1)?;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let memory = libc::mmap(null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0);
            if memory == libc::MAP_FAILED {
                let error = io::Error::last_os_error();
                let text = format!(
                    "no addresses for {} MiB of shared memory: {error}; see `ulimit -v`",
                    bytes >> 20
                );
                return Err(io::Error::new(error.kind(), text));
            }
            (file, NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?)
        };
        let mut region = Self { file, memory, reserved: 1 };
        // SAFETY: the first extent was just reserved, and no other process has the region.
        unsafe {
            let header = &mut *memory.as_ptr();
            (header.magic, header.abi) = (MAGIC, ABI);
        }
        region.header().command.store(command, Ordering::Relaxed);
        region.header().pid_namespace.store(pid_namespace(), Ordering::Relaxed);
        region.header().max_programs.store(max_programs, Ordering::Relaxed);
        region.header().samples_beyond_limit.store(u32::from(samples_beyond_limit), Ordering::Relaxed);
        region.header().counter_kind.store(counter_kind(), Ordering::Relaxed);
        region.header().owners[0].store(COMMAND, Ordering::Relaxed);
        region.reserve_more(free_extents)?;
        Ok(region)
    }

    /// Returns the path at which other processes can open the region while the process with this id has it open.
    pub fn path(&self, pid: u32) -> PathBuf {
        PathBuf::from(format!("/proc/{pid}/fd/{}", self.descriptor()))
    }

    /// Returns the region's descriptor.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn header(&self) -> &RegionHeader {
        // SAFETY: the mapping exists as long as the region; all fields that other processes write are atomic.
        unsafe { self.memory.as_ref() }
    }

    /// Returns the extent with this number, which must be reserved.
    fn extent(&self, number: usize) -> *mut ExtentHeader {
        self.memory.as_ptr().cast::<u8>().wrapping_add(number * EXTENT_BYTES).cast()
    }

    fn extent_header(&self, number: usize) -> &ExtentHeader {
        // SAFETY: reserved extents are mapped as long as the region exists.
        unsafe { &*self.extent(number) }
    }

    fn reserve_more(&mut self, extents: usize) -> io::Result<()> {
        let end = (self.reserved + extents).min(MAX_EXTENTS);
        if end > self.reserved {
            reserve(&self.file, self.reserved, end - self.reserved)?;
            // All bytes of newly reserved extents are zero, so only the first page of each needs to be touched.
            for number in self.reserved..end {
                self.free_extent(number);
            }
            self.reserved = end;
        }
        Ok(())
    }

    /// Clears an extent that is no longer used by any process, and frees it.
    fn clear(&self, number: usize) {
        // SAFETY: no process uses the extent, and zero is valid for all fields.
        unsafe { self.extent(number).cast::<u8>().write_bytes(0, PAGE_BYTES) };
        for page in 1..EXTENT_PAGES {
            // SAFETY: the page is in a reserved extent, and zero is valid for its header.
            unsafe { self.page(number, page).cast_mut().write_bytes(0, 1) };
        }
        self.free_extent(number);
    }

    /// Lets processes take an extent. Its header and pages must be zeros.
    fn free_extent(&self, number: usize) {
        let header = self.extent_header(number);
        header.pages[0].store(PAGE_USED, Ordering::Relaxed);
        header.free_pages.store(EXTENT_PAGES as u32 - 1, Ordering::Relaxed);
        self.header().free_extents.fetch_add(1, Ordering::Relaxed);
        self.header().owners[number].store(FREE, Ordering::Release);
    }

    fn page(&self, extent: usize, page: usize) -> *const PageHeader {
        self.extent(extent).cast::<u8>().wrapping_add(page * PAGE_BYTES).cast()
    }

    /// Shows the processes that the collector, which is this process, is still running, and reserves more extents if few are
    /// free. Called regularly.
    ///
    /// # Errors
    /// Fails when the system has no more memory; the processes then lose events.
    pub fn keep_alive(&mut self, free_extents: usize) -> io::Result<()> {
        self.header().collector.store(std::process::id(), Ordering::Relaxed);
        self.header().heartbeat.fetch_add(1, Ordering::Relaxed);
        let is_free = |owner: &&AtomicU32| owner.load(Ordering::Relaxed) == FREE;
        let free = self.header().owners[..self.reserved].iter().filter(is_free).count();
        if free < free_extents && self.reserved < MAX_EXTENTS {
            let at_once = if free < FEW_EXTENTS { FEW_EXTENTS } else { RESERVED_AT_ONCE };
            self.reserve_more((free_extents - free).min(at_once))?;
            self.note_freed();
        }
        Ok(())
    }

    fn note_freed(&self) {
        self.header().freed.fetch_add(1, Ordering::Release);
    }

    /// Makes all processes stop recording.
    pub fn close(&self) {
        self.header().is_closed.store(1, Ordering::Relaxed);
    }

    /// Returns the numbers of processes that were not recorded, as far as they are known here: `programs` are those beyond the
    /// limit, even if they are recorded with the smallest budget.
    pub fn unrecorded(&self) -> Unrecorded {
        let header = self.header();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let most = count(&header.max_programs);
        Unrecorded {
            programs: count(&header.programs).saturating_sub(most),
            forks: count(&header.forks).saturating_sub(most),
            without_memory: count(&header.without_memory),
            in_other_namespaces: count(&header.in_other_namespaces),
            without_room: 0,
            not_preloadable: count(&header.refused),
            without_library: count(&header.without_library),
        }
    }

    /// Returns the extents of each process, by the number of its first extent. The first extent of a process comes first.
    fn extents_by_process(&self) -> BTreeMap<usize, Vec<usize>> {
        let mut processes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for number in 1..self.reserved {
            let owner = self.header().owners[number].load(Ordering::Acquire);
            if pid_of(owner).is_none() {
                continue;
            }
            let process = self.extent_header(number).process.load(Ordering::Acquire) as usize;
            // A process that writes into another process's extent must not cause that extent to be freed.
            if (1..self.reserved).contains(&process)
                && self.header().owners[process].load(Ordering::Acquire) == owner
            {
                processes.entry(process).or_default().push(number);
            }
        }
        processes
    }

    /// Returns the processes that use the region now.
    pub fn processes(&self) -> Vec<ProcessView> {
        let begun = |(first, extents): (usize, Vec<usize>)| {
            let process = self.process(first);
            let is_begun = process.is_begun.load(Ordering::Acquire) == 1;
            is_begun.then(|| ProcessView {
                number: first,
                pid: process.pid.load(Ordering::Relaxed),
                parent: process.parent.load(Ordering::Relaxed),
                is_forked: process.is_forked.load(Ordering::Relaxed) == 1,
                is_beyond_limit: process.is_beyond_limit.load(Ordering::Relaxed) == 1,
                image: process.image.load(Ordering::Relaxed),
                clock: [0, 1].map(|at: usize| process.clock[at].load(Ordering::Relaxed)).into(),
                start_ticks: process.start_ticks.load(Ordering::Relaxed),
                extents,
            })
        };
        self.extents_by_process().into_iter().filter_map(begun).collect()
    }

    fn process(&self, first_extent: usize) -> &ProcessHeader {
        &self.extent_header(first_extent).header
    }

    /// Returns a counter of a process.
    pub fn counter(&self, process: &ProcessView, counter: Counter) -> u64 {
        self.process(process.number).counters[counter as usize].load(Ordering::Relaxed)
    }

    /// Returns the counted peak of a process; `None` if every block was recorded.
    pub fn counted_peak(&self, process: &ProcessView) -> Option<CountedPeak> {
        let [is_on, ticks, bytes, most_bytes, since_ticks, until_ticks] =
            self.process(process.number).peak.each_ref().map(|word| word.load(Ordering::Relaxed));
        let events_before = None;
        (is_on != 0).then_some(CountedPeak {
            ticks,
            bytes,
            most_bytes,
            since_ticks,
            until_ticks,
            events_before,
        })
    }

    /// Returns the pages of a process that are used for this `kind`.
    fn pages_of<'a>(
        &'a self,
        process: &'a ProcessView,
        kind: PageKind,
    ) -> impl Iterator<Item = (usize, usize, *const PageHeader)> {
        process.extents.iter().flat_map(move |&extent| {
            (1..EXTENT_PAGES).filter_map(move |page| {
                let header = self.page(extent, page);
                // SAFETY: the page is in a reserved extent.
                let is_kind = unsafe { (*header).kind.load(Ordering::Acquire) } == kind as u32;
                let is_used = || self.extent_header(extent).pages[page].load(Ordering::Relaxed) == PAGE_USED;
                (is_kind && is_used()).then_some((extent, page, header))
            })
        })
    }

    /// Appends the events of a process that were not read before to `pages`, one entry per page of events. `read`
    /// contains the number of events read so far from each page that is still in use. Full pages are freed.
    pub fn take_events(
        &self,
        process: &ProcessView,
        read: &mut BTreeMap<(usize, usize), usize>,
        pages: &mut Vec<EventPage>,
    ) {
        for (extent, page, header) in self.pages_of(process, PageKind::Events) {
            // SAFETY: the page is in a reserved extent.
            let page_header = unsafe { &*header };
            let kind = PageKind::Events as u32;
            let Some(len) = protocol::published(&page_header.kind, &page_header.len, kind) else { continue };
            let len = (len as usize).min(EVENTS_PER_PAGE);
            let from = read.insert((extent, page), len).unwrap_or(0);
            let events: Vec<Event> = (from..len).filter_map(|row| event_at(header, row)).collect();
            if !events.is_empty() {
                pages.push(EventPage { events });
            }
            if len == EVENTS_PER_PAGE {
                read.remove(&(extent, page));
                self.free(process, extent, page, header);
            }
        }
    }

    fn free(&self, process: &ProcessView, extent: usize, page: usize, header: *const PageHeader) {
        self.process(process.number).pages_freed.fetch_add(1, Ordering::Relaxed);
        let extent = self.extent_header(extent);
        // SAFETY: the page is in a reserved extent.
        let header = unsafe { &*header };
        protocol::release(&extent.pages[page], &header.kind, &header.len);
        extent.free_pages.fetch_add(1, Ordering::Relaxed);
        self.note_freed();
    }

    /// Returns the records of a process's log that are complete and were not read before. Must be called after
    /// [`take_events`](Self::take_events), so that no event refers to a record that is still missing.
    pub fn take_records(&self, process: &ProcessView, state: &mut LogState) -> Vec<Record<'static>> {
        let mut pages: Vec<_> = self.pages_of(process, PageKind::Log).collect();
        // SAFETY: the pages are in reserved extents.
        pages.sort_by_key(|(.., header)| unsafe { (**header).number.load(Ordering::Relaxed) });
        for (extent, page, header) in pages {
            // SAFETY: as above. The flag is read before the length, which does not change afterwards.
            let (number, is_finished, len) = unsafe {
                let is_finished = (*header).is_finished.load(Ordering::Acquire) == 1;
                ((*header).number.load(Ordering::Relaxed), is_finished, (*header).len.load(Ordering::Acquire))
            };
            if number != state.page {
                continue;
            }
            let len = (len as usize).min(PAGE_CONTENT_BYTES);
            if len > state.read {
                let start = page_content(header).wrapping_add(state.read);
                // SAFETY: the bytes before `len` are complete, and the program does not change them. If a program does
                // change them, by writing to memory that is not its own, records are damaged.
                let bytes = unsafe { std::slice::from_raw_parts(start, len - state.read) };
                if !state.is_damaged {
                    state.bytes.extend_from_slice(bytes);
                }
                state.read = len;
            }
            if is_finished {
                (state.page, state.read) = (state.page + 1, 0);
                self.free(process, extent, page, header);
            }
        }
        let mut records = Vec::new();
        let mut rest = &state.bytes[..];
        loop {
            match log::take(&mut rest) {
                Taken::Record(record) => records.extend(record),
                Taken::Incomplete => break,
                Taken::Damaged => {
                    // The program has overwritten the log. Its pages are still freed.
                    (state.is_damaged, rest) = (true, &[]);
                    break;
                }
            }
        }
        state.bytes.drain(..state.bytes.len() - rest.len());
        records
    }

    /// Returns whether driver calls bypass the hook in a process that has loaded the driver.
    pub fn is_bypassed(&self, process: &ProcessView) -> bool {
        self.process(process.number).bypass.load(Ordering::Relaxed) == 1
    }

    /// Returns the sums of all threads of a process, by device slot, and those of its scopes.
    pub fn sums(&self, process: &ProcessView) -> (Vec<Sums>, SumsOfScopes) {
        let mut sums = vec![Sums::default(); DEVICE_SLOTS];
        let mut scopes = SumsOfScopes::new();
        let mut add = |slot, scope, [bytes, blocks]: [u64; 2]| {
            let sum = scopes.entry((slot, scope)).or_default();
            *sum = [sum[0].wrapping_add(bytes), sum[1].wrapping_add(blocks)];
        };
        for (.., header) in self.pages_of(process, PageKind::Sums) {
            let (scope, growth) = crate::events::add_shared_sums(page_content(header), &mut sums);
            growth.into_iter().enumerate().for_each(|(slot, growth)| add(slot, scope, growth));
        }
        for (.., header) in self.pages_of(process, PageKind::ScopeSums) {
            // SAFETY: the page is in a reserved extent; any bytes are valid.
            let (first, rows) = unsafe {
                let rows = std::slice::from_raw_parts(
                    page_content(header).cast::<[u64; 2]>(),
                    PAGE_CONTENT_BYTES / 16,
                );
                ((*header).number.load(Ordering::Relaxed), rows)
            };
            for (number, row) in (first..).zip(rows).filter(|(_, row)| **row != [0; 2]) {
                let (slot, scope) = crate::events::scope_of_row(number);
                if slot < DEVICE_SLOTS {
                    add(slot, scope, *row);
                }
            }
        }
        scopes.retain(|_, sum| *sum != [0; 2]);
        (sums, scopes)
    }

    /// Frees the extents of a process that has ended, after everything was read.
    pub fn free_process(&self, process: &ProcessView) {
        // The first extent is freed last, because it describes the process until then.
        for &extent in process.extents.iter().rev() {
            self.clear(extent);
        }
        self.note_freed();
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.close();
        // SAFETY: the mapping was made by `create`, and all references to it were borrowed from `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), MAX_EXTENTS * EXTENT_BYTES) };
    }
}

/// Calls `set_size` so that it fails, instead of ending the process, if the file size limit (`ulimit -f`) is too low.
/// The process must have only one thread.
fn without_file_size_signal(set_size: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: the calls only change what this process does on one signal, and change it back.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let result = set_size();
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGXFSZ, before) };
    match result {
        Err(error) if error.raw_os_error() == Some(libc::EFBIG) => {
            let text = format!(
                "the limit of file sizes is lower than the {} MiB of shared memory: raise it with `ulimit -f`",
                (MAX_EXTENTS * EXTENT_BYTES) >> 20
            );
            Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
        }
        result => result,
    }
}

/// Reserves memory for extents of the file.
fn reserve(file: &File, first: usize, extents: usize) -> io::Result<()> {
    let (from, bytes) = ((first * EXTENT_BYTES) as libc::off_t, (extents * EXTENT_BYTES) as libc::off_t);
    // SAFETY: the call only changes the file.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, from, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the event in a row of a page; `None` if it is damaged.
fn event_at(header: *const PageHeader, row: usize) -> Option<Event> {
    /// An event whose bytes may be anything.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct RawEvent {
        words: [u64; 4],
        ids: [u32; 3],
        device: u16,
        action: u8,
        flags: u8,
    }
    const _: () = assert!(size_of::<RawEvent>() == size_of::<Event>());
    // SAFETY: the row is in the page, and any bytes are valid.
    let raw = unsafe { page_content(header).cast::<RawEvent>().wrapping_add(row).read() };
    let [ticks, address, size_bytes, stream] = raw.words;
    let [stack, scope, thread] = raw.ids;
    Some(Event {
        ticks,
        address,
        size_bytes,
        stream: StreamId(stream),
        stack: StackId(stack),
        scope: ScopeId(scope),
        thread: ThreadId(thread),
        device: DeviceId(raw.device),
        action: Action::from_number(raw.action)?,
        flags: EventFlags(raw.flags),
    })
}

/// The bytes and blocks that scopes have allocated, by device slot and scope.
pub type SumsOfScopes = BTreeMap<(usize, ScopeId), [u64; 2]>;

/// A process that uses the region.
#[derive(Clone, Debug)]
pub struct ProcessView {
    /// A number that no other process in the region has at the same time.
    pub number: usize,
    /// The process id.
    pub pid: u32,
    /// The process id of the parent when the process began.
    pub parent: u32,
    /// Whether the process is a fork of a recorded process, rather than a program that was started.
    pub is_forked: bool,
    /// Whether the process is recorded with the smallest budget, because there are too many programs.
    pub is_beyond_limit: bool,
    /// A number that is different after each `exec`.
    pub image: u64,
    /// The first reading of the clock: ticks, and nanoseconds since the Unix epoch.
    pub clock: (u64, u64),
    /// The first stamp of the recording.
    pub start_ticks: u64,
    extents: Vec<usize>,
}

/// Events that were read from one page. They belong to one thread and device, and are in order.
#[derive(Debug)]
pub struct EventPage {
    /// The events; never empty.
    pub events: Vec<Event>,
}

/// The state of reading a process's log.
#[derive(Debug, Default)]
pub struct LogState {
    page: u64,
    /// The number of bytes that were read from the page with the number `page`.
    read: usize,
    /// The bytes read so far of a record that is not complete.
    bytes: Vec<u8>,
    /// Whether the rest of the log cannot be read.
    is_damaged: bool,
}
