//! Scrubs snapshots in PyTorch's form, which consist of tables whose columns are named by keys, and of single values
//! under keys. Strings are replaced according to their key. Values under unknown keys are removed, because their content
//! is unknown.

use super::public::{is_common, is_in};
use super::{START_NS, Scrub};
use memtrack_formats::pytorch::{StringInterner, restore_settings};
use memtrack_model::event::{Action, ScopeId};
use memtrack_model::snapshot::pytorch::{
    ExactValue, Key, Kind, Part, PyTorch, Records, Samples, Shape, known,
};
use memtrack_model::snapshot::{
    Clock, KnownNames, Scope, ScopeKind, ScopeTable, Snapshot, StringId, StringTable, Value,
};
use memtrack_model::{Frame, ScopePosition, ScopeStep};
use std::collections::HashMap;
use std::sync::Arc;

/// The smallest number of microseconds that counts as a time of day since the Unix epoch; it is in 1973. Smaller numbers
/// are kept.
const MIN_TIME_OF_DAY_US: u64 = 100_000_000_000_000;

/// The settings of PyTorch's allocators, as named in snapshots.
const SETTING_NAMES: &str = "\
    PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF max_split_size garbage_collection_threshold \
    expandable_segments pinned_num_register_threads release_lock_on_cudamalloc pinned_use_cuda_host_register \
    roundup_power2_divisions last_allocator_settings graph_capture_record_stream_reuse max_non_split_rounding_size \
    per_process_memory_fraction pinned_use_background_threads pinned_reserve_segment_size_mb \
    pinned_max_round_threshold_mb pinned_max_cached_size_mb large_segment_size use_expandable_segments memtrack";

/// The words that may occur in the values of settings, in addition to numbers.
const OPTION_WORDS: &str = "\
    max_split_size_mb max_non_split_rounding_mb garbage_collection_threshold expandable_segments backend native \
    cudaMallocAsync roundup_power2_divisions roundup_bypass_threshold_mb release_lock_on_cudamalloc \
    release_lock_on_hipmalloc pinned_use_cuda_host_register pinned_use_hip_host_register pinned_num_register_threads \
    pinned_use_background_threads graph_capture_record_stream_reuse per_process_memory_fraction large_segment_size_mb \
    pinned_reserve_segment_size_mb hipMallocAsync True False true false on off";

/// The names of the fields in the records that memtrack adds to the settings.
const FIELD_NAMES: &str = "\
    device recorded dropped allocated_bytes freed_bytes allocations frees reserved_bytes counted moment ticks free_bytes \
    total_bytes tracked_bytes pools pool_reserved_bytes pool_reserved_peak_bytes pool_used_bytes pool_used_peak_bytes \
    opened opened_bytes threshold_bytes mean_bytes block_bytes budget unrecorded_blocks unrecorded_bytes \
    widest_interval_bytes cpu_seconds exact_seconds spent_seconds stacks threads \
    bytes most_bytes after_us since_us until_us events since_events until_events";

/// The words that occur as values of the fields in [`FIELD_NAMES`], and other words that PyTorch and memtrack write.
const FIELD_WORDS: &str = "\
    last fullest out_of_memory operator module root backward optimizer small large START END N/A active_allocated \
    active_pending_free active_awaiting_free inactive placeholder get_attr call_function call_module call_method output";

impl Scrub {
    pub(super) fn scrub_pytorch(&mut self, mut snapshot: Snapshot) -> Snapshot {
        let Some(mut pytorch) = snapshot.pytorch.take() else { return snapshot };
        let earliest_us = earliest_us(&snapshot, &pytorch);
        let strings = std::mem::take(&mut snapshot.strings);
        let mut tables = Tables {
            scrub: self,
            from: &strings,
            to: StringInterner::default(),
            texts: HashMap::new(),
            metadata: HashMap::new(),
            earliest_us,
            shared: HashMap::new(),
        };
        // The root comes first, because it determines which metadata are scope paths.
        let root = std::mem::take(&mut pytorch.root);
        pytorch.root = root.into_iter().filter_map(|(key, part)| tables.scrub_root(key, part)).collect();
        tables.scrub_frames(&mut snapshot.frames.records);
        for records in
            [&mut pytorch.events, &mut pytorch.segments, &mut pytorch.blocks, &mut pytorch.annotations]
        {
            tables.scrub_records(records, &[]);
        }
        let tables = tables.to.table;
        for row in 0..snapshot.events.len() {
            if pytorch.events.has(row, Key::TimeUs) {
                snapshot.events.ticks[row] = shift_time(snapshot.events.ticks[row], earliest_us);
            }
        }
        snapshot.strings = tables;
        pytorch.samples = Samples::default();
        pytorch.start_us = None;
        snapshot.events.scope.fill(ScopeId::NONE);
        snapshot.blocks.iter_mut().for_each(|block| block.scope = ScopeId::NONE);
        snapshot.scopes = ScopeTable::default();
        snapshot.names = KnownNames::default();
        snapshot.modules.clear();
        snapshot.clock = Clock::of_microseconds(shift_time(snapshot.clock.first.0, earliest_us));
        snapshot.pytorch = Some(pytorch);
        restore_settings(&mut snapshot);
        // The scopes have already been scrubbed as part of the settings.
        let scopes = std::mem::take(&mut snapshot.scopes);
        self.scrub_common(&mut snapshot);
        snapshot.scopes = scopes;
        snapshot
    }
}

/// Returns the earliest time of day in a snapshot, in microseconds. Scrubbing moves it to the start time of scrubbed
/// snapshots.
fn earliest_us(snapshot: &Snapshot, pytorch: &PyTorch) -> u64 {
    let events = (0..snapshot.events.len()).filter(|&row| pytorch.events.has(row, Key::TimeUs));
    let annotations = &pytorch.annotations;
    let times = events
        .map(|row| snapshot.events.ticks[row])
        .chain((0..annotations.len()).map(|row| annotations.number(row, Key::TimeUs)))
        .chain(pytorch.start_us);
    times.filter(|&time| time >= MIN_TIME_OF_DAY_US).min().unwrap_or(START_NS / 1000)
}

fn shift_time(time_us: u64, earliest_us: u64) -> u64 {
    if time_us < MIN_TIME_OF_DAY_US {
        time_us
    } else {
        (time_us - earliest_us.min(time_us)).saturating_add(START_NS / 1000)
    }
}

/// The tables of a snapshot while they are being rebuilt.
struct Tables<'a> {
    scrub: &'a mut Scrub,
    from: &'a StringTable,
    to: StringInterner,
    texts: HashMap<(Key, StringId), StringId>,
    /// Old → new metadata written by memtrack: scope paths and sample descriptions.
    metadata: HashMap<StringId, StringId>,
    earliest_us: u64,
    /// Old and new values that the file contains once but refers to often, by the old value's address in memory and its
    /// key. The old values are kept alive so that no address is reused.
    shared: HashMap<(usize, Key), (Value, Value)>,
}

impl Tables<'_> {
    fn scrub_root(&mut self, key: Value, part: Part) -> Option<(Value, Part)> {
        let known = known(&key)?;
        let part = match part {
            Part::Value(value) if known == Key::AllocatorSettings => Part::Value(self.scrub_settings(&value)),
            Part::Value(value) => Part::Value(self.scrub_value(known, &value)),
            table => table,
        };
        Some((Value::Str(known.id()), part))
    }

    /// Scrubs frames. Whether a function is kept depends on its file.
    fn scrub_frames(&mut self, frames: &mut Records) {
        let mut named = Vec::with_capacity(frames.len());
        for row in 0..frames.len() {
            let text = |key| match frames.exact_under(row, key) {
                Some(Value::Str(id)) => self.from.get(*id).into_owned(),
                Some(_) => String::new(),
                None => self.from.get(frames.text(row, key)).into_owned(),
            };
            let file = frames.has(row, Key::Filename).then(|| text(Key::Filename));
            named.push(Frame { function: text(Key::Name), file, ..Frame::default() });
        }
        self.scrub_records(frames, &[Key::Name, Key::Filename]);
        let mut memo: HashMap<Frame, (StringId, StringId)> = HashMap::new();
        for (row, frame) in named.into_iter().enumerate() {
            let (name, file) = *memo.entry(frame).or_insert_with_key(|frame| {
                let frame = self.scrub.scrub_frame(frame);
                let file = frame.file.unwrap_or_default();
                (self.to.intern(frame.function.as_bytes()), self.to.intern(file.as_bytes()))
            });
            for (key, id) in [(Key::Name, name), (Key::Filename, file)] {
                if frames.has(row, key) && frames.exact_under(row, key).is_none() {
                    frames.set(row, key, id.0.into());
                }
            }
        }
    }

    /// Scrubs a table by removing unknown keys and replacing texts, except under the `excluded` keys.
    fn scrub_records(&mut self, records: &mut Records, excluded: &[Key]) {
        let old_shapes = std::mem::take(&mut records.shapes);
        let mut places: Vec<Vec<Option<u16>>> = Vec::with_capacity(old_shapes.len());
        let mut new_numbers: Vec<u32> = Vec::with_capacity(old_shapes.len());
        for shape in &old_shapes {
            let (mut keys, mut new_places) = (Vec::new(), Vec::new());
            for key in &shape.keys {
                new_places.push(known(key).map(|_| keys.len() as u16));
                keys.extend(known(key).map(|key| Value::Str(key.id())));
            }
            let shape = Shape::new(keys);
            let number = records.shapes.iter().position(|known| *known == shape).unwrap_or_else(|| {
                records.shapes.push(shape);
                records.shapes.len() - 1
            });
            new_numbers.push(number as u32);
            places.push(new_places);
        }
        let old_numbers: Vec<u32> = records.shape.clone();
        records.shape.iter_mut().for_each(|number| *number = new_numbers[*number as usize]);
        let mut to_columns = Vec::new();
        for exact in std::mem::take(&mut records.exact) {
            let old = old_numbers[exact.row as usize] as usize;
            let (Some(key), Some(place)) = (
                old_shapes[old].keys.get(usize::from(exact.place)).and_then(known),
                places[old].get(usize::from(exact.place)).copied().flatten(),
            ) else {
                continue;
            };
            let value = self.scrub_value(key, &exact.value);
            match value {
                // A text goes into its column, but the name of an unknown action has no column.
                Value::Str(id) if key.kind() == Kind::Text && key != Key::Action => {
                    to_columns.push((exact.row as usize, key, id));
                }
                value => records.exact.push(ExactValue { row: exact.row, place, value }),
            }
        }
        let texts = Key::ALL.iter().copied().filter(|key| key.kind() == Kind::Text && *key != Key::Action);
        for key in texts.filter(|key| !excluded.contains(key)) {
            if records.column_of(key).is_none() {
                continue;
            }
            for row in 0..records.len() {
                let id = records.text(row, key);
                let id = if records.has(row, key) { self.scrub_text(key, id) } else { StringId::EMPTY };
                records.set(row, key, id.0.into());
            }
        }
        if records.column_of(Key::TimeUs).is_some() {
            for row in 0..records.len() {
                records.set(row, Key::TimeUs, shift_time(records.number(row, Key::TimeUs), self.earliest_us));
            }
        }
        for (row, key, id) in to_columns {
            records.set(row, key, id.0.into());
        }
    }

    /// Scrubs a string under a key.
    fn scrub_text(&mut self, key: Key, id: StringId) -> StringId {
        if id == StringId::EMPTY {
            return id;
        }
        if key == Key::UserMetadata
            && let Some(&new) = self.metadata.get(&id)
        {
            return new;
        }
        if let Some(&new) = self.texts.get(&(key, id)) {
            return new;
        }
        let text = self.from.get(id).into_owned();
        let new = self.scrub_new_text(key, &text);
        let new = self.to.intern(new.as_bytes());
        self.texts.insert((key, id), new);
        new
    }

    fn scrub_new_text(&mut self, key: Key, text: &str) -> String {
        let scrub = &mut *self.scrub;
        match key {
            Key::Filename => scrub.scrub_path(text),
            Key::Name | Key::FxNodeName | Key::FxNodeTarget => scrub.scrub_label("annotation", text),
            Key::Action if Action::ALL.iter().any(|action| action.name() == text) => text.to_owned(),
            Key::Category if text == "None" || is_common(&text.to_ascii_lowercase()) => text.to_owned(),
            // This is the number of a compiled region as PyTorch writes it, such as `0/1`.
            Key::CompileContext if is_number_pair(text) => text.to_owned(),
            Key::SegmentType | Key::State | Key::Stage | Key::CompileContext | Key::FxNodeOp
                if is_in(FIELD_WORDS, text) =>
            {
                text.to_owned()
            }
            Key::UserMetadata if text == "N/A" || scrub.keeps_label(text) => text.to_owned(),
            _ => scrub.pseudonyms.pseudonym("text", text),
        }
    }

    /// Scrubs a value under a key by removing values under unknown keys and replacing strings and bytes.
    fn scrub_value(&mut self, key: Key, value: &Value) -> Value {
        let place = match value {
            Value::Tuple(items) | Value::List(items) | Value::Set(items) | Value::FrozenSet(items) => {
                Some(Arc::as_ptr(items).cast::<u8>() as usize)
            }
            Value::Dict(entries) => Some(Arc::as_ptr(entries).cast::<u8>() as usize),
            _ => None,
        };
        if let Some((_, new)) = place.and_then(|place| self.shared.get(&(place, key))) {
            return new.clone();
        }
        let new = match value {
            Value::None => Value::None,
            // A number is kept only under a key whose values are numbers.
            Value::Bool(_) | Value::Int(_) | Value::Big(_) | Value::Float(_)
                if matches!(key.kind(), Kind::Text | Kind::Stack) =>
            {
                Value::None
            }
            Value::Int(_) | Value::Big(_) if key == Key::TimeUs => match value.as_i128() {
                Some(time) if time >= MIN_TIME_OF_DAY_US.into() => {
                    Value::integer(time - i128::from(self.earliest_us) + i128::from(START_NS / 1000))
                }
                _ => value.clone(),
            },
            Value::Float(time) if key == Key::TimeUs && *time >= MIN_TIME_OF_DAY_US as f64 => {
                Value::Float(time - self.earliest_us as f64 + (START_NS / 1000) as f64)
            }
            Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Stack(_) | Value::Frame(_) => {
                value.clone()
            }
            // A number longer than any address or size could contain a message.
            Value::Big(bytes) if bytes.len() <= 9 => value.clone(),
            Value::Big(_) | Value::Bytes(_) => Value::None,
            Value::Str(id) => Value::Str(self.scrub_text(key, *id)),
            Value::Tuple(items) => Value::Tuple(self.scrub_values(key, items)),
            Value::List(items) => Value::List(self.scrub_values(key, items)),
            Value::Set(items) => Value::Set(self.scrub_values(key, items)),
            Value::FrozenSet(items) => Value::FrozenSet(self.scrub_values(key, items)),
            Value::Dict(entries) => {
                let entry = |(name, value): &(Value, Value)| {
                    let Value::Str(id) = name else { return None };
                    let inner = Key::of(*id);
                    let of_history = key == Key::History && self.from.bytes(*id) == b"real_size";
                    match inner {
                        Some(inner) => Some((Value::Str(inner.id()), self.scrub_value(inner, value))),
                        None if of_history => {
                            let name = self.to.intern(b"real_size");
                            Some((Value::Str(name), self.scrub_value(Key::Size, value)))
                        }
                        None => None,
                    }
                };
                Value::Dict(entries.iter().filter_map(entry).collect())
            }
        };
        if let Some(place) = place {
            self.shared.insert((place, key), (value.clone(), new.clone()));
        }
        new
    }

    fn scrub_values(&mut self, key: Key, items: &[Value]) -> Arc<[Value]> {
        items.iter().map(|item| self.scrub_value(key, item)).collect()
    }

    /// Scrubs the allocator settings. Numbers are kept, and so are strings that consist of PyTorch's options.
    fn scrub_settings(&mut self, settings: &Value) -> Value {
        let Value::Dict(entries) = settings else { return Value::Dict([].into()) };
        let entry = |(name, value): &(Value, Value)| {
            let Value::Str(id) = name else { return None };
            let name = self.from.get(*id).into_owned();
            if !is_in(SETTING_NAMES, &name) {
                return None;
            }
            let value = if name == "memtrack" {
                self.scrub_memtrack_settings(value)
            } else {
                self.scrub_setting(value, 0)
            };
            Some((Value::Str(self.to.intern(name.as_bytes())), value))
        };
        Value::Dict(entries.iter().filter_map(entry).collect())
    }

    fn scrub_setting(&mut self, value: &Value, depth: u32) -> Value {
        match value {
            Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => value.clone(),
            Value::Str(id) => {
                let text = self.from.get(*id).into_owned();
                let mut words = text.split([':', ',', '[', ']', '>', ' ']).filter(|word| !word.is_empty());
                let is_number = |word: &str| word.len() <= 20 && word.parse::<f64>().is_ok();
                let stays = words.all(|word| is_number(word) || is_in(OPTION_WORDS, word));
                let text = if stays { text } else { self.scrub.pseudonyms.pseudonym("text", &text) };
                Value::Str(self.to.intern(text.as_bytes()))
            }
            // This is `roundup_power2_divisions`, which maps sizes to numbers of divisions.
            Value::Dict(entries) if depth == 0 => {
                let entry = |(name, value): &(Value, Value)| {
                    let Value::Str(id) = name else { return None };
                    let name = self.from.get(*id).into_owned();
                    let is_size = name.len() <= 20 && name.bytes().all(|byte| byte.is_ascii_digit());
                    let new = is_size.then(|| Value::Str(self.to.intern(name.as_bytes())))?;
                    Some((new, self.scrub_setting(value, 1)))
                };
                Value::Dict(entries.iter().filter_map(entry).collect())
            }
            _ => Value::None,
        }
    }

    /// Scrubs the entries that memtrack adds to the settings.
    fn scrub_memtrack_settings(&mut self, settings: &Value) -> Value {
        let Value::Dict(entries) = settings else { return Value::Dict([].into()) };
        let mut parts: Vec<(String, &Value)> = Vec::new();
        for (name, value) in entries.iter() {
            if let Value::Str(id) = name {
                parts.push((self.from.get(*id).into_owned(), value));
            }
        }
        // Scrub the scopes first, because the other entries refer to their paths.
        let mut scopes = None;
        if let Some((_, value)) = parts.iter().find(|(name, _)| name == "scopes") {
            scopes = Some(self.scrub_scopes(value));
        }
        let mut new = Vec::new();
        for (name, value) in parts {
            let part = match name.as_str() {
                "scopes" => scopes.take(),
                "scope_sums" => Some(self.scrub_sums(value)),
                "samples" => Some(self.scrub_samples(value)),
                "driver" | "counts" => match value {
                    Value::List(records) => {
                        Some(Value::List(records.iter().map(|record| self.scrub_record(record)).collect()))
                    }
                    _ => None,
                },
                "sampling" | "sampled" | "counted_peak" | "folded" => Some(self.scrub_record(value)),
                "start_us" => Some(self.scrub_value(Key::TimeUs, value)),
                "heap" | "incomplete" => {
                    Some(self.scrub_value(Key::Size, value)).filter(|value| value.as_i128().is_some())
                }
                _ => None,
            };
            new.extend(part.map(|part| (Value::Str(self.to.intern(name.as_bytes())), part)));
        }
        Value::Dict(new.into())
    }

    /// Scrubs scopes of the form `[[path, [[kind, name], …]], …]`.
    fn scrub_scopes(&mut self, scopes: &Value) -> Value {
        let Value::List(entries) = scopes else { return Value::List([].into()) };
        let mut new = Vec::with_capacity(entries.len());
        for entry in entries.iter() {
            let Value::List(entry) = entry else { continue };
            let [Value::Str(path), Value::List(steps)] = &entry[..] else { continue };
            let mut scopes = Vec::new();
            for step in steps.iter() {
                let Value::List(step) = step else { continue };
                let [Value::Str(kind), Value::Str(name)] = step[..] else { continue };
                let name = self.from.get(name).into_owned();
                let Some(kind) = ScopeKind::from_name(self.from.bytes(kind)) else { continue };
                scopes.push(Scope {
                    parent: ScopeId::NONE,
                    kind,
                    name: self.scrub.scrub_label("scope", &name),
                });
            }
            let outwards = scopes.iter().rev().map(|scope| ScopeStep { kind: scope.kind, name: &scope.name });
            let place = ScopePosition::of(outwards);
            let new_path = self.to.intern(place.full_name().as_bytes());
            self.metadata.insert(*path, new_path);
            let steps = scopes.iter().map(|scope| {
                let pair =
                    [scope.kind.name(), &scope.name].map(|text| Value::Str(self.to.intern(text.as_bytes())));
                Value::List(pair.into_iter().collect())
            });
            let steps = Value::List(steps.collect());
            new.push(Value::List([Value::Str(new_path), steps].into()));
        }
        Value::List(new.into())
    }

    /// Scrubs sums of the form `[time, folded, [[device, path, bytes, blocks], …]]`.
    fn scrub_sums(&mut self, sums: &Value) -> Value {
        let Value::List(parts) = sums else { return Value::List([].into()) };
        let [ticks, folded, Value::List(rows)] = &parts[..] else { return Value::List([].into()) };
        let (ticks, folded) = (self.scrub_value(Key::TimeUs, ticks), self.scrub_value(Key::Size, folded));
        let row = |row: &Value| {
            let Value::List(row) = row else { return None };
            let [device, Value::Str(path), bytes, blocks] = &row[..] else { return None };
            let path = Value::Str(self.scrub_text(Key::UserMetadata, *path));
            let [device, bytes, blocks] =
                [device, bytes, blocks].map(|number| self.scrub_value(Key::Size, number));
            Some(Value::List([device, path, bytes, blocks].into_iter().collect()))
        };
        let rows = Value::List(rows.iter().filter_map(row).collect());
        Value::List([ticks, folded, rows].into_iter().collect())
    }

    /// Scrubs samples of the form `[[text, path, size, weight], …]`.
    fn scrub_samples(&mut self, samples: &Value) -> Value {
        let Value::List(entries) = samples else { return Value::List([].into()) };
        let mut new = Vec::with_capacity(entries.len());
        for entry in entries.iter() {
            let Value::List(parts) = entry else { continue };
            let [Value::Str(text), Value::Str(path), size, weight] = &parts[..] else { continue };
            let (old_text, old_path) = (self.from.get(*text).into_owned(), self.from.get(*path).into_owned());
            let path = self.scrub_text(Key::UserMetadata, *path);
            // After the path, the text repeats the size and the weight.
            let numbers = old_text.strip_prefix(&old_path).filter(|rest| is_sample(rest.trim_start()));
            let new_text = match numbers {
                Some(numbers) => format!("{}{numbers}", self.to.table.get(path)),
                None => self.scrub.pseudonyms.pseudonym("text", &old_text),
            };
            let new_text = self.to.intern(new_text.as_bytes());
            self.metadata.insert(*text, new_text);
            let [size, weight] = [size, weight].map(|number| self.scrub_value(Key::Size, number));
            let parts = [Value::Str(new_text), Value::Str(path), size, weight];
            new.push(Value::List(parts.into_iter().collect()));
        }
        Value::List(new.into())
    }

    /// Scrubs a record of the form `[[name, value], …]`.
    fn scrub_record(&mut self, record: &Value) -> Value {
        let Value::List(pairs) = record else { return Value::List([].into()) };
        let pair = |pair: &Value| {
            let Value::List(pair) = pair else { return None };
            let [Value::Str(name), value] = &pair[..] else { return None };
            let name = self.from.get(*name).into_owned();
            if !is_in(FIELD_NAMES, &name) {
                return None;
            }
            let value = match value {
                Value::Str(word) => {
                    let word = self.from.get(*word).into_owned();
                    Value::Str(is_in(FIELD_WORDS, &word).then(|| self.to.intern(word.as_bytes()))?)
                }
                value if name == "ticks" => self.scrub_value(Key::TimeUs, value),
                value => self.scrub_value(Key::Size, value),
            };
            Some(Value::List([Value::Str(self.to.intern(name.as_bytes())), value].into()))
        };
        Value::List(pairs.iter().filter_map(pair).collect())
    }
}

/// Returns whether a text has the form `[sample of 48 B, stands for 10.50 blocks]`.
fn is_sample(text: &str) -> bool {
    let inner = text.strip_prefix("[sample of ").and_then(|rest| rest.strip_suffix(" blocks]"));
    let numbers = inner.and_then(|inner| inner.split_once(" B, stands for "));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    numbers.is_some_and(|(size, weight)| is_number(size) && is_number(weight))
}

fn is_number_pair(text: &str) -> bool {
    text.len() <= 24
        && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'/' | b'_' | b'[' | b']'))
}
