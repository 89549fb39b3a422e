//! What the CUDA driver said of its devices, in PyTorch's files: `allocator_settings.memtrack.driver`, a list of
//! readings, each a list of `[name, value]` with the names of [`DriverReading`]'s fields. Lists for the same reason as
//! with scopes. Names that are not known are passed over here and stay in the file.

use super::settings::of_memtrack;
use super::{Key, StringInterner};
use crate::snapshot::{DriverReading, Snapshot, StringTable, Value};
use serde_json::{Map, Value as Json};

/// The readings as a value; none where there are none.
pub(super) fn value(readings: &[DriverReading], strings: &mut StringInterner) -> Option<Value> {
    let mut text = |text: &str| Value::Str(strings.intern(text.as_bytes()));
    let mut one = |reading: &DriverReading| {
        let Ok(Json::Object(fields)) = serde_json::to_value(reading) else { return Value::List([].into()) };
        let pairs = fields.iter().map(|(name, field)| {
            let field = match field {
                Json::String(word) => text(word),
                other => Value::integer(other.as_u64().unwrap_or(0).into()),
            };
            Value::List([text(name), field].into())
        });
        Value::List(pairs.collect())
    };
    let readings: Vec<Value> = readings.iter().map(&mut one).collect();
    (!readings.is_empty()).then(|| Value::List(readings.into()))
}

/// Gives a snapshot that memtrack wrote its readings again.
pub(super) fn restore(snapshot: &mut Snapshot) {
    let Some(pytorch) = snapshot.pytorch.as_deref() else { return };
    let strings = &snapshot.strings;
    let ours = pytorch.root_value(Key::AllocatorSettings).and_then(|all| of_memtrack(all, "driver", strings));
    let Some(Value::List(readings)) = ours else { return };
    let read = readings.iter().take(DriverReading::MOST).filter_map(|one| reading_of(one, strings));
    snapshot.driver = read.filter(|reading| reading.device.is_accelerator()).collect();
}

fn reading_of(value: &Value, strings: &StringTable) -> Option<DriverReading> {
    let Value::List(pairs) = value else { return None };
    let mut fields = Map::new();
    for pair in pairs.iter().take(64) {
        let Value::List(pair) = pair else { return None };
        let [Value::Str(name), field] = &pair[..] else { return None };
        let field = match field {
            Value::Str(word) => Json::from(strings.get(*word).into_owned()),
            other => Json::from(u64::try_from(other.as_i128()?).ok()?),
        };
        fields.insert(strings.get(*name).into_owned(), field);
    }
    serde_json::from_value(Json::Object(fields)).ok()
}
