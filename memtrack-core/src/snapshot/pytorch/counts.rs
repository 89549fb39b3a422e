//! What a recorder knew of its devices as wholes, in PyTorch's files: which of them is the heap of the process, how that
//! was sampled, and the exact counts. `allocator_settings.memtrack.heap` is the heap's number, `.sampling` a record, and
//! `.counts` a list of records with the names of [`DeviceStatistics`]' fields; pinned memory is device 65535.

use super::convert::LARGEST;
use super::settings::{of_memtrack, read_record, record};
use super::{Key, StringInterner};
use crate::event::DeviceId;
use crate::snapshot::{DeviceStatistics, Meta, Snapshot, Value};
use serde::{Deserialize, Serialize};

/// How a heap was sampled.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Sampling {
    threshold_bytes: u64,
    mean_bytes: u64,
}

/// The heap's number.
pub(super) fn heap(heap: Option<DeviceId>) -> Option<Value> {
    heap.map(|heap| Value::integer(heap.0.into()))
}

/// How the heap was sampled; none where every block was recorded.
pub(super) fn sampling(meta: &Meta, strings: &mut StringInterner) -> Option<Value> {
    let sampling = Sampling {
        threshold_bytes: meta.sample_threshold_bytes.min(LARGEST),
        mean_bytes: meta.sample_mean_bytes.min(LARGEST),
    };
    (sampling.threshold_bytes > 0).then(|| record(&sampling, strings))
}

/// The counts, by the devices' numbers in the file; none where nobody counted.
pub(super) fn counts(devices: &[DeviceStatistics], strings: &mut StringInterner) -> Option<Value> {
    let counted = devices.iter().filter(|row| row.counted);
    let small = |row: &DeviceStatistics| DeviceStatistics {
        recorded: row.recorded.min(LARGEST),
        dropped: row.dropped.min(LARGEST),
        allocated_bytes: row.allocated_bytes.min(LARGEST),
        freed_bytes: row.freed_bytes.min(LARGEST),
        allocations: row.allocations.min(LARGEST),
        frees: row.frees.min(LARGEST),
        reserved_bytes: row.reserved_bytes.min(LARGEST),
        ..*row
    };
    let counts: Vec<Value> = counted.map(|row| record(&small(row), strings)).collect();
    (!counts.is_empty()).then(|| Value::List(counts.into()))
}

/// Gives a snapshot that memtrack wrote all of that again.
pub(super) fn restore(snapshot: &mut Snapshot) {
    let Some(pytorch) = snapshot.pytorch.as_deref_mut() else { return };
    let strings = &snapshot.strings;
    let Some(settings) = pytorch.root_value(Key::AllocatorSettings) else { return };
    let part = |name| of_memtrack(settings, name, strings);
    let sampling = part("sampling").and_then(|value| read_record::<Sampling>(value, strings));
    if let Some(sampling) = sampling {
        snapshot.meta.sample_threshold_bytes = sampling.threshold_bytes;
        snapshot.meta.sample_mean_bytes = sampling.mean_bytes;
    }
    if let Some(Value::List(counts)) = part("counts") {
        for counts in counts.iter().take(snapshot.devices.len()) {
            let Some(counts) = read_record::<DeviceStatistics>(counts, strings) else { continue };
            if let Some(row) = snapshot.devices.iter_mut().find(|row| row.device == counts.device) {
                *row = counts;
            }
        }
    }
    let heap = part("heap").and_then(Value::as_i128).and_then(|heap| u16::try_from(heap).ok());
    if let Some(heap) = heap.filter(|&heap| usize::from(heap) < pytorch.traces.len()) {
        pytorch.heap = Some(DeviceId(heap));
    }
}
