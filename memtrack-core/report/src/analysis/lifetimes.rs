//! From events to lifetimes: the events at which each block's life begins and ends. `peak`, `top` and `phases`
//! use these instead of pairing frees with allocations themselves.

use memtrack_model::event::{Action, DeviceId, ScopeId, StackId, StreamId};
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::{LiveBlock, Snapshot, WeighedBlock};
use std::collections::HashMap;

/// A block while it was live, as far as the recording shows. Rows are those of the snapshot's event table.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Lifetime {
    /// The scope of its allocation.
    pub scope: ScopeId,
    /// The stack of its allocation.
    pub stack: StackId,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The bytes it stands for: its size, or more when it was sampled.
    pub bytes: u64,
    /// The blocks it stands for: 1, or more when it was sampled.
    pub blocks: f64,
    /// Whether it was sampled, which makes [`Self::bytes`] and [`Self::blocks`] estimates.
    pub estimated: bool,
    /// The row of its allocation; none when it was live before the first event.
    pub from: Option<usize>,
    /// The row of its free; none when it is live at the end.
    pub to: Option<usize>,
    /// Its row in the table of live blocks, when it is known only from there.
    pub block: Option<u32>,
    /// Whether its allocation is known. Otherwise only its free was recorded, and scope and stack are "none".
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

    /// Returns its address.
    pub fn address(&self, snapshot: &Snapshot) -> u64 {
        match self.from.or(self.to) {
            Some(row) => snapshot.events.address[row],
            None => self.in_the_table(snapshot).map_or(0, |block| block.address),
        }
    }

    /// Returns the stream that owns it.
    pub fn stream(&self, snapshot: &Snapshot) -> StreamId {
        match self.from.or(self.to) {
            Some(row) => snapshot.events.stream[row],
            None => self.in_the_table(snapshot).map_or(StreamId::default(), |block| block.stream),
        }
    }

    /// Returns its category from a profile, or the one inferred from the operators of a recording
    /// ([`Snapshot::categories`]); none where it is unknown.
    pub fn category(&self, snapshot: &Snapshot) -> Option<String> {
        let row = self.from.or(self.to)?;
        if let Some(categories) = snapshot.categories.get() {
            return categories.of_event(row).map(str::to_owned);
        }
        let pytorch = snapshot.pytorch.as_deref().filter(|pytorch| pytorch.events.has(row, Key::Category))?;
        Some(snapshot.strings.get(pytorch.events.text(row, Key::Category)).into_owned())
    }

    fn in_the_table<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a LiveBlock> {
        self.block.and_then(|row| snapshot.blocks.get(row as usize))
    }

    /// Returns whether it is live right after event `row`; without a row, before the first event.
    pub fn is_live_after(&self, row: Option<usize>) -> bool {
        // `None < Some(0)`: a block that was live from the start comes before every row.
        self.from <= row && self.to.is_none_or(|to| row.is_none_or(|row| row < to))
    }
}

/// Returns the lifetimes of all blocks of `device`. A block counts until its free was requested. A block that
/// is known only from its free or from the table of live blocks was live from the start, so that sums are right
/// when the ring dropped events or memory existed before. A trace may contain no requests; then a block's only
/// event may be the completion of its free.
pub fn lifetimes(snapshot: &Snapshot, device: DeviceId) -> Vec<Lifetime> {
    // There are millions: growing by doubling would take twice the memory for a moment, and copy all of them.
    let begun = snapshot.events.rows_of(device).filter(|&row| snapshot.events.action[row] == Action::Alloc);
    let mut lifetimes: Vec<Lifetime> = Vec::with_capacity(begun.count() + snapshot.blocks.len());
    // Live blocks by address: the index of their lifetime.
    let mut open: HashMap<u64, usize, foldhash::fast::RandomState> = HashMap::default();
    let has_requests = snapshot
        .events
        .rows_of(device)
        .any(|row| matches!(snapshot.events.action[row], Action::Free | Action::FreeRequested));
    for row in snapshot.events.rows_of(device) {
        let event = snapshot.events.get(row);
        match event.action {
            Action::Alloc => {
                // A block at an address in use: the free between them was not recorded.
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
            // Its free was usually requested before. Where requests are not recorded, the block's life ends here.
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

/// Returns the bytes and the number, both exact, of blocks allocated on `device` that were not recorded individually.
/// `None` where the recorder did not count, or where older events were dropped. Devices that are not sampled have none.
pub fn not_one_by_one(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> Option<(u64, u64)> {
    if !is_sampled(snapshot, device) {
        return Some((0, 0));
    }
    let counts = snapshot.exact_counts(device).filter(|counts| counts.dropped == 0)?;
    let recorded = lifetimes.iter().filter(|one| one.from.is_some() && !one.estimated);
    let (bytes, blocks) =
        recorded.fold((0u64, 0u64), |(bytes, blocks), one| (bytes.saturating_add(one.bytes), blocks + 1));
    Some((counts.allocated_bytes.saturating_sub(bytes), counts.allocations.saturating_sub(blocks)))
}

/// Returns whether sums over blocks of `device` are estimates: they include samples, or small blocks may be missing.
pub fn is_estimate(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> bool {
    lifetimes.iter().any(|one| one.estimated)
        || not_one_by_one(snapshot, device, lifetimes).is_none_or(|(_, blocks)| blocks > 0)
}

/// Returns whether small blocks of `device` were sampled.
fn is_sampled(snapshot: &Snapshot, device: DeviceId) -> bool {
    snapshot.is_heap(device) && snapshot.may_lack_small_blocks()
}
