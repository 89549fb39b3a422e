//! Extracts the requests for one device from its events.

use super::releases::{Release, Releases};
use crate::MempoolId;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memtrack_blocks::reserved::ReservedPeak;
use memtrack_model::event::{Action, DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::{Snapshot, Value};
use std::collections::BTreeMap;

/// The caching allocator requests memory from the driver in multiples of this size.
const SEGMENT_UNIT: u64 = 2 << 20;

/// One request by a program. A block is identified by its slot, which is the number of its allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// An allocation.
    Alloc { slot: u32, size: u64, stream: StreamId, pool: u32 },
    /// A free.
    Free { slot: u32 },
    /// A free while other streams still use the block.
    FreePending { slot: u32 },
    /// The streams that used the freed block are done with it.
    Complete { slot: u32 },
    /// A call to `empty_cache`.
    EmptyCache,
    /// The program dropped a pool, which receives no further requests.
    DropPool { pool: u32 },
    /// An allocation that failed in the recorded program.
    Failed { size: u64, stream: StreamId, pool: u32 },
}

/// A program's requests to one device, in order.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    pub(super) list: Vec<Request>,
    /// The ids of pools, by number. Number 0 is the default pool.
    pub(super) pools: Vec<MempoolId>,
    pub(super) slots: u32,
    /// The device's name.
    pub(super) device_name: String,
    /// The number of blocks that were live before the first event, and their bytes. These blocks are allocated first.
    pub existing: (u64, u64),
    /// The number of bytes on the device that this program could use; `None` if memory never ran out.
    pub capacity: Option<u64>,
    /// The settings stored in the snapshot; `None` for a recording.
    pub settings: Option<String>,
    /// The maximum number of bytes in segments, if the trace contains segments.
    pub recorded_peak: Option<u64>,
    /// Whether the requests are driver calls because there was no allocator between the program and the driver.
    pub driver_calls: bool,
}

impl Requests {
    /// Extracts the requests for `device` from a snapshot. A trace does not contain calls that empty the cache,
    /// so releases that no failing allocation explains count as such calls. `capacity` is the number of bytes on
    /// the device that the program could use; if it is known, it helps to distinguish these cases.
    pub fn of(snapshot: &Snapshot, device: DeviceId, capacity: Option<u64>) -> Self {
        let rows: Vec<usize> = snapshot.events.rows_of(device).collect();
        let settings = settings_of(snapshot);
        let releases = Releases::of(snapshot, device, &rows, capacity, settings.as_deref());
        let mut reader = Reader {
            snapshot,
            requests: Self {
                pools: vec![(0, 0)],
                device_name: snapshot.device_name(device),
                capacity: releases.capacity,
                driver_calls: requests_from_driver(snapshot, &rows, settings.is_some()),
                settings,
                recorded_peak: Some(ReservedPeak::of(snapshot, device).bytes).filter(|&bytes| bytes > 0),
                ..Self::default()
            },
            live: HashMap::default(),
            pending: HashMap::default(),
            completed: Vec::new(),
            releases_memory: false,
        };
        reader.add_existing_blocks(device, &rows);
        reader.add_events(&rows, &releases);
        reader.requests
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Returns whether the requests went directly to the driver. If so, each block is a separate segment that is
/// released when the block is freed, which no caching allocator does. If nothing is freed, as happens when the
/// driver is recorded below a caching allocator, the requests count as requests to a caching allocator only if
/// the file is a PyTorch snapshot (it has `settings`) and the segments have PyTorch's sizes.
fn requests_from_driver(snapshot: &Snapshot, rows: &[usize], settings: bool) -> bool {
    let events = &snapshot.events;
    let mut segments: HashMap<u64, u64, FixedState> = HashMap::default();
    let (mut blocks, mut frees, mut released, mut has_unaligned_size) = (0, 0, 0, false);
    for &row in rows {
        let (address, size) = (events.address[row], events.size_bytes[row]);
        match events.action[row] {
            Action::SegmentAlloc => {
                segments.insert(address, size);
                has_unaligned_size |= size % SEGMENT_UNIT != 0;
            }
            Action::SegmentFree => released += 1,
            Action::Alloc if segments.get(&address) != Some(&size) => return false,
            Action::Alloc => blocks += 1,
            Action::Free | Action::FreeCompleted => frees += 1,
            Action::SegmentMap | Action::SegmentUnmap => return false,
            _ => {}
        }
    }
    blocks > 0 && released >= frees && (frees > 0 || has_unaligned_size || !settings)
}

/// Returns the settings string stored in the snapshot.
fn settings_of(snapshot: &Snapshot) -> Option<String> {
    let settings = snapshot.pytorch.as_deref()?.root_value(Key::AllocatorSettings);
    let Value::Dict(entries) = settings? else { return None };
    let text_of = |value: &Value| match value {
        Value::Str(id) => Some(snapshot.strings.get(*id).into_owned()),
        _ => None,
    };
    let named = entries.iter().find(|(key, _)| text_of(key).as_deref() == Some("PYTORCH_CUDA_ALLOC_CONF"));
    named.and_then(|(_, value)| text_of(value))
}

struct Reader<'a> {
    snapshot: &'a Snapshot,
    requests: Requests,
    /// The slots of live blocks, by address.
    live: HashMap<u64, u32, FixedState>,
    /// The slots of blocks that were freed while other streams used them, by address.
    pending: HashMap<u64, u32, FixedState>,
    /// The slots of blocks whose free has completed but has not been added to the list yet.
    completed: Vec<u32>,
    /// Whether the frees in `completed` were completed because the next allocation had to release memory.
    releases_memory: bool,
}

impl Reader<'_> {
    /// Adds allocations for the blocks that existed before the first event. These are the blocks that are freed
    /// or live without an allocation in the trace.
    fn add_existing_blocks(&mut self, device: DeviceId, rows: &[usize]) {
        let events = &self.snapshot.events;
        let mut first: HashMap<u64, (), FixedState> = HashMap::default();
        let mut found: BTreeMap<u64, (u64, StreamId, MempoolId)> = BTreeMap::new();
        for &row in rows {
            let action = events.action[row];
            let frees = matches!(action, Action::Free | Action::FreeRequested | Action::FreeCompleted);
            if !frees && action != Action::Alloc {
                continue;
            }
            let address = events.address[row];
            if first.insert(address, ()).is_none() && frees {
                let pool = self.snapshot.event_pool(row);
                found.insert(address, (events.size_bytes[row], events.stream[row], pool));
            }
        }
        for block in self.snapshot.blocks.iter().filter(|block| block.device == device) {
            if !first.contains_key(&block.address) {
                found.insert(block.address, (block.size_bytes, block.stream, (0, 0)));
            }
        }
        for (address, (size, stream, pool)) in found {
            self.requests.existing.0 += 1;
            self.requests.existing.1 += size;
            self.add_alloc(address, size, stream, pool);
        }
    }

    fn add_events(&mut self, rows: &[usize], releases: &Releases) {
        let events = &self.snapshot.events;
        for (index, &row) in rows.iter().enumerate() {
            let (address, size, stream) = (events.address[row], events.size_bytes[row], events.stream[row]);
            let pool = self.snapshot.event_pool(row);
            match events.action[row] {
                Action::Alloc => self.add_alloc(address, size, stream, pool),
                Action::Oom => {
                    let pool = self.pool_number(pool);
                    self.push_alloc(Request::Failed { size, stream, pool });
                }
                Action::Free => self.add_free(address),
                Action::FreeRequested => {
                    let next = rows.get(index + 1);
                    let at_once = next.is_some_and(|&next| {
                        events.action[next] == Action::FreeCompleted && events.address[next] == address
                    });
                    if at_once { self.add_free(address) } else { self.add_pending_free(address) }
                }
                Action::FreeCompleted => match self.pending.remove(&address) {
                    Some(slot) => self.completed.push(slot),
                    // The free was requested just before this, or before the trace started.
                    None => self.add_free(address),
                },
                _ => {}
            }
            for release in releases.releases_at(index) {
                match release {
                    Release::ForRequest => self.releases_memory = true,
                    Release::EmptyCache => self.push(Request::EmptyCache),
                    Release::Pool(id) => {
                        let pool = self.pool_number(*id);
                        self.push(Request::DropPool { pool });
                    }
                }
            }
        }
        self.flush();
    }

    fn add_alloc(&mut self, address: u64, size: u64, stream: StreamId, pool: MempoolId) {
        // If a block is still live at this address, its free was not recorded.
        self.add_free(address);
        let slot = self.requests.slots;
        self.requests.slots += 1;
        let pool = self.pool_number(pool);
        self.push_alloc(Request::Alloc { slot, size, stream, pool });
        self.live.insert(address, slot);
    }

    fn add_free(&mut self, address: u64) {
        if let Some(slot) = self.live.remove(&address) {
            self.push(Request::Free { slot });
        }
    }

    fn add_pending_free(&mut self, address: u64) {
        if let Some(slot) = self.live.remove(&address) {
            self.push(Request::FreePending { slot });
            self.pending.insert(address, slot);
        }
    }

    /// Adds an allocation. If it had to release memory first, the completed frees are added after it, because
    /// they completed only when the allocation waited for the streams.
    fn push_alloc(&mut self, request: Request) {
        if !std::mem::take(&mut self.releases_memory) {
            self.flush();
        }
        self.requests.list.push(request);
        self.flush();
    }

    fn push(&mut self, request: Request) {
        self.flush();
        self.requests.list.push(request);
    }

    /// Adds the completed frees to the list.
    fn flush(&mut self) {
        let completed = self.completed.drain(..);
        self.requests.list.extend(completed.map(|slot| Request::Complete { slot }));
    }

    /// Returns the number of a pool, adding the pool if it is new.
    fn pool_number(&mut self, id: MempoolId) -> u32 {
        let pools = &mut self.requests.pools;
        let found = pools.iter().rposition(|known| *known == id);
        found.unwrap_or_else(|| {
            pools.push(id);
            pools.len() - 1
        }) as u32
    }
}
