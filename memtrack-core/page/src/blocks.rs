//! Determines the lifetimes of blocks: the events between which each block was live, and the event from which its free
//! was pending.
//!
//! The blocks that are live at the end are known, so the events are undone from there, newest first, as PyTorch's
//! viewer does. As a result, memory from before the recording, events that a ring dropped, and the different ways in
//! which files record a free need no special rules, because the state before an event is the state after it with the
//! event undone.
//!
//! **Why not the lifetimes of memtrack-report?** They pair events forward, end at the request of a free, and end a block
//! at the next allocation at its address. The pictures also show how long a free is pending, and leave out blocks of which
//! the file contains no end.

use crate::trace::Trace;
use memtrack_model::event::{Action, DeviceId, StackId};
use memtrack_model::snapshot::Snapshot;
use std::collections::HashMap;

/// Only the block's free is in the trace, so the stack is that of the free.
pub(crate) const ONLY_FREED: u8 = 1;
/// Neither the block's allocation nor its free is in the trace.
pub(crate) const ONLY_AT_END: u8 = 2;
/// The block's size is an estimate.
pub(crate) const ESTIMATE: u8 = 4;

/// The block number of an event that has no block.
pub(crate) const NONE: u32 = u32::MAX;

/// The lifetime of a block. Events are given by their numbers in the device's trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BlockLifetime {
    /// The event that allocated the block, or `None` if it was allocated before the first event.
    pub(crate) start: Option<u32>,
    /// The event that freed the block, or `None` if it is live at the end.
    pub(crate) end: Option<u32>,
    /// Whether the block's free is pending (requested but not completed) just before the lifetime ends.
    pub(crate) ends_pending: bool,
    /// The event that requested the pending free, or `None` if no free is pending or the request is not in the trace.
    pub(crate) request: Option<u32>,
    /// The block's size in bytes, or the number of bytes that a sampled block represents.
    pub(crate) bytes: u64,
    /// The block's first address.
    pub(crate) address: u64,
    /// The stack that allocated the block or, with [`ONLY_FREED`], the stack that freed it.
    pub(crate) stack: StackId,
    /// The raw handle of the block's stream.
    pub(crate) stream: u64,
    /// A combination of `ONLY_FREED` and the other flags.
    pub(crate) flags: u8,
    /// The block's row in [`Snapshot::blocks`], if it is live at the end.
    pub(crate) final_row: Option<u32>,
}

impl BlockLifetime {
    /// Returns the event from which the block's free is pending, or `None` if it is never pending. If the request is
    /// not in the trace, this is the start of the lifetime, or -1 if the block is older than the trace.
    pub(crate) fn pending_from(&self) -> Option<i64> {
        let start = self.start.map_or(-1, i64::from);
        self.ends_pending.then(|| self.request.map_or(start, i64::from))
    }
}

/// A device's blocks in the order in which the page's pictures stack them, and the block of each event.
pub(crate) struct BlockLifetimes {
    pub(crate) lifetimes: Vec<BlockLifetime>,
    /// For each event, the index of the block that it allocates or frees, or whose free it requests; [`NONE`] if there
    /// is no such block.
    pub(crate) of_event: Vec<u32>,
}

/// Returns the blocks of `device`.
pub(crate) fn find_lifetimes(trace: &Trace<'_>, device: DeviceId) -> BlockLifetimes {
    let snapshot = trace.snapshot;
    let mut builder = LifetimeBuilder {
        snapshot,
        found: Vec::new(),
        live: HashMap::default(),
        next_alloc: snapshot.has_samples().then(HashMap::default),
    };
    for (row, block) in snapshot.blocks.iter().enumerate().filter(|(_, block)| block.device == device) {
        let weighed = snapshot.weighed_block(row);
        let life = BlockLifetime {
            start: None,
            end: None,
            ends_pending: block.pending_free,
            request: None,
            bytes: weighed.bytes,
            address: block.address,
            stack: block.stack,
            stream: block.stream.0,
            flags: ONLY_AT_END | if weighed.estimated { ESTIMATE } else { 0 },
            final_row: Some(row as u32),
        };
        let number = builder.begin(life);
        builder.live.insert(block.address, number);
    }
    let mut of_event = vec![NONE; trace.len()];
    let mut started = Vec::new();
    for (event, row, action) in trace.events().rev() {
        of_event[event as usize] = builder.undo(event, row, action, &mut started);
    }
    builder.into_ordered(started, of_event)
}

/// The lifetimes found so far while events are being undone.
struct LifetimeBuilder<'a> {
    snapshot: &'a Snapshot,
    found: Vec<BlockLifetime>,
    /// The blocks that are live at the current event, by address.
    live: HashMap<u64, u32, foldhash::fast::RandomState>,
    /// The next allocation at each address: its event, and whether it is a sample. `None` if the snapshot has no samples.
    next_alloc: Option<HashMap<u64, (u32, bool), foldhash::fast::RandomState>>,
}

impl LifetimeBuilder<'_> {
    fn begin(&mut self, life: BlockLifetime) -> u32 {
        self.found.push(life);
        self.found.len() as u32 - 1
    }

    /// Adds a block that the event in `row` freed.
    fn add_freed(&mut self, event: u32, row: usize, ends_pending: bool) -> u32 {
        let (events, weighed) = (&self.snapshot.events, self.snapshot.weighed_event(row));
        self.begin(BlockLifetime {
            start: None,
            end: Some(event),
            ends_pending,
            request: None,
            bytes: weighed.bytes,
            address: events.address[row],
            stack: events.stack[row],
            stream: events.stream[row].0,
            flags: ONLY_FREED | if weighed.estimated { ESTIMATE } else { 0 },
            final_row: None,
        })
    }

    /// Undoes an event, and returns its block.
    fn undo(&mut self, event: u32, row: usize, action: Action, started: &mut Vec<u32>) -> u32 {
        let address = self.snapshot.events.address[row];
        match action {
            Action::Alloc => {
                let weighed = self.snapshot.weighed_event(row);
                let next = self
                    .next_alloc
                    .as_mut()
                    .and_then(|next| next.insert(address, (event, weighed.estimated)));
                let number = match (self.live.remove(&address), next) {
                    (Some(number), _) => number,
                    // The free of a block need not be recorded if it or the next block at its address is a sample. Other
                    // reports end such a block at the next allocation, too.
                    (None, Some((next, is_sample))) if is_sample || weighed.estimated => {
                        self.add_freed(next, row, false)
                    }
                    // If no block is live at this address after the allocation, the allocated block was freed at an
                    // unknown time before the next event at the address. Such a block is not shown.
                    (None, _) => return NONE,
                };
                let events = &self.snapshot.events;
                let life = &mut self.found[number as usize];
                life.start = Some(event);
                life.bytes = weighed.bytes;
                life.stack = events.stack[row];
                life.stream = events.stream[row].0;
                life.flags = if weighed.estimated { ESTIMATE } else { 0 };
                started.push(number);
                number
            }
            action @ (Action::FreeCompleted | Action::Free) => {
                // If another block is live at this address after the free, that block's allocation is not in the trace,
                // so its lifetime starts here.
                let number = self.add_freed(event, row, action == Action::FreeCompleted);
                if let Some(after) = self.live.insert(address, number) {
                    self.found[after as usize].start = Some(event);
                    started.push(after);
                }
                number
            }
            Action::FreeRequested => match self.live.get(&address) {
                Some(&number) => {
                    let life = &mut self.found[number as usize];
                    if life.ends_pending && life.request.is_none() {
                        life.request = Some(event);
                    }
                    number
                }
                // The block is not live after the request, so the free completed, but the completion is not in the
                // trace.
                None => {
                    let number = self.add_freed(event, row, false);
                    self.live.insert(address, number);
                    number
                }
            },
            _ => NONE,
        }
    }

    /// Returns the lifetimes in the order in which the picture stacks them. Blocks older than the trace come first, and
    /// among these, the ones that live longest are at the bottom, so that few blocks move when one is freed.
    fn into_ordered(self, started: Vec<u32>, mut of_event: Vec<u32>) -> BlockLifetimes {
        let mut older: Vec<u32> = self.live.into_values().collect();
        let key = |&number: &u32| {
            let life = &self.found[number as usize];
            (std::cmp::Reverse(life.end.unwrap_or(u32::MAX)), life.address)
        };
        older.sort_unstable_by_key(key);
        let order: Vec<u32> = older.into_iter().chain(started.into_iter().rev()).collect();
        let mut place = vec![NONE; self.found.len()];
        for (to, &from) in order.iter().enumerate() {
            place[from as usize] = to as u32;
        }
        for number in of_event.iter_mut().filter(|number| **number != NONE) {
            *number = place[*number as usize];
        }
        BlockLifetimes {
            lifetimes: order.iter().map(|&number| self.found[number as usize]).collect(),
            of_event,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::{Event, EventFlags, ScopeId, StreamId};
    use memtrack_model::snapshot::LiveBlock;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const DEVICE: DeviceId = DeviceId(0);

    /// Returns a snapshot in PyTorch's form, in which each action is one event.
    fn snapshot(events: &[(Action, u64)], held: &BTreeMap<u64, bool>) -> Snapshot {
        let mut snapshot = Snapshot { pytorch: Some(Box::default()), ..Snapshot::default() };
        for (place, &(action, address)) in events.iter().enumerate() {
            // All sizes differ, so that pairing a free with the wrong allocation is detected.
            let size_bytes = 100 + place as u64;
            snapshot.events.push(&Event { action, address, size_bytes, ..Event::BLANK });
        }
        snapshot.blocks = held
            .iter()
            .map(|(&address, &pending_free)| LiveBlock {
                device: DEVICE,
                address,
                size_bytes: address,
                stream: StreamId(0),
                task: Default::default(),
                stack: StackId::NONE,
                scope: ScopeId::NONE,
                ticks: 0,
                flags: EventFlags::default(),
                pending_free,
            })
            .collect();
        snapshot
    }

    fn trace(snapshot: &Snapshot) -> Trace<'_> {
        Trace::of_all(snapshot).remove(&DEVICE).unwrap_or_else(|| Trace::empty(snapshot))
    }

    /// Returns the live blocks before the first event and after each event, and whether their frees are pending, by
    /// undoing each event from the end as PyTorch's viewer does.
    fn undo_all(events: &[(Action, u64)], held: &BTreeMap<u64, bool>) -> Vec<BTreeMap<u64, bool>> {
        let mut live = held.clone();
        let mut states = vec![live.clone()];
        for (action, address) in events.iter().rev() {
            match action {
                Action::Alloc => drop(live.remove(address)),
                Action::FreeCompleted => drop(live.insert(*address, true)),
                Action::FreeRequested | Action::Free => drop(live.insert(*address, false)),
                _ => {}
            }
            states.push(live.clone());
        }
        states.reverse();
        states
    }

    fn event() -> impl Strategy<Value = (Action, u64)> {
        let action = prop_oneof![
            3 => Just(Action::Alloc),
            2 => Just(Action::FreeRequested),
            2 => Just(Action::FreeCompleted),
            1 => Just(Action::Free),
            1 => Just(Action::Snapshot),
        ];
        (action, 1..6u64)
    }

    proptest! {
        #[test]
        fn live_blocks_match_undone_events(
            events in prop::collection::vec(event(), 0..40),
            held in prop::collection::btree_map(1..6u64, any::<bool>(), 0..5),
        ) {
            let snapshot = snapshot(&events, &held);
            let BlockLifetimes { lifetimes, of_event } = find_lifetimes(&trace(&snapshot), DEVICE);
            prop_assert!(lifetimes.is_sorted_by_key(|life| life.start));
            for (state, event) in undo_all(&events, &held).iter().zip(-1..) {
                let live = lifetimes.iter().filter(|life| {
                    life.start.map_or(-1, i64::from) <= event && life.end.is_none_or(|end| event < i64::from(end))
                });
                let mut seen = BTreeMap::new();
                for life in live {
                    let pending = life.pending_from().is_some_and(|from| from <= event);
                    prop_assert!(seen.insert(life.address, pending).is_none(), "two blocks at one address");
                }
                prop_assert_eq!(&seen, state, "after event {}", event);
            }
            for (event, &number) in of_event.iter().enumerate().filter(|(_, number)| **number != NONE) {
                prop_assert_eq!(lifetimes[number as usize].address, events[event].1);
            }
        }
    }

    #[test]
    fn block_has_size_and_flags_of_its_source() {
        use Action::{Alloc, FreeCompleted, FreeRequested};
        let events = [
            (FreeRequested, 1),
            (FreeCompleted, 1),
            (Alloc, 2),
            (Alloc, 3),
            (FreeRequested, 3),
            (FreeCompleted, 3),
        ];
        let snapshot = snapshot(&events, &BTreeMap::from([(2, false), (9, false)]));
        let BlockLifetimes { lifetimes, of_event } = find_lifetimes(&trace(&snapshot), DEVICE);
        let actual: Vec<_> = lifetimes
            .iter()
            .map(|life| (life.address, life.bytes, life.flags, life.start, life.end))
            .collect();
        assert_eq!(
            actual,
            [
                (9, 9, ONLY_AT_END, None, None),
                (1, 101, ONLY_FREED, None, Some(1)),
                (2, 102, 0, Some(2), None),
                (3, 103, 0, Some(3), Some(5)),
            ]
        );
        assert_eq!(of_event, [1, 1, 2, 3, 3, 3]);
        assert_eq!(lifetimes[3].pending_from(), Some(4));
    }
}
