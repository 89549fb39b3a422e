//! What a range of addresses holds, according to the call that mapped it.
#![allow(unsafe_code)]

use super::Request;

/// What a range of addresses holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Memory: private pages that can be or could be written, or shared memory.
    Memory,
    /// Addresses without memory, which become memory when they are made writable.
    Reserved,
    /// Writable addresses whose pages become memory one by one, when the program writes to them, which no call shows: a writable
    /// mapping with `MAP_NORESERVE`, or memory whose pages were given back with `madvise`.
    OnDemand,
    /// A private mapping of a file that cannot be written. It becomes memory when it is made writable.
    PrivateFile,
    /// A shared mapping of a file, whose pages belong to the file.
    SharedFile,
}

impl Kind {
    /// Returns what a new mapping holds.
    pub(super) fn of(request: &Request) -> Self {
        let &Request { protection, flags, file, .. } = request;
        let is_writable = protection & libc::PROT_WRITE != 0;
        let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
        let is_anonymous = flags & libc::MAP_ANONYMOUS != 0;
        let is_on_demand = flags & libc::MAP_NORESERVE != 0;
        match (is_anonymous, is_shared) {
            (true, _) if !is_writable => Self::Reserved,
            (true, false) if is_on_demand => Self::OnDemand,
            (true, _) => Self::Memory,
            (false, false) if is_writable => Self::Memory,
            (false, false) => Self::PrivateFile,
            (false, true) if is_writable && is_in_memory(file) => Self::Memory,
            (false, true) => Self::SharedFile,
        }
    }

    /// Returns whether the range is recorded with its stack, because it is memory or may become memory without a call.
    pub(super) fn is_recorded(self) -> bool {
        matches!(self, Self::Memory | Self::OnDemand)
    }

    /// Returns whether the range becomes memory when it is made writable.
    pub(super) fn can_become_memory(self) -> bool {
        matches!(self, Self::Reserved | Self::PrivateFile)
    }
}

/// Returns whether a file has no disk behind it: it was created by `memfd_create` or `shm_open`, or is in another memory file
/// system.
fn is_in_memory(file: i32) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const HUGETLBFS: i64 = 0x9584_58f6;
    const RAMFS: i64 = 0x8584_58f6;
    // SAFETY: both calls only write to the structures. Devices, such as those of a GPU, are in a memory file system too, but
    // are no regular files.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let mut system: libc::statfs = std::mem::zeroed();
        libc::fstat(file, &mut status) == 0
            && status.st_mode & libc::S_IFMT == libc::S_IFREG
            && libc::fstatfs(file, &mut system) == 0
            && [TMPFS, HUGETLBFS, RAMFS].contains(&(system.f_type as i64))
    }
}
