//! Turns events into lifetimes: for each block, the events at which it was allocated and freed. `peak`, `top` and
//! `phases` use lifetimes so that they need not pair frees with allocations themselves.

use memtrack_model::event::{Action, DeviceId, ScopeId, StackId, StreamId, TaskId};
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::{LiveBlock, Snapshot, WeighedBlock};
use std::collections::HashMap;

/// A block's lifetime, as far as the snapshot shows it. Rows are rows of the snapshot's event table.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Lifetime {
    /// The scope in which the block was allocated.
    pub scope: ScopeId,
    /// The stack that allocated the block.
    pub stack: StackId,
    /// The block's size in bytes.
    pub size_bytes: u64,
    /// The number of bytes that the block stands for: its size, or more if it was sampled.
    pub bytes: u64,
    /// The number of blocks that the block stands for: 1, or more if it was sampled.
    pub blocks: f64,
    /// Whether the block was sampled, so that [`Self::bytes`] and [`Self::blocks`] are estimates.
    pub estimated: bool,
    /// The row of the allocation; `None` if the block was live before the first event.
    pub from: Option<usize>,
    /// The row of the free; `None` if the block is live at the end.
    pub to: Option<usize>,
    /// The row in the table of live blocks if the block is known only from that table.
    pub block: Option<u32>,
    /// Whether the allocation is known. If not, only the free was recorded, and the scope and the stack are `NONE`.
    pub known: bool,
}

impl Lifetime {
    fn new(weighed: WeighedBlock) -> Self {
        let WeighedBlock { size_bytes, bytes, blocks, estimated } = weighed;
        Self {
            scope: ScopeId::NONE,
            stack: StackId::NONE,
            size_bytes,
            bytes,
            blocks,
            estimated,
            from: None,
            to: None,
            block: None,
            known: true,
        }
    }

    fn of_event(snapshot: &Snapshot, row: usize) -> Self {
        let (scope, stack) = (snapshot.events.scope[row], snapshot.events.stack[row]);
        Self { scope, stack, from: Some(row), ..Self::new(snapshot.weighed_event(row)) }
    }

    fn of_block(snapshot: &Snapshot, row: usize) -> Self {
        let LiveBlock { scope, stack, .. } = snapshot.blocks[row];
        Self { scope, stack, block: Some(row as u32), ..Self::new(snapshot.weighed_block(row)) }
    }

    /// Returns the block's address.
    pub fn address(&self, snapshot: &Snapshot) -> u64 {
        match self.from.or(self.to) {
            Some(row) => snapshot.events.address[row],
            None => self.live_block(snapshot).map_or(0, |block| block.address),
        }
    }

    /// Returns the stream that the block belongs to.
    pub fn stream(&self, snapshot: &Snapshot) -> StreamId {
        match self.from.or(self.to) {
            Some(row) => snapshot.events.stream[row],
            None => self.live_block(snapshot).map_or(StreamId::default(), |block| block.stream),
        }
    }

    /// Returns the task that has allocated the block.
    pub fn task(&self, snapshot: &Snapshot) -> TaskId {
        match self.from.or(self.to) {
            Some(row) => snapshot.events.task(row),
            None => self.live_block(snapshot).map_or(TaskId::NONE, |block| block.task),
        }
    }

    /// Returns the block's category, which comes from a memory profile or is inferred from a recording's operators
    /// ([`Snapshot::categories`]); `None` if it is unknown.
    pub fn category(&self, snapshot: &Snapshot) -> Option<String> {
        let row = self.from.or(self.to)?;
        if let Some(categories) = snapshot.categories.get() {
            return categories.of_event(row).map(str::to_owned);
        }
        let pytorch = snapshot.pytorch.as_deref().filter(|pytorch| pytorch.events.has(row, Key::Category))?;
        Some(snapshot.strings.get(pytorch.events.text(row, Key::Category)).into_owned())
    }

    fn live_block<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a LiveBlock> {
        self.block.and_then(|row| snapshot.blocks.get(row as usize))
    }

    /// Returns whether the block is live right after the event in `row` or, if `row` is `None`, before the first event.
    pub fn is_live_after(&self, row: Option<usize>) -> bool {
        // `None < Some(0)` holds, so a block that was live from the start precedes every row.
        self.from <= row && self.to.is_none_or(|to| row.is_none_or(|row| row < to))
    }
}

/// Returns the lifetimes of all blocks of `device`. A lifetime ends when the free is requested or, if the trace
/// contains no requests, when the free completes. A block known only from its free or from the table of live blocks
/// counts as live from the start, so that sums are correct even if the ring dropped events or memory was allocated
/// before recording began.
pub fn lifetimes(snapshot: &Snapshot, device: DeviceId) -> Vec<Lifetime> {
    // Reserve the full capacity: there may be millions of lifetimes, and a vector that grows by doubling would copy
    // them all and briefly need twice the memory.
    let begun = snapshot.events.rows_of(device).filter(|&row| snapshot.events.action[row] == Action::Alloc);
    let mut lifetimes: Vec<Lifetime> = Vec::with_capacity(begun.count() + snapshot.blocks.len());
    // The indices, by address, of the lifetimes that have not ended.
    let mut open: HashMap<u64, usize, foldhash::fast::RandomState> = HashMap::default();
    let has_requests = snapshot
        .events
        .rows_of(device)
        .any(|row| matches!(snapshot.events.action[row], Action::Free | Action::FreeRequested));
    for row in snapshot.events.rows_of(device) {
        let event = snapshot.events.get(row);
        match event.action {
            Action::Alloc => {
                // Another block is still live at this address because its free was not recorded.
                if let Some(before) = open.insert(event.address, lifetimes.len()) {
                    lifetimes[before].to = Some(row);
                }
                lifetimes.push(Lifetime::of_event(snapshot, row));
            }
            Action::Free | Action::FreeRequested => match open.remove(&event.address) {
                Some(block) => lifetimes[block].to = Some(row),
                None => {
                    let before = Lifetime::new(snapshot.weighed_event(row));
                    lifetimes.push(Lifetime { to: Some(row), known: false, ..before });
                }
            },
            // Usually, an earlier request has already ended the lifetime. If requests are not recorded, it ends here.
            Action::FreeCompleted => match open.remove(&event.address) {
                Some(block) => lifetimes[block].to = Some(row),
                None if has_requests => {}
                None => {
                    let before = Lifetime::new(snapshot.weighed_event(row));
                    lifetimes.push(Lifetime { to: Some(row), known: false, ..before });
                }
            },
            _ => {}
        }
    }
    let older = snapshot.blocks.iter().enumerate().filter(|(_, block)| {
        block.device == device && !block.pending_free && !open.contains_key(&block.address)
    });
    lifetimes.extend(older.map(|(row, _)| Lifetime::of_block(snapshot, row)));
    lifetimes
}

/// Returns the exact bytes and number of blocks that were allocated on `device` but not recorded individually; both are
/// 0 for devices that are not sampled. `None` if the recorder did not count them or if older events were dropped.
pub fn not_recorded_individually(
    snapshot: &Snapshot,
    device: DeviceId,
    lifetimes: &[Lifetime],
) -> Option<(u64, u64)> {
    if !is_sampled(snapshot, device) {
        return Some((0, 0));
    }
    let counts = snapshot.exact_counts(device).filter(|counts| counts.dropped == 0)?;
    let recorded = lifetimes.iter().filter(|one| one.from.is_some() && !one.estimated);
    let (bytes, blocks) =
        recorded.fold((0u64, 0u64), |(bytes, blocks), one| (bytes.saturating_add(one.bytes), blocks + 1));
    Some((counts.allocated_bytes.saturating_sub(bytes), counts.allocations.saturating_sub(blocks)))
}

/// Returns whether sums over blocks of `device` are estimates because they include samples or small blocks may be
/// missing.
pub fn is_estimate(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> bool {
    lifetimes.iter().any(|one| one.estimated)
        || not_recorded_individually(snapshot, device, lifetimes).is_none_or(|(_, blocks)| blocks > 0)
}

/// Returns whether small blocks of `device` were sampled.
fn is_sampled(snapshot: &Snapshot, device: DeviceId) -> bool {
    snapshot.is_heap(device) && snapshot.may_lack_small_blocks()
}
