//! The CUDA driver readings as stored in PyTorch's files. `allocator_settings.memtrack.driver` is a list of
//! readings, each of which is a list of `[name, value]` with the names of [`DriverReading`]'s fields.

use super::settings::{memtrack_part, read_record, record_to_value};
use super::{Key, StringInterner};
use memtrack_model::snapshot::{DriverReading, Snapshot, Value};

/// Returns the readings as a value, or `None` if there are none.
pub(super) fn readings_to_value(readings: &[DriverReading], strings: &mut StringInterner) -> Option<Value> {
    let readings: Vec<Value> =
        readings.iter().map(|reading| record_to_value(reading, u64::MAX, strings)).collect();
    (!readings.is_empty()).then(|| Value::List(readings.into()))
}

/// Restores the readings in a snapshot that was written by memtrack.
pub(super) fn restore(snapshot: &mut Snapshot) {
    let Some(pytorch) = snapshot.pytorch.as_deref() else { return };
    let strings = &snapshot.strings;
    let setting =
        pytorch.root_value(Key::AllocatorSettings).and_then(|all| memtrack_part(all, "driver", strings));
    let Some(Value::List(readings)) = setting else { return };
    let read =
        readings.iter().take(DriverReading::MAX_COUNT).filter_map(|reading| read_record(reading, strings));
    let read = read.filter(|reading: &DriverReading| reading.device.is_accelerator());
    snapshot.driver = read.collect();
}
