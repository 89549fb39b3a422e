//! Replays a snapshot's events of one device in merge order, as a strict allocator would. This succeeds only if the recorder
//! keeps its ordering guarantees.

use memtrack_core::event::{Action, DeviceId, Event, EventFlags, ThreadId};
use memtrack_core::snapshot::{DeviceStatistics, Snapshot};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The result of [`replay`]: sums over all events, and the blocks that are live at the end.
#[derive(Debug, Default)]
pub struct Replay {
    /// By address, the allocation of each block that is live at the end.
    pub live: BTreeMap<u64, Event>,
    /// The sum of the bytes of all allocations.
    pub allocated_bytes: u64,
    /// The number of allocations.
    pub allocations: u64,
    /// The sum of the bytes of all frees, including frees of blocks that were allocated before the recording began.
    pub freed_bytes: u64,
    /// The number of freed blocks.
    pub frees: u64,
    /// The number of frees of blocks that were allocated before the recording began.
    pub unknown_frees: u64,
}

/// Replays all events of `device`.
///
/// # Panics
/// When a free precedes its allocation, two live blocks share an address, a free's size differs from its block's, ticks
/// decrease, or two events of one thread or one address share a tick.
pub fn replay(snapshot: &Snapshot, device: DeviceId) -> Replay {
    let mut replay = Replay::default();
    let mut newest = 0;
    let mut newest_of: HashMap<(bool, u64), u64> = HashMap::new();
    for row in snapshot.events.rows_of(device) {
        let event = snapshot.events.get(row);
        assert!(event.ticks >= newest, "row {row}: ticks decrease in merge order");
        newest = event.ticks;
        for key in [(false, u64::from(event.thread.0)), (true, event.address)] {
            // The unknown thread may represent several threads.
            if key == (false, u64::from(ThreadId::NONE.0)) {
                continue;
            }
            let before = newest_of.insert(key, event.ticks);
            assert!(before.is_none_or(|before| before < event.ticks), "row {row}: a tick is used twice");
        }
        replay.play(row, &event);
    }
    replay
}

impl Replay {
    fn play(&mut self, row: usize, event: &Event) {
        match event.action {
            Action::Alloc => {
                let other = self.live.insert(event.address, *event);
                assert!(
                    other.is_none(),
                    "row {row}: two live blocks at {:#x}: {other:?}, {event:?}",
                    event.address
                );
                self.allocated_bytes += event.size_bytes;
                self.allocations += 1;
            }
            Action::Free => {
                self.freed_bytes += event.size_bytes;
                self.frees += 1;
                match self.live.remove(&event.address) {
                    Some(alloc) => {
                        assert_eq!(
                            alloc.size_bytes, event.size_bytes,
                            "row {row}: a free has its block's size"
                        );
                        assert!(!event.flags.contains(EventFlags::UNKNOWN_BLOCK), "row {row}");
                    }
                    None => {
                        assert!(
                            event.flags.contains(EventFlags::UNKNOWN_BLOCK),
                            "row {row}: a free before its allocation: {event:?}"
                        );
                        self.unknown_frees += 1;
                    }
                }
            }
            _ => {}
        }
    }

    /// Asserts that the snapshot's blocks are exactly those that its events leave live.
    ///
    /// # Panics
    /// When they differ.
    pub fn assert_blocks_of(&self, snapshot: &Snapshot, device: DeviceId) {
        let blocks: Vec<_> = snapshot.blocks.iter().filter(|block| block.device == device).collect();
        let listed: BTreeSet<_> =
            blocks.iter().map(|b| (b.address, b.size_bytes, b.ticks, b.stack, b.scope)).collect();
        let replayed: BTreeSet<_> =
            self.live.values().map(|e| (e.address, e.size_bytes, e.ticks, e.stack, e.scope)).collect();
        let extra: Vec<_> = listed.difference(&replayed).take(3).collect();
        let missing: Vec<_> = replayed.difference(&listed).take(3).collect();
        assert!(
            listed == replayed && listed.len() == blocks.len(),
            "{} blocks, {} live by events; extra {extra:x?}, missing {missing:x?}",
            listed.len(),
            replayed.len()
        );
    }
}

/// Returns the counts of `device`: all 0 if the snapshot has no row for it.
pub fn statistics(snapshot: &Snapshot, device: DeviceId) -> DeviceStatistics {
    let found = snapshot.devices.iter().find(|counts| counts.device == device);
    found.copied().unwrap_or(DeviceStatistics::of(device))
}
