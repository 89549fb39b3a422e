//! The pages of mappings, from `/proc/PID/pagemap`, which has an entry of 8 bytes for each page of the address space.

use crate::mappings::Mapping;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The size of an entry.
const ENTRY_BYTES: u64 = 8;
/// The bit of an entry whose page is in memory.
const IS_PRESENT: u64 = 1 << 63;
/// The bit of an entry whose page is mapped only here. The kernel's page of zeros is not, nor are pages that a forked process
/// shares with its parent.
const IS_EXCLUSIVE: u64 = 1 << 56;
/// The number of bytes of the table that are read at once. The process cannot map memory while its 8,192 pages are looked up,
/// which takes less than half a millisecond.
const STEP_BYTES: usize = 64 << 10;
/// Only mappings up to this size in all are read: the table has an entry for each page, used or not.
const MAX_MAPPED_BYTES: u64 = 256 << 30;

/// The table of a process.
#[derive(Debug)]
pub(crate) struct PageTable {
    table: File,
    page_bytes: u64,
    /// The addresses, in bytes, and the run lengths that may still be read.
    room_bytes: u64,
    room_lengths: usize,
    buffer: Vec<u8>,
}

/// Which pages of a mapping are in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    /// The lengths of runs of pages: not resident, resident, and so on in turns.
    pub(crate) lengths: Vec<u32>,
    /// The number of resident pages that are not mapped only here.
    pub(crate) shared: u64,
}

impl Pages {
    /// Returns the number of resident pages.
    pub(crate) fn resident(&self) -> u64 {
        self.lengths.iter().skip(1).step_by(2).map(|length| u64::from(*length)).sum()
    }
}

impl PageTable {
    /// Opens the table of a process. `max_lengths` is the maximum number of run lengths to return in all.
    ///
    /// # Errors
    /// Fails when the process has ended, or when the system does not let the caller read the table.
    pub(crate) fn open(process: &Path, page_bytes: u64, max_lengths: usize) -> io::Result<Self> {
        let table = File::open(process.join("pagemap"))?;
        let buffer = vec![0; STEP_BYTES];
        Ok(Self { table, page_bytes, room_bytes: MAX_MAPPED_BYTES, room_lengths: max_lengths, buffer })
    }

    /// Reads the pages of a mapping that are in memory. `None` if they cannot be read, or would exceed the limits.
    pub(crate) fn read(&mut self, mapping: &Mapping) -> Option<Pages> {
        self.read_pages(mapping, IS_PRESENT)
    }

    /// Does the same for the pages that are mapped only here.
    pub(crate) fn read_exclusive(&mut self, mapping: &Mapping) -> Option<Pages> {
        self.read_pages(mapping, IS_PRESENT | IS_EXCLUSIVE)
    }

    /// Makes room for pages that are not kept.
    pub(crate) fn drop_pages(&mut self, pages: &Pages) {
        self.room_lengths += pages.lengths.len();
    }

    /// Reads the runs of pages whose entries have all of these bits.
    fn read_pages(&mut self, mapping: &Mapping, bits: u64) -> Option<Pages> {
        self.room_bytes = self.room_bytes.checked_sub(mapping.end - mapping.start)?;
        let mut pages = Pages::default();
        // The lengths of the current gap, and of the current run.
        let (mut gap, mut run) = (0_u32, 0_u32);
        let (mut offset, end) =
            (mapping.start / self.page_bytes * ENTRY_BYTES, mapping.end / self.page_bytes * ENTRY_BYTES);
        while offset < end {
            let wanted = self.buffer.len().min((end - offset) as usize);
            let count = self.table.read_at(&mut self.buffer[..wanted], offset).ok()?;
            let (entries, rest) = self.buffer[..count].as_chunks::<{ ENTRY_BYTES as usize }>();
            if entries.is_empty() || !rest.is_empty() {
                return None;
            }
            for entry in entries {
                let entry = u64::from_ne_bytes(*entry);
                if entry & bits == bits {
                    run = run.checked_add(1)?;
                    pages.shared += u64::from(entry & IS_EXCLUSIVE == 0);
                    continue;
                }
                if run > 0 {
                    pages.lengths.extend([gap, run]);
                    if pages.lengths.len() > self.room_lengths {
                        return None;
                    }
                    (gap, run) = (0, 0);
                }
                gap = gap.checked_add(1)?;
            }
            offset += count as u64;
        }
        if run > 0 {
            pages.lengths.extend([gap, run]);
        }
        self.room_lengths = self.room_lengths.checked_sub(pages.lengths.len())?;
        Some(pages)
    }
}
