//! The lines of a workload's result. They refer to locations that do not depend on addresses: the number of a segment in
//! creation order, and an offset.

use crate::{AllocatorSettings, SimulatedMemory};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// One line of a result. Fields that do not apply are omitted.
#[derive(Debug, Default, Serialize)]
pub(super) struct ResultLine<'a> {
    pub(super) i: usize,
    pub(super) op: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seg: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) off: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) null: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) noop: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) oom: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pool_id: Option<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stats: Option<Vec<BTreeMap<String, i64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mem_get_info: Option<Vec<(u64, u64)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Vec<Summary>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) segments: Option<Vec<SegmentLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allocator_settings: Option<AllocatorSettings>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<EventLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace_lengths: Option<Vec<u64>>,
}

/// The texts that `memory_summary` returns.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) full: String,
    pub(super) abbreviated: String,
}

/// A segment, or consecutive mapped pages of an expandable range.
#[derive(Debug, Serialize)]
pub(super) struct SegmentLine {
    pub(super) device: u16,
    pub(super) seg: u64,
    pub(super) off: u64,
    pub(super) total_size: u64,
    pub(super) allocated_size: u64,
    pub(super) active_size: u64,
    pub(super) requested_size: u64,
    pub(super) stream: u64,
    pub(super) segment_type: &'static str,
    pub(super) segment_pool_id: (u64, u64),
    pub(super) is_expandable: bool,
    /// The offset, size, requested size, and state of each block.
    pub(super) blocks: Vec<(u64, u64, u64, &'static str)>,
}

/// An event: its device, action, segment, offset, size, stream and pool.
#[derive(Debug, Serialize)]
pub(super) struct EventLine(
    pub(super) u16,
    pub(super) &'static str,
    pub(super) Option<u64>,
    pub(super) Option<u64>,
    pub(super) u64,
    pub(super) u64,
    #[serde(serialize_with = "serialize_pool")] pub(super) (u64, u64),
);

/// Serializes the id of a pool as `0` for the default pool, or else as `"a_b"`.
fn serialize_pool<S: Serializer>(pool: &(u64, u64), serializer: S) -> Result<S::Ok, S::Error> {
    match pool {
        (0, 0) => serializer.serialize_u8(0),
        (first, second) => serializer.serialize_str(&format!("{first}_{second}")),
    }
}

/// The numbers of a device's segments, by address. An expandable range counts as one segment, which is created with
/// its first page. The simulated device never reuses an address, so segments are never removed.
#[derive(Debug, Default)]
pub(super) struct SegmentNumbers {
    ordinals: BTreeMap<u64, u64>,
}

impl SegmentNumbers {
    /// Adds a segment under the next number, unless it was added before.
    pub(super) fn add(&mut self, base: u64) {
        let next = self.ordinals.len() as u64;
        self.ordinals.entry(base).or_insert(next);
    }

    /// Adds the expandable range that contains a mapped page, unless it was added before.
    pub(super) fn add_range(&mut self, address: u64, memory: &SimulatedMemory) {
        self.add(memory.range_of(address).unwrap_or(address));
    }

    /// Returns the number of the segment that contains an address, and the offset within the segment, or (0, 0) if the
    /// segment is unknown.
    pub(super) fn find(&self, address: u64) -> (u64, u64) {
        let found = self.ordinals.range(..=address).next_back();
        found.map_or((0, 0), |(base, ordinal)| (*ordinal, address - base))
    }
}
