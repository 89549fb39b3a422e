//! Stores scopes in PyTorch's files. An event's scope is a path in its `user_metadata`, which the viewer shows. The
//! parts cannot be derived from the path, because a module's name may contain dots and an operator may be called
//! `forward`. They are therefore stored once per path in the settings, which only memtrack reads:
//! `allocator_settings.memtrack.scopes = [[path, [[kind, name], …]], …]`, outermost first. These are lists because a
//! dictionary with a key such as `action` would be read as an event.
//!
//! The exact sums of scopes are stored as `allocator_settings.memtrack.scope_sums = [time in microseconds, folded, [[device,
//! path, bytes, blocks], …]]`, using the device numbers in the file and the paths of scopes. Scopes with the same path
//! share their sums, because their blocks cannot be distinguished either.
//!
//! **What if two scopes have the same path?** Only the parts of the first one are stored.

use super::samples::active_blocks;
use super::settings::memtrack_part;
use super::{Key, PyTorch, StringInterner};
use memtrack_model::ScopeStep;
use memtrack_model::event::{DeviceId, ScopeId};
use memtrack_model::snapshot::{
    Scope, ScopeKind, ScopeSum, ScopeSums, ScopeTable, Snapshot, StringId, StringTable, Value,
};
use std::collections::{BTreeMap, HashMap};

/// The maximum nesting depth of scopes that is read.
const MAX_DEPTH: usize = 256;
/// The maximum total size of scope names that is read. It is limited because a file may refer to the same huge name any
/// number of times.
const MAX_NAME_BYTES: usize = 64 << 20;

/// Returns the parts of each path as a value, or `None` if there are no paths.
pub(super) fn paths_to_value<'a>(
    paths: impl Iterator<Item = (StringId, Vec<ScopeStep<'a>>)>,
    strings: &mut StringInterner,
) -> Option<Value> {
    let step = |step: &ScopeStep<'_>, strings: &mut StringInterner| {
        let parts = [step.kind.name(), step.name].map(|text| Value::Str(strings.intern(text.as_bytes())));
        Value::List(parts.into_iter().collect())
    };
    let scopes: Vec<Value> = paths
        .map(|(path, steps)| {
            let steps = steps.iter().map(|part| step(part, strings)).collect();
            Value::List([Value::Str(path), Value::List(steps)].into())
        })
        .collect();
    (!scopes.is_empty()).then(|| Value::List(scopes.into()))
}

/// Restores the scopes of the events and blocks, and the sums of the scopes, in a snapshot that was written by
/// memtrack.
pub(super) fn restore(snapshot: &mut Snapshot) {
    let Some(pytorch) = snapshot.pytorch.as_deref() else { return };
    let (scopes, paths) = scopes_of(pytorch, &snapshot.strings);
    restore_sums(snapshot, &paths);
    let Some(pytorch) = snapshot.pytorch.as_deref() else { return };
    if paths.is_empty() {
        return;
    }
    for row in 0..pytorch.events.len() {
        let text = pytorch.events.text(row, Key::UserMetadata);
        if let Some(&scope) = paths.get(&pytorch.samples.path(text)) {
            snapshot.events.scope[row] = scope;
        }
    }
    let texts: Vec<StringId> = active_blocks(pytorch, &snapshot.strings)
        .map(|row| pytorch.samples.path(pytorch.blocks.text(row, Key::UserMetadata)))
        .collect();
    for (block, text) in snapshot.blocks.iter_mut().zip(texts) {
        block.scope = paths.get(&text).copied().unwrap_or(block.scope);
    }
    snapshot.scopes = scopes;
}

/// Returns the scopes and the scope of each path.
fn scopes_of(pytorch: &PyTorch, strings: &StringTable) -> (ScopeTable, HashMap<StringId, ScopeId>) {
    let (mut table, mut paths, mut known) = (ScopeTable::default(), HashMap::new(), HashMap::new());
    let settings = pytorch.root_value(Key::AllocatorSettings);
    let setting = settings.and_then(|settings| memtrack_part(settings, "scopes", strings));
    let Some(Value::List(entries)) = setting else {
        return (table, paths);
    };
    let mut room = MAX_NAME_BYTES;
    for entry in entries.iter() {
        let Value::List(entry) = entry else { continue };
        let [Value::Str(path), Value::List(steps)] = &entry[..] else { continue };
        let mut scope = ScopeId::NONE;
        for step in steps.iter().take(MAX_DEPTH) {
            let Some((kind, name)) = kind_and_name(step, strings) else { break };
            let next = ScopeId(table.rows.len() as u32);
            let parent = scope;
            scope = *known.entry((parent, kind, name)).or_insert(next);
            if scope == next {
                let name = strings.get(name).into_owned();
                match room.checked_sub(name.len() + size_of::<Scope>()) {
                    Some(left) => room = left,
                    None => return (table, paths),
                }
                table.rows.push(Scope { parent, kind, name });
            }
        }
        paths.insert(*path, scope);
    }
    (table, paths)
}

fn kind_and_name(step: &Value, strings: &StringTable) -> Option<(ScopeKind, StringId)> {
    let Value::List(parts) = step else { return None };
    let [Value::Str(kind), Value::Str(name)] = parts[..] else { return None };
    Some((ScopeKind::from_name(strings.bytes(kind))?, name))
}

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
fn restore_sums(snapshot: &mut Snapshot, paths: &HashMap<StringId, ScopeId>) {
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
