//! The content of PyTorch's snapshots that recordings do not have. [`PyTorch`] explains where each part is stored. The
//! readers and writers for the files are in packages that depend on this one.

mod events;
mod form;
mod key;
mod records;
mod samples;
mod segment_info;

pub use events::value_at as event_value_at;
pub use form::PytorchSnapshot;
pub use key::{Key, Kind, action_of, id_of, vocabulary};
pub use records::{ExactValue, Records, Shape, known};
pub use samples::{Sample, Samples};
pub use segment_info::{BlockInfo, BlockState, MempoolId, PoolKind, SegmentInfo};

use super::{Snapshot, StringTable, Value};
use crate::event::{DeviceId, StackId};
use std::ops::Range;

/// The content of a PyTorch file beyond what every snapshot has.
///
/// **Representation.** A file is a dictionary of lists of dictionaries. Each kind of dictionary is one table of
/// [`Records`], which keeps every key and the order of the keys: [`Self::segments`], [`Self::blocks`],
/// [`Self::events`], [`Self::annotations`] and, in the snapshot itself, the frames ([`super::FrameTable`]). Lists are
/// ranges of rows. Root keys without a table, such as the settings, are [`Value`]s.
///
/// The parts that every snapshot has are filled from these tables, so that reports need not use them. Row `n` of
/// [`Self::events`] is row `n` of [`Snapshot::events`]. Its time is in the snapshot's ticks, which are microseconds; an
/// event without a time has its row number there. `device_free` is the address of an [`Oom`] event if the event has no
/// other address (see [`Snapshot::oom_free_bytes`]). The segments and the active blocks are in [`Snapshot::segments`]
/// and [`Snapshot::blocks`]. Host memory is [`DeviceId::HOST`]. Lists of frames are [`Snapshot::named`] stacks,
/// interned by content. An event or block without the key `frames` has the empty stack, and [`Records::has`]
/// distinguishes it from one whose list is empty. The scopes of events that memtrack recorded are restored.
///
/// [`Oom`]: crate::event::Action::Oom
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PyTorch {
    /// The root's keys, in order, with their values.
    pub root: Vec<(Value, Part)>,
    /// Whether the root is just the list of segments (`torch.cuda.memory_snapshot()`).
    pub list_only: bool,
    /// Whether the devices' segments are in a tuple. PyTorch writes a list.
    pub segments_are_a_tuple: bool,
    /// Whether the traces are in a tuple. PyTorch writes a list.
    pub traces_are_a_tuple: bool,
    /// The events of each device, as rows of [`Snapshot::events`]. The index in the list is the device's ordinal.
    pub traces: Vec<Range<usize>>,
    /// The events of pinned host memory.
    pub host_trace: Range<usize>,
    /// The device number of a recording's host heap. Only files that memtrack wrote contain it.
    pub heap: Option<DeviceId>,
    /// The device number of a recording's mapped memory. Only files that memtrack wrote contain it.
    pub mapped: Option<DeviceId>,
    /// The start of the recording, in microseconds since the Unix epoch. Only files that memtrack wrote contain it.
    pub start_us: Option<u64>,
    /// The blocks that represent others. Only files that memtrack wrote contain any.
    pub samples: Samples,
    /// The content of events that only PyTorch records, by the rows of [`Snapshot::events`].
    pub events: Records,
    /// The segments, with those of devices first. [`Key::Blocks`] gives the rows of their blocks.
    pub segments: Records,
    /// The number of segments that belong to devices; the rest are pinned host memory.
    pub device_segments: usize,
    /// The blocks. If the file has no block addresses, the column contains addresses derived from the segment and the
    /// sizes.
    pub blocks: Records,
    /// The ranges that the profiler annotated.
    pub annotations: Records,
}

/// The value of a root key.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// The segments of devices.
    Segments,
    /// The segments of pinned host memory.
    HostSegments,
    /// The traces of devices.
    DeviceTraces,
    /// The trace of pinned host memory.
    HostTraces,
    /// The annotations.
    Annotations,
    /// A value without a table.
    Value(Value),
}

/// An allocation that a block serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tenant {
    /// The requested bytes, if they are known.
    pub requested_bytes: Option<u64>,
    /// The stack of the request.
    pub stack: StackId,
}

impl PyTorch {
    /// Returns the value of a root key that has no table, such as [`Key::AllocatorSettings`].
    pub fn root_value(&self, key: Key) -> Option<&Value> {
        let under = |(name, part): &(Value, Part)| known(name) == Some(key) && matches!(part, Part::Value(_));
        match self.root.iter().find(|entry| under(entry)) {
            Some((_, Part::Value(value))) => Some(value),
            _ => None,
        }
    }

    /// Returns the tenant of a block in use, if the file lists the block's tenants, as PyTorch did up to 2.0. The list
    /// starts with the allocation that is live, so this is the first one.
    pub fn tenant(&self, strings: &StringTable, block: usize) -> Option<Tenant> {
        if self.blocks.has(block, Key::Frames) {
            return None;
        }
        let Value::List(tenants) = self.blocks.exact_under(block, Key::History)? else { return None };
        let Value::Dict(entries) = tenants.first()? else { return None };
        let mut tenant = Tenant::default();
        for (key, value) in entries.iter() {
            let Value::Str(key) = key else { continue };
            match (strings.bytes(*key), value) {
                (b"real_size", value) => {
                    tenant.requested_bytes = value.as_i128().and_then(|bytes| u64::try_from(bytes).ok());
                }
                (b"frames", Value::Stack(frames)) => tenant.stack = *frames,
                _ => {}
            }
        }
        Some(tenant)
    }

    /// Returns the requested bytes of a block in use, from its tenant or else from the block itself. Returns `None` if
    /// neither contains them.
    pub fn requested_bytes(&self, strings: &StringTable, block: usize) -> Option<u64> {
        let of_tenant = self.tenant(strings, block).and_then(|tenant| tenant.requested_bytes);
        let blocks = &self.blocks;
        let of_block =
            || blocks.has(block, Key::RequestedSize).then(|| blocks.number(block, Key::RequestedSize));
        of_tenant.or_else(of_block)
    }

    /// Returns whether the root has this key.
    pub fn has(&self, key: Key) -> bool {
        self.root.iter().any(|(name, _)| known(name) == Some(key))
    }
}

impl Snapshot {
    /// Returns the pool of the event in `row`, which is the default pool for a recording and if the file does not name it.
    pub fn event_pool(&self, row: usize) -> MempoolId {
        self.pytorch.as_deref().map_or((0, 0), |pytorch| pytorch.events.pool(row, Key::PoolId))
    }

    /// Returns the exact value under `key` of a PyTorch event, or `None` if the event has no such key.
    pub fn event_value(&self, row: usize, key: Key) -> Option<Value> {
        let details = &self.pytorch.as_deref()?.events;
        if !details.has(row, key) {
            return None;
        }
        let place = details.shape_of(row).keys.iter().position(|name| known(name) == Some(key))?;
        events::value_at(&self.events, details, row, place)
    }

    /// Returns the device's free bytes when memory ran out, at an [`Oom`](crate::event::Action::Oom) event. In
    /// a PyTorch file, such an event may also have an address, which is meaningless. Returns `None` if the file does
    /// not contain the number, and for a heap, whose free memory is unknown.
    ///
    /// # Panics
    /// Panics when there is no such event.
    pub fn oom_free_bytes(&self, row: usize) -> Option<u64> {
        if self.is_heap(self.events.device[row]) {
            return None;
        }
        let Some(pytorch) = self.pytorch.as_deref() else { return Some(self.events.address[row]) };
        let details = &pytorch.events;
        let is_known = details.has(row, Key::DeviceFree)
            && details.exact_under(row, Key::DeviceFree).is_none_or(|value| !matches!(value, Value::None));
        is_known.then(|| match details.has(row, Key::Addr) {
            true => details.number(row, Key::DeviceFree),
            false => self.events.address[row],
        })
    }
}
