//! Readings of a process's resident memory: which pages of its address space were in memory at a moment. Reports compare
//! them with the blocks that were live then, so that every resident byte has a name.

/// What the kernel knows about a mapping, apart from its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MappingKind {
    /// Private memory without a file: heaps, arenas, and what the program maps itself.
    Anonymous = 0,
    /// Stacks of threads, and the stacks of their signal handlers.
    Stack = 1,
    /// Files that are not binaries.
    File = 2,
    /// Memory shared with other processes, or with the process's children.
    Shared = 3,
    /// Programs and libraries: their code, and their data, which includes the zeros that are not in the file (`.bss`).
    Binary = 4,
    /// Memory of memtrack itself.
    Memtrack = 5,
}

impl MappingKind {
    /// The number of kinds.
    pub const COUNT: usize = 6;
}

/// One reading of a process's resident memory. All numbers are in bytes unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResidentReading {
    /// The time at which the reading began, in ticks.
    pub ticks: u64,
    /// The time at which the reading ended, in ticks. The program ran on meanwhile.
    pub ended_ticks: u64,
    /// The size of a page.
    pub page_bytes: u64,
    /// The resident memory by kind of mapping, indexed by [`MappingKind`], as the kernel counted it (`smaps`). That of
    /// [`MappingKind::Anonymous`] is the sum over [`Self::ranges`].
    pub by_kind: [u64; MappingKind::COUNT],
    /// Memory of the process that was swapped out, and is not part of the resident memory.
    pub swapped_bytes: u64,
    /// The anonymous mappings that had resident pages, by address.
    pub ranges: Vec<ResidentRange>,
    /// The memory that the process's container was charged for; `None` if there is no container, or its numbers cannot be
    /// read.
    pub charged: Option<Charged>,
}

/// An anonymous mapping with resident pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResidentRange {
    /// The first address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The resident bytes, as the kernel counted them.
    pub resident_bytes: u64,
    /// Whether this is the heap that grows by `brk`.
    pub is_break: bool,
    /// Which pages are resident, as lengths in pages: those that are not resident, those that are, and so on in turns, from
    /// the first page of the range. `None` if they could not be read.
    pub pages: Option<Vec<u32>>,
}

/// The memory that a container (a memory cgroup) is charged for, for all of its processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Charged {
    /// All charged bytes.
    pub bytes: u64,
    /// The lowest limit of the container and those around it; null if there is none.
    pub limit_bytes: Option<u64>,
    /// Charged memory without a file.
    pub anonymous_bytes: u64,
    /// The page cache of files, without shared memory. The kernel can drop most of it.
    pub file_bytes: u64,
    /// Shared memory, and files in memory file systems.
    pub shared_bytes: u64,
    /// The kernel's own memory for the container: page tables, stacks, sockets, caches; null if it is unknown.
    pub kernel_bytes: Option<u64>,
}

impl ResidentReading {
    /// Returns all resident bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.by_kind.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Returns the resident bytes of one kind of mapping.
    pub fn of(&self, kind: MappingKind) -> u64 {
        self.by_kind[kind as usize]
    }

    /// Returns whether the resident pages of all anonymous mappings were read.
    pub fn has_pages(&self) -> bool {
        self.ranges.iter().all(|range| range.pages.is_some())
    }
}

impl ResidentRange {
    /// Returns the runs of resident pages, as addresses: first, and one past the last; empty if they could not be read.
    pub fn runs(&self, page_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut address = self.start;
        let lengths = self.pages.as_deref().unwrap_or_default();
        lengths.chunks_exact(2).map(move |pair| {
            let start = address.saturating_add(u64::from(pair[0]).saturating_mul(page_bytes));
            address = start.saturating_add(u64::from(pair[1]).saturating_mul(page_bytes));
            (start, address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_resident_pages_in_turns() {
        let range =
            ResidentRange { start: 0x1000, end: 0x9000, pages: Some(vec![0, 1, 2, 3]), ..Default::default() };
        assert_eq!(range.runs(4096).collect::<Vec<_>>(), [(0x1000, 0x2000), (0x4000, 0x7000)]);
        assert_eq!(ResidentRange::default().runs(4096).count(), 0);
    }
}
