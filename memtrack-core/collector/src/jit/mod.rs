//! The names of code that a program generates while it runs (JIT code). Such code lies in no binary; but many language
//! runtimes list it for `perf`, in a text file (`perf_map`) or in a binary one (`dump`). The command reads these files
//! when a process ends, and every few seconds before, and stores the names of the addresses that recorded stacks contain.
//! So the recording needs neither file later.
//!
//! - `perf_map`, `dump`: the two formats
//! - `forms`: splits a runtime's name for a function into function, file and line
//! - `found`: what the files contain about the addresses in stacks
//! - `source`: finds the files, and refuses those of other users
//!
//! **What if an address was used more than once?** A runtime frees code and generates other code in its place. A perf map
//! has no times, and a stack is stored once for all its events, whenever they happened. So if the entries for an address
//! name several functions, the frame names all of them: `parse or render`. The same function, compiled again, is one.
//!
//! **Why no crate for the dumps?** `linux-perf-data` reads them, and brings 17 crates with it, `prost` and two versions of
//! `syn` among them, because it reads the files of `perf record` too. The part that is needed here is two kinds of records.

mod dump;
mod forms;
mod found;
mod perf_map;
mod source;

use found::Found;
use memtrack_model::Frame;
use memtrack_model::snapshot::{KnownNames, Module};
use source::Source;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The maximum number of addresses that are named.
const MAX_ADDRESSES: usize = 1 << 20;
/// Addresses from here on are not those of code.
const END_OF_CODE: u64 = 1 << 47;
/// The shortest time between two readings of the files while the process runs, and the share of the time that readings
/// may take.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
const INTERVALS_PER_READING: u32 = 100;
/// The size up to which files are read while the process runs: events wait meanwhile.
const MAX_RUNNING_BYTES: u64 = 32 << 20;
/// The sizes up to which files are read in the end. A perf map of 1 GiB takes 4 s; the code in a dump is not read.
const MAX_MAP_BYTES: u64 = 1 << 30;
const MAX_DUMP_BYTES: u64 = 4 << 30;
/// The time until the second search for a dump; it doubles from search to search.
const FIRST_SEARCH_INTERVAL: Duration = Duration::from_millis(20);

/// The addresses in the stacks of a process that may be those of generated code, and their names so far.
#[derive(Debug)]
pub(crate) struct Jit {
    source: Source,
    /// The code of the loaded binaries: start and end.
    binaries: BTreeMap<u64, u64>,
    /// The return addresses that lie in no binary.
    addresses: HashSet<u64>,
    /// The names that were returned so far.
    names: BTreeMap<u64, Vec<Frame>>,
    /// The numbers of addresses at the last reading and at the last search for a dump.
    addresses_read: usize,
    addresses_searched: usize,
    next_reading: Instant,
    next_search: Instant,
    search_interval: Duration,
}

impl Jit {
    /// Creates the state for a process that began at a time, in nanoseconds since the Unix epoch.
    pub(crate) fn new(pid: u32, begun_ns: u64) -> Self {
        let now = Instant::now();
        Self {
            source: Source::new(pid, begun_ns),
            binaries: BTreeMap::new(),
            addresses: HashSet::new(),
            names: BTreeMap::new(),
            addresses_read: 0,
            addresses_searched: 0,
            next_reading: now + MIN_INTERVAL,
            next_search: now,
            search_interval: FIRST_SEARCH_INTERVAL,
        }
    }

    /// Adds a loaded binary. Addresses in it are never named from the files.
    pub(crate) fn add_binary(&mut self, module: &Module) {
        let end = self.binaries.entry(module.start).or_default();
        *end = module.end.max(*end);
    }

    /// Adds the addresses of a new stack.
    pub(crate) fn add_stack(&mut self, addresses: &[u64]) {
        for &address in addresses {
            if self.is_candidate(address) && self.addresses.len() < MAX_ADDRESSES {
                self.addresses.insert(address);
            }
        }
    }

    /// Returns whether a return address may be that of generated code.
    fn is_candidate(&self, address: u64) -> bool {
        let call = address.wrapping_sub(1);
        let before = self.binaries.range(..=call).next_back();
        call < END_OF_CODE && before.is_none_or(|(_, end)| call >= *end)
    }

    /// Searches for the process's dump if there are new addresses. The process must still run: it shows its dump only by
    /// mapping it.
    pub(crate) fn search(&mut self) {
        if self.addresses.len() == self.addresses_searched || self.source.has_dump() {
            return;
        }
        let now = Instant::now();
        if now >= self.next_search {
            self.addresses_searched = self.addresses.len();
            self.source.search();
            self.next_search = now + self.search_interval;
            self.search_interval *= 2;
        }
    }

    /// Returns whether the files should be read again while the process runs.
    pub(crate) fn is_due(&self) -> bool {
        self.addresses.len() > self.addresses_read && Instant::now() >= self.next_reading
    }

    /// Reads the files of a running process. Returns the names that are new or have changed.
    pub(crate) fn read(&mut self, has_lines_of_python: bool) -> KnownNames {
        let begun = Instant::now();
        // A file that is refused now will be refused in the end, and reported then.
        let names = self.new_names([MAX_RUNNING_BYTES; 2], None, has_lines_of_python).unwrap_or_default();
        self.next_reading = Instant::now() + MIN_INTERVAL.max(begun.elapsed() * INTERVALS_PER_READING);
        names
    }

    /// Reads the files of a process that has ended. `replaced_ns` is the time at which another program began in its place.
    /// Returns the names that are new or have changed.
    ///
    /// # Errors
    /// Fails when a file cannot be read, or must not be.
    pub(crate) fn read_all(
        &mut self,
        replaced_ns: Option<u64>,
        has_lines_of_python: bool,
    ) -> io::Result<KnownNames> {
        self.new_names([MAX_MAP_BYTES, MAX_DUMP_BYTES], replaced_ns, has_lines_of_python)
    }

    fn new_names(
        &mut self,
        [max_map_bytes, max_dump_bytes]: [u64; 2],
        replaced_ns: Option<u64>,
        has_lines_of_python: bool,
    ) -> io::Result<KnownNames> {
        self.addresses_read = self.addresses.len();
        // A binary may have been reported after a stack through it.
        let candidates = self.addresses.iter().copied().filter(|&address| self.is_candidate(address));
        let mut addresses: Vec<u64> = candidates.collect();
        if addresses.is_empty() {
            return Ok(KnownNames::default());
        }
        addresses.sort_unstable();
        let mut named = BTreeMap::new();
        let mut failure = None;
        for is_dump in [true, false] {
            let max_bytes = if is_dump { max_dump_bytes } else { max_map_bytes };
            let mut read = |path: PathBuf| -> io::Result<()> {
                let Some((file, bytes)) = self.source.open(&path, max_bytes, replaced_ns)? else {
                    return Ok(());
                };
                let mut found = Found::new(addresses.clone());
                if is_dump {
                    dump::read(&mut BufReader::new(file), &mut found)?;
                } else {
                    perf_map::read(&mut BufReader::with_capacity(1 << 16, file), bytes, &mut found)?;
                }
                named.extend(found.into_frames(|text| forms::split(text, has_lines_of_python)));
                addresses.retain(|address| !named.contains_key(address));
                Ok(())
            };
            let paths = if is_dump { self.source.dumps() } else { vec![self.source.perf_map()] };
            for path in paths {
                if let Err(error) = read(path) {
                    failure = failure.or(Some(error));
                }
            }
        }
        if named.is_empty()
            && let Some(failure) = failure
        {
            return Err(failure);
        }
        Ok(self.take_changes(named))
    }

    /// Keeps the names, and returns those that are new or have changed.
    fn take_changes(&mut self, named: BTreeMap<u64, Vec<Frame>>) -> KnownNames {
        let mut changed = KnownNames::default();
        for (address, frames) in named {
            if self.names.get(&address) != Some(&frames) {
                self.names.insert(address, frames.clone());
                changed.frames.insert(address, frames);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_outside_binaries_are_named() {
        let mut jit = Jit::new(1, 0);
        jit.add_binary(&Module { start: 0x1000, end: 0x2000, ..Module::default() });
        // The call before 0x2000 is the last instruction of the binary, the one before 0x1000 is outside of it.
        jit.add_stack(&[0x1000, 0x1001, 0x2000, 0x2001, END_OF_CODE + 3, 0]);
        let mut addresses: Vec<u64> = jit.addresses.iter().copied().collect();
        addresses.sort_unstable();
        assert_eq!(addresses, [0x1000, 0x2001]);
    }
}
