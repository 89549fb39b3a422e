//! Stores the exact sums of scopes in PyTorch's files: `allocator_settings.memtrack.scope_sums = [time in microseconds,
//! folded, [[device, path, bytes, blocks], …]]`, using the device numbers in the file and the paths of scopes. Scopes
//! with the same path share their sums, because their blocks cannot be distinguished either.

use super::Key;
use super::settings::memtrack_part;
use memtrack_model::event::{DeviceId, ScopeId};
use memtrack_model::snapshot::{ScopeSum, ScopeSums, Snapshot, StringId, Value};
use std::collections::{BTreeMap, HashMap};

/// Returns the sums as a value, given rows whose scopes are identified by their paths.
pub(super) fn sums_to_value(
    time_us: u64,
    folded: u64,
    rows: impl Iterator<Item = (DeviceId, StringId, [u64; 2])>,
) -> Value {
    let number = |number: u64| Value::integer(number.min(super::convert::MAX_WRITTEN_INTEGER).into());
    let row = |(device, path, [bytes, blocks]): (DeviceId, StringId, [u64; 2])| {
        let parts = [number(device.0.into()), Value::Str(path), number(bytes), number(blocks)];
        Value::List(parts.into_iter().collect())
    };
    let rows = Value::List(rows.map(row).collect());
    Value::List([number(time_us), number(folded), rows].into_iter().collect())
}

/// Restores the sums in a snapshot that was written by memtrack. `paths` gives its scopes.
pub(super) fn restore(snapshot: &mut Snapshot, paths: &HashMap<StringId, ScopeId>) {
    let Some(pytorch) = snapshot.pytorch.as_deref() else { return };
    let settings = pytorch.root_value(Key::AllocatorSettings);
    let setting = settings.and_then(|settings| memtrack_part(settings, "scope_sums", &snapshot.strings));
    snapshot.scope_sums = setting.and_then(|setting| read_sums(setting, paths));
}

fn read_sums(value: &Value, paths: &HashMap<StringId, ScopeId>) -> Option<ScopeSums> {
    let Value::List(parts) = value else { return None };
    let [ticks, folded, Value::List(rows)] = &parts[..] else { return None };
    let number = |value: &Value| u64::try_from(value.as_i128()?).ok();
    let mut sums: BTreeMap<(DeviceId, ScopeId), [u64; 2]> = BTreeMap::new();
    for row in rows.iter() {
        let Value::List(row) = row else { return None };
        let [device, Value::Str(path), bytes, blocks] = &row[..] else { return None };
        let device = DeviceId(u16::try_from(number(device)?).ok()?);
        let scope = paths.get(path).copied().unwrap_or(ScopeId::NONE);
        let sum = sums.entry((device, scope)).or_default();
        *sum = [sum[0].saturating_add(number(bytes)?), sum[1].saturating_add(number(blocks)?)];
    }
    let sums = sums.into_iter().map(|((device, scope), [allocated_bytes, allocations])| ScopeSum {
        device,
        scope,
        allocated_bytes,
        allocations,
    });
    let rows = sums.collect();
    Some(ScopeSums { ticks: number(ticks)?, folded: number(folded)?, rows })
}
