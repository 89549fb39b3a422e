//! From events to lifetimes: which block was live from which event to which. `peak`, `top` and `phases` look at these
//! instead of pairing frees with allocations each for itself.

use crate::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId};
use crate::snapshot::{LiveBlock, Meta, Snapshot};
use std::collections::HashMap;

/// A block while it was live, as far as the recording knows. Rows are those of the snapshot's event table.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// Whether it was sampled, so that [`Self::bytes`] and [`Self::blocks`] are estimates.
    pub estimated: bool,
    /// The row of its allocation; none when it was live before the first event.
    pub from: Option<usize>,
    /// The row of its free; none when it is live at the end.
    pub to: Option<usize>,
    /// Its row in the table of live blocks, when that alone tells of it.
    pub block: Option<u32>,
    /// Whether its allocation is known. Otherwise only its free was seen, and scope and stack are "none".
    pub known: bool,
}

impl Lifetime {
    fn new(size_bytes: u64, flags: EventFlags, meta: &Meta) -> Self {
        let estimated = flags.contains(EventFlags::SAMPLED);
        let blocks = meta.weight(flags, size_bytes);
        let bytes = if estimated { (size_bytes as f64 * blocks).round() as u64 } else { size_bytes };
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

    fn of_event(row: usize, event: &Event, meta: &Meta) -> Self {
        let new = Self::new(event.size_bytes, event.flags, meta);
        Self { scope: event.scope, stack: event.stack, from: Some(row), ..new }
    }

    fn of_block(row: usize, block: &LiveBlock, meta: &Meta) -> Self {
        let new = Self::new(block.size_bytes, block.flags, meta);
        Self { scope: block.scope, stack: block.stack, block: Some(row as u32), ..new }
    }

    /// Whether it is live right after event `row`; none: before the first event.
    pub fn is_live_after(&self, row: Option<usize>) -> bool {
        // `None < Some(0)`: what was live from the start comes before every row.
        self.from <= row && self.to.is_none_or(|to| row.is_none_or(|row| row < to))
    }
}

/// The lifetimes of all blocks of `device`. A block counts until its free was requested. What only its free or only
/// the table of live blocks tells of was live from the start, so that the sums are right when the ring dropped events
/// or memory existed before. A trace may know of no requests, and then a block's only event may be that its free was
/// completed.
pub fn lifetimes(snapshot: &Snapshot, device: DeviceId) -> Vec<Lifetime> {
    let meta = &snapshot.meta;
    let mut lifetimes: Vec<Lifetime> = Vec::new();
    // Live blocks by address: where their lifetime lies.
    let mut open: HashMap<u64, usize, foldhash::fast::RandomState> = HashMap::default();
    let has_requests = snapshot
        .events
        .rows_of(device)
        .any(|row| matches!(snapshot.events.action[row], Action::Free | Action::FreeRequested));
    for row in snapshot.events.rows_of(device) {
        let event = snapshot.events.get(row);
        match event.action {
            Action::Alloc => {
                // A block at an address that is taken: the free between them was not recorded.
                if let Some(before) = open.insert(event.address, lifetimes.len()) {
                    lifetimes[before].to = Some(row);
                }
                lifetimes.push(Lifetime::of_event(row, &event, meta));
            }
            Action::Free | Action::FreeRequested => match open.remove(&event.address) {
                Some(block) => lifetimes[block].to = Some(row),
                None => {
                    let before = Lifetime::new(event.size_bytes, event.flags, meta);
                    lifetimes.push(Lifetime { to: Some(row), known: false, ..before });
                }
            },
            // Mostly requested before. Where requests are not recorded, the block ends here.
            Action::FreeCompleted => match open.remove(&event.address) {
                Some(block) => lifetimes[block].to = Some(row),
                None if has_requests => {}
                None => {
                    let before = Lifetime::new(event.size_bytes, event.flags, meta);
                    lifetimes.push(Lifetime { to: Some(row), known: false, ..before });
                }
            },
            _ => {}
        }
    }
    let older = snapshot.blocks.iter().enumerate().filter(|(_, block)| {
        block.device == device && !block.pending_free && !open.contains_key(&block.address)
    });
    lifetimes.extend(older.map(|(row, block)| Lifetime::of_block(row, block, meta)));
    lifetimes
}
