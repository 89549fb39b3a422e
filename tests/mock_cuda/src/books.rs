//! The exact books: what was given out and what came back, by kind. They are what memtrack's own sums are held against.

/// How memory was obtained. The numbers are those of `memtrack_mock_count`.
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
    /// Host memory of the program, page-locked later.
    Registered = 7,
    /// Another process's memory: counted by kind, in no total.
    Ipc = 8,
}

const KINDS: usize = 9;

/// One line of the books.
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

/// The books of one device, or of the host.
#[derive(Default)]
pub(crate) struct Books {
    pub total: Count,
    by_kind: [Count; KINDS],
}

impl Books {
    /// Memory was given out.
    pub fn alloc(&mut self, kind: Kind, bytes: u64) {
        self.by_kind[kind as usize].alloc(bytes);
        if kind != Kind::Ipc {
            self.total.alloc(bytes);
        }
    }

    /// Memory came back.
    pub fn free(&mut self, kind: Kind, bytes: u64) {
        self.by_kind[kind as usize].free(bytes);
        if kind != Kind::Ipc {
            self.total.free(bytes);
        }
    }

    /// One kind's line, or the total for a negative number.
    pub fn line(&self, kind: i32) -> Option<Count> {
        if kind < 0 { Some(self.total) } else { self.by_kind.get(kind as usize).copied() }
    }
}
