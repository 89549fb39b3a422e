//! Exact counts of allocations and frees, by kind. Tests compare memtrack's sums with them.

/// How memory was obtained. The values are the numbers that `memtrack_mock_count` takes as `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Linear = 0,
    Pitched = 1,
    Managed = 2,
    /// From a pool, by `cuMemAllocAsync` or `cuMemAllocFromPoolAsync`.
    Pooled = 3,
    Array = 4,
    /// `cuMemCreate`.
    Physical = 5,
    /// Page-locked host memory.
    Pinned = 6,
    /// Host memory of the program that was page-locked after its allocation.
    Registered = 7,
    /// Memory of another process, opened by IPC: counted under this kind, but not in any total.
    Ipc = 8,
}

const KINDS: usize = 9;

/// The counts of one kind, or of all kinds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Count {
    pub allocations: i64,
    pub frees: i64,
    pub live_bytes: i64,
    pub peak_bytes: i64,
}

impl Count {
    fn alloc(&mut self, bytes: u64) {
        self.allocations += 1;
        self.live_bytes += bytes as i64;
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
    }

    fn free(&mut self, bytes: u64) {
        self.frees += 1;
        self.live_bytes -= bytes as i64;
    }
}

/// The counts of one device, or of the host.
#[derive(Default)]
pub(crate) struct Counters {
    pub total: Count,
    by_kind: [Count; KINDS],
}

impl Counters {
    /// Counts an allocation.
    pub fn alloc(&mut self, kind: Kind, bytes: u64) {
        self.by_kind[kind as usize].alloc(bytes);
        if kind != Kind::Ipc {
            self.total.alloc(bytes);
        }
    }

    /// Counts a free.
    pub fn free(&mut self, kind: Kind, bytes: u64) {
        self.by_kind[kind as usize].free(bytes);
        if kind != Kind::Ipc {
            self.total.free(bytes);
        }
    }

    /// Returns the counts of a kind, or the total for a negative number.
    pub fn count(&self, kind: i32) -> Option<Count> {
        if kind < 0 { Some(self.total) } else { self.by_kind.get(kind as usize).copied() }
    }
}
