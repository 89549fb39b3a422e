//! Reads the resident memory of a process from Linux's files about it: which mappings it has (`smaps`), which of their pages
//! are in memory (`pagemap`), and what its container is charged for. `memtrack run` reads its programs from outside, and a
//! program with memtrack-core reads itself. Nothing in the process is changed or stopped.
//!
//! - `mappings`: the list of mappings
//! - `pages`: the pages of a mapping
//! - `binary`: where the data of a binary ends
//! - `schedule`: when to read
//! - `cgroup`: limits and charges of a container, which is a memory control group
//!
//! **Where do the numbers come from?** `smaps` has exactly what the kernel counts as resident; the counters of `status` are behind
//! by up to 64 pages a processor, which is more than a small program has, and `pagemap` shows a page of zeros that was only read
//! as if it were memory. But `smaps` walks the pages of a whole mapping at once, some 40 ms a GiB, and meanwhile the process cannot
//! map or unmap memory. It is therefore read only of small processes ([`MAX_SMAPS_BYTES`]). Of others, pages are counted in
//! `pagemap`, some 13 ms a GiB in steps of half a millisecond; where that is more than the counters say, pages that are mapped
//! elsewhere too are the page of zeros, and are left out.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

mod binary;
pub mod cgroup;
mod mappings;
mod pages;
mod schedule;

use binary::DataEnds;
use cgroup::charged;
use mappings::{Counters, Mapping, list_mappings, read_counters, read_mappings};
use memtrack_model::snapshot::{MappingKind, ResidentRange, ResidentReading};
use pages::{PageTable, Pages};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;

pub use schedule::Schedule;

/// The resident bytes of a process up to which a reading uses `smaps`, which keeps it from mapping memory for 10 ms at most.
pub const MAX_SMAPS_BYTES: u64 = 256 << 20;

/// The addresses of pages that memtrack has marked as its own, as the last reading that could see the marks found them.
pub type Marks = Vec<Range<u64>>;

/// The process to read, and what the reader knows about it.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The process's folder, `/proc/PID` or `/proc/self`.
    pub process: &'a Path,
    /// Addresses of memory in other mappings that is memtrack's own, in order and without overlaps. Whole pages within them are
    /// counted.
    pub own: &'a [Range<u64>],
    /// The names of memtrack's mapped files, as parts of paths.
    pub own_files: &'a [&'a str],
    /// The resident bytes up to which the process is read exactly: [`MAX_SMAPS_BYTES`].
    pub max_smaps_bytes: u64,
    /// The maximum number of run lengths ([`ResidentRange::pages`]) to return; further mappings have no pages.
    pub max_lengths: usize,
}

impl Reading<'_> {
    /// Reads the resident memory. The times of the result are 0; the caller sets them. `marks` is empty before the first
    /// reading of a process.
    ///
    /// # Errors
    /// Fails when the process has ended, or when the system does not let the caller read its mappings. Pages that cannot be
    /// read are no error: their mappings have none in the result.
    pub fn read(&self, marks: &mut Marks) -> io::Result<ResidentReading> {
        let counters = read_counters(self.process)?;
        let is_exact = counters.resident_bytes <= self.max_smaps_bytes;
        let (mut mappings, page_bytes) =
            if is_exact { read_mappings(self.process) } else { list_mappings(self.process) }?;
        let page_bytes = if page_bytes == 0 { page_size(self.process) } else { page_bytes };
        let mut table = PageTable::open(self.process, page_bytes, self.max_lengths).ok();
        let mut pages: Vec<Option<Pages>> = Vec::new();
        if is_exact {
            marks.clear();
            marks.extend(mappings.iter().filter(|one| one.is_marked).map(|one| one.start..one.end));
        } else {
            let table = table.as_mut().ok_or(io::ErrorKind::PermissionDenied)?;
            pages = count_pages(table, &mut mappings, page_bytes, counters);
        }
        let kinds = self.kinds(&mappings);
        let mut reading = ResidentReading {
            page_bytes,
            swapped_bytes: counters.swapped_bytes,
            charged: charged(self.process),
            ..ResidentReading::default()
        };
        let own = self.own_pages(marks, page_bytes);
        let mut data_ends = DataEnds::new(self.process);
        let mut add = |kind: MappingKind, bytes: u64| reading.by_kind[kind as usize] += bytes;
        for index in 0..mappings.len() {
            let mapping = &mappings[index];
            if mapping.resident_bytes == 0 {
                continue;
            }
            if kinds[index] != MappingKind::Anonymous {
                add(kinds[index], mapping.resident_bytes);
                continue;
            }
            let pages = match pages.get_mut(index) {
                Some(pages) => pages.take(),
                None => table.as_mut().and_then(|table| read_counted(table, mapping, page_bytes)),
            };
            let mut rest = ResidentRange {
                start: mapping.start,
                end: mapping.end,
                resident_bytes: mapping.resident_bytes,
                is_break: mapping.path == "[heap]",
                pages: pages.map(|pages| pages.lengths),
            };
            // The data of a binary that is not in its file follows the mapping of the file.
            let before = index.checked_sub(1).map(|before| &mappings[before]);
            let binary = before.filter(|before| {
                before.end == rest.start && kinds[index - 1] == MappingKind::Binary && !rest.is_break
            });
            if let Some(end) = binary.and_then(|binary| data_ends.after(binary, page_bytes)) {
                add(MappingKind::Binary, take_front(&mut rest, end, page_bytes));
            }
            let first = own.partition_point(|own| own.end <= rest.start);
            for own in own[first..].iter().take_while(|own| own.start < mapping.end) {
                let front = take_until(&mut rest, own.start, page_bytes);
                add(MappingKind::Memtrack, take_front(&mut rest, own.end, page_bytes));
                add(MappingKind::Anonymous, front.as_ref().map_or(0, |front| front.resident_bytes));
                reading.ranges.extend(front);
            }
            if rest.resident_bytes > 0 && rest.start < rest.end {
                add(MappingKind::Anonymous, rest.resident_bytes);
                reading.ranges.push(rest);
            }
        }
        Ok(reading)
    }

    /// Returns the whole pages of memtrack's own memory, in order and without overlaps.
    fn own_pages(&self, marks: &[Range<u64>], page_bytes: u64) -> Vec<Range<u64>> {
        let whole =
            |own: &Range<u64>| own.start.next_multiple_of(page_bytes)..own.end / page_bytes * page_bytes;
        let mut own: Vec<Range<u64>> = self.own.iter().chain(marks).map(whole).collect();
        own.retain(|own| own.start < own.end);
        own.sort_unstable_by_key(|own| own.start);
        own.dedup_by(|next, before| {
            let overlaps = next.start < before.end;
            if overlaps {
                before.end = before.end.max(next.end);
            }
            overlaps
        });
        own
    }

    /// Returns the kind of each mapping.
    fn kinds(&self, mappings: &[Mapping]) -> Vec<MappingKind> {
        // A binary's mappings belong together: one of them is executable.
        let is_code = |mapping: &&Mapping| mapping.is_executable && mapping.path.starts_with('/');
        let binaries: BTreeSet<&str> =
            mappings.iter().filter(is_code).map(|mapping| mapping.path.as_str()).collect();
        let before = std::iter::once(None).chain(mappings.iter().map(Some));
        let kind = |(mapping, before): (&Mapping, Option<&Mapping>)| {
            let path = mapping.path.as_str();
            if self.own_files.iter().any(|own| path.contains(own))
                || is_anonymous(mapping) && mapping.is_marked
            {
                return MappingKind::Memtrack;
            }
            match path {
                "[stack]" => MappingKind::Stack,
                _ if is_anonymous(mapping) && mapping.is_above_guard(before) => MappingKind::Stack,
                _ if is_anonymous(mapping) => MappingKind::Anonymous,
                _ if path.starts_with('[') => MappingKind::Binary,
                _ if binaries.contains(path) => MappingKind::Binary,
                _ if mapping.is_shared_memory() => MappingKind::Shared,
                _ => MappingKind::File,
            }
        };
        mappings.iter().zip(before).map(kind).collect()
    }
}

/// Reads the pages of a mapping whose resident bytes the kernel has counted.
fn read_counted(table: &mut PageTable, mapping: &Mapping, page_bytes: u64) -> Option<Pages> {
    let pages = table.read(mapping)?;
    if pages.resident() * page_bytes <= mapping.resident_bytes || pages.shared == 0 {
        return Some(pages);
    }
    // More pages than the kernel counts: some are the page of zeros, which is no memory.
    table.drop_pages(&pages);
    table.read_exclusive(mapping)
}

/// Reads the pages of all mappings, and sets their resident bytes.
fn count_pages(
    table: &mut PageTable,
    mappings: &mut [Mapping],
    page_bytes: u64,
    counters: Counters,
) -> Vec<Option<Pages>> {
    // Nothing can be used where everything is forbidden, but pages may remain there; they count as not resident.
    let mut read = |mapping: &Mapping| if mapping.is_closed { None } else { table.read(mapping) };
    let mut pages: Vec<Option<Pages>> = mappings.iter().map(&mut read).collect();
    let anonymous = |mapping: &Mapping| is_anonymous(mapping) || mapping.path == "[stack]";
    let counted: u64 = mappings
        .iter()
        .zip(&pages)
        .filter(|(mapping, _)| anonymous(mapping))
        .map(|(_, pages)| pages.as_ref().map_or(0, Pages::resident) * page_bytes)
        .sum();
    // The counters may be behind, and copies of pages of files count as anonymous.
    let has_zeros = counted > counters.anonymous_bytes + counters.anonymous_bytes / 200;
    for (mapping, pages) in mappings.iter_mut().zip(&mut pages) {
        if let Some(all) = pages.as_ref().filter(|all| has_zeros && all.shared > 0 && anonymous(mapping)) {
            table.drop_pages(all);
            *pages = table.read_exclusive(mapping);
        }
        mapping.resident_bytes = pages.as_ref().map_or(0, Pages::resident) * page_bytes;
    }
    pages
}

/// Returns the size of pages, in bytes, which is in the auxiliary vector of a process.
fn page_size(process: &Path) -> u64 {
    const PAGE_SIZE: u64 = 6;
    let vector = std::fs::read(process.join("auxv")).unwrap_or_default();
    let words = vector.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
    let words: Vec<u64> = words.collect();
    let size = words.as_chunks::<2>().0.iter().find(|[kind, _]| *kind == PAGE_SIZE).map(|[_, size]| *size);
    size.filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

/// Returns whether a mapping is private memory without a file.
fn is_anonymous(mapping: &Mapping) -> bool {
    let path = mapping.path.as_str();
    !mapping.is_shared && (path.is_empty() || path == "[heap]" || path.starts_with("[anon"))
}

/// Removes everything before `address` from a range, and returns the resident bytes of what was removed.
fn take_front(range: &mut ResidentRange, address: u64, page_bytes: u64) -> u64 {
    take_until(range, address, page_bytes).map_or(0, |front| front.resident_bytes)
}

/// Splits a range at `address`, and returns the part before it; `None` if there is none. If the pages are unknown, all resident
/// bytes stay with the larger part.
fn take_until(range: &mut ResidentRange, address: u64, page_bytes: u64) -> Option<ResidentRange> {
    let at = address.clamp(range.start, range.end);
    if at == range.start {
        return None;
    }
    let mut front = ResidentRange { end: at, is_break: range.is_break, ..range.clone() };
    match &range.pages {
        Some(pages) => {
            let (before, after) = split_lengths(pages, (at - range.start) / page_bytes);
            front.resident_bytes = resident_pages(&before) * page_bytes;
            (front.pages, range.pages) = (Some(before), Some(after));
            // The kernel's sum was counted a moment before the pages.
            front.resident_bytes = front.resident_bytes.min(range.resident_bytes);
        }
        None if at - range.start <= range.end - at => front.resident_bytes = 0,
        None => {}
    }
    range.resident_bytes -= front.resident_bytes;
    range.start = at;
    Some(front)
}

/// Returns the number of resident pages in lengths.
fn resident_pages(lengths: &[u32]) -> u64 {
    lengths.iter().skip(1).step_by(2).map(|length| u64::from(*length)).sum()
}

/// Splits lengths after this many pages.
fn split_lengths(lengths: &[u32], pages: u64) -> (Vec<u32>, Vec<u32>) {
    let (mut before, mut after, mut left) = (Vec::new(), Vec::new(), pages);
    for pair in lengths.chunks_exact(2) {
        let [gap, run] = [0, 1].map(|index| {
            let inside = u64::from(pair[index]).min(left);
            left -= inside;
            (inside as u32, pair[index] - inside as u32)
        });
        if run.0 > 0 {
            before.extend([gap.0, run.0]);
        }
        if run.1 > 0 {
            after.extend([gap.1, run.1]);
        }
    }
    (before, after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    const PAGE: usize = 4096;

    /// The tests look at the memory of one process, so they do so one after the other.
    static ALONE: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads this process by the kernel's sums, and by counting pages.
    fn read_both(own: &[Range<u64>]) -> [ResidentReading; 2] {
        [u64::MAX, 0].map(|max_smaps_bytes| {
            let process = Path::new("/proc/self");
            let request = Reading { process, own, own_files: &[], max_smaps_bytes, max_lengths: 1 << 20 };
            request.read(&mut Marks::new()).expect("a process may read itself")
        })
    }

    /// Returns the resident bytes of anonymous memory in `addresses`, according to a reading.
    fn resident_in(reading: &ResidentReading, addresses: Range<u64>) -> u64 {
        let runs = reading.ranges.iter().flat_map(|range| range.runs(reading.page_bytes));
        runs.map(|(start, end)| end.min(addresses.end).saturating_sub(start.max(addresses.start))).sum()
    }

    /// Returns pages of the system's own memory, of which every other one was written to.
    fn every_other_page(pages: usize) -> (Vec<u8>, Range<u64>) {
        let mut memory = vec![0_u8; (pages + 1) * PAGE];
        let start = memory.as_ptr().addr().next_multiple_of(PAGE) - memory.as_ptr().addr();
        for page in (0..pages).step_by(2) {
            memory[start + page * PAGE] = 1;
        }
        let first = (memory.as_ptr().addr() + start) as u64;
        (memory, first..first + (pages * PAGE) as u64)
    }

    #[test]
    fn written_pages_are_resident_and_others_are_not() {
        let _alone = alone();
        let (memory, addresses) = every_other_page(4096);
        for reading in read_both(&[]) {
            assert!(reading.has_pages());
            assert_eq!(resident_in(&reading, addresses.clone()), (4096 / 2 * PAGE) as u64);
            for range in &reading.ranges {
                assert!(range.start < range.end && range.resident_bytes > 0, "{range:x?}");
            }
        }
        black_box(memory);
    }

    #[test]
    fn pages_of_zeros_that_were_only_read_are_not_resident() {
        let _alone = alone();
        let memory = vec![0_u8; 4096 * PAGE];
        let sum: u64 = memory.iter().step_by(PAGE).map(|byte| u64::from(*byte)).sum();
        let first = memory.as_ptr().addr() as u64;
        let page = PAGE as u64;
        let inside = first.next_multiple_of(page)..(first + memory.len() as u64) / page * page;
        for reading in read_both(&[]) {
            assert_eq!((sum, resident_in(&reading, inside.clone())), (0, 0));
        }
        black_box(memory);
    }

    #[test]
    fn own_memory_is_a_kind_of_its_own() {
        let _alone = alone();
        let (memory, addresses) = every_other_page(512);
        let middle = (addresses.start + 128 * PAGE as u64)..(addresses.start + 256 * PAGE as u64);
        // Only whole pages count.
        let own = middle.start - 1..middle.end + 1;
        for reading in read_both(std::slice::from_ref(&own)) {
            assert_eq!(reading.of(MappingKind::Memtrack), (64 * PAGE) as u64);
            assert_eq!(resident_in(&reading, middle.clone()), 0);
            assert_eq!(resident_in(&reading, addresses.clone()), ((256 - 64) * PAGE) as u64);
        }
        black_box(memory);
    }

    #[test]
    fn kinds_add_up_to_what_the_kernel_says() {
        let _alone = alone();
        for reading in read_both(&[]) {
            let (sum, kernels) = (reading.resident_bytes(), rollup());
            // Threads of tests begin and end.
            assert!(sum.abs_diff(kernels) < 4 << 20, "{sum} is not {kernels}: {:?}", reading.by_kind);
            let of = |kind| reading.of(kind);
            assert!(of(MappingKind::Binary) > 0 && of(MappingKind::Stack) > 0, "{:?}", reading.by_kind);
            let anonymous: u64 = reading.ranges.iter().map(|range| range.resident_bytes).sum();
            assert_eq!(anonymous, of(MappingKind::Anonymous));
        }
    }

    fn rollup() -> u64 {
        let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    #[test]
    fn a_process_that_has_ended_is_an_error() {
        let process = Path::new("/proc/4294967295");
        let ended = Reading { process, own: &[], own_files: &[], max_smaps_bytes: 0, max_lengths: 1 };
        assert_eq!(ended.read(&mut Marks::new()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn lengths_are_split_at_a_page() {
        let split = |pages| split_lengths(&[2, 3, 1, 4], pages);
        assert_eq!(split(0), (vec![], vec![2, 3, 1, 4]));
        assert_eq!(split(1), (vec![], vec![1, 3, 1, 4]));
        assert_eq!(split(4), (vec![2, 2], vec![0, 1, 1, 4]));
        assert_eq!(split(5), (vec![2, 3], vec![1, 4]));
        assert_eq!(split(100), (vec![2, 3, 1, 4], vec![]));
    }
}
