//! Converts a recording to a PyTorch snapshot. Addresses become named frames, each `free` becomes a `free_requested`
//! and a `free_completed`, scopes are stored in `user_metadata`, and live blocks and segments become segments with
//! blocks.
//!
//! **What happens to integers of more than 63 bits?** Pickle has no unsigned integers, and PyTorch's viewer reads
//! integers of nine bytes as a different type. Addresses and handles keep their bits and become negative numbers, as in
//! PyTorch's C++ writer, while sizes are capped. The content of a PyTorch file is written unchanged.

mod builder;
mod names;
mod places;
mod segments;
#[cfg(test)]
pub(crate) mod tests;

use super::samples::SampleTexts;
use super::{ExactValue, Key, Part, PyTorch, Records, Shape, counts, known, scopes, settings};
pub use builder::Builder;
use memtrack_model::NameFrames;
use memtrack_model::ScopeStep;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use memtrack_model::snapshot::{
    Clock, CountedPeak, DeviceStatistics, DriverReading, Meta, Ordinals, ScopeSum, ScopeSums, Snapshot,
    StringId, Value, WeighedBlock,
};
use names::NameTables;
use places::Places;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// The keys of an event in PyTorch's order. The last one exists only in events that have a stack.
const EVENT_KEYS: [Key; 9] = [
    Key::Action,
    Key::Addr,
    Key::Size,
    Key::Stream,
    Key::TimeUs,
    Key::CompileContext,
    Key::UserMetadata,
    Key::PoolId,
    Key::Frames,
];

/// Returns the shapes of events: events with an address, `oom` events, and events with an address and a category. Each
/// kind is listed first without and then with a stack.
fn event_shapes() -> Vec<Shape> {
    let oom = EVENT_KEYS.map(|key| if key == Key::Addr { Key::DeviceFree } else { key });
    let (without, with) =
        ([&EVENT_KEYS[..8], &[Key::Category]].concat(), [&EVENT_KEYS[..], &[Key::Category]].concat());
    [&EVENT_KEYS[..8], &EVENT_KEYS, &oom[..8], &oom, &without, &with].map(Shape::of).into()
}

/// The index of the first shape that has a category.
const FIRST_SHAPE_WITH_CATEGORY: u32 = 4;

/// Converts a recording to PyTorch's form.
pub fn convert(snapshot: &Snapshot, names: &mut dyn NameFrames) -> PytorchSnapshot {
    let mut convert = Converter::new(snapshot, names);
    convert.to.meta = Meta { max_entries: u64::MAX, ..snapshot.meta.clone() };
    convert.to.sampling = snapshot.sampling;
    convert.to.counted_peak = snapshot.counted_peak;
    convert.to.address_space = snapshot.address_space;
    convert.to.folded = snapshot.folded;
    convert.pytorch.start_us = Some(snapshot.clock.first.1 / 1000);
    convert.convert_events();
    convert.convert_segments();
    convert.finish()
}

struct Converter<'a> {
    from: &'a Snapshot,
    names: NameTables<'a>,
    to: Snapshot,
    pytorch: PyTorch,
    /// The paths of the scopes.
    scopes: HashMap<ScopeId, StringId>,
    ordinals: Ordinals,
    /// The metadata texts of sampled blocks.
    samples: SampleTexts,
    /// The places of the blocks on each device that was sampled.
    places: HashMap<DeviceId, Places>,
}

impl<'a> Converter<'a> {
    fn new(from: &'a Snapshot, symbols: &'a mut dyn NameFrames) -> Self {
        Self {
            from,
            names: NameTables::new(from, symbols),
            to: Snapshot::default(),
            pytorch: PyTorch::default(),
            scopes: HashMap::new(),
            ordinals: from.ordinals(),
            samples: SampleTexts::default(),
            places: HashMap::new(),
        }
    }

    fn convert_events(&mut self) {
        self.pytorch.events.shapes = event_shapes();
        let from = self.from;
        let mut devices = from.device_ids();
        devices.retain(|&device| device != DeviceId::PINNED);
        let place = |host| devices.contains(&host).then(|| DeviceId(self.ordinals.of(host)));
        self.pytorch.heap = place(DeviceId::HOST);
        self.pytorch.mapped = place(DeviceId::MAPPED);
        let by_ordinal: BTreeMap<u16, DeviceId> =
            devices.iter().map(|&device| (self.ordinals.of(device), device)).collect();
        let last = by_ordinal.keys().next_back().copied();
        for ordinal in last.into_iter().flat_map(|last| 0..=last) {
            let rows = self.convert_trace(by_ordinal.get(&ordinal).copied(), DeviceId(ordinal));
            self.pytorch.traces.push(rows);
        }
        self.pytorch.host_trace = self.convert_trace(Some(DeviceId::PINNED), DeviceId::HOST);
    }

    /// Converts the events of the device `recorded`, whose number in PyTorch's file is `device`. Returns their rows.
    fn convert_trace(&mut self, recorded: Option<DeviceId>, device: DeviceId) -> Range<usize> {
        let from = self.from;
        let start = self.to.events.len();
        let mut places = recorded.and_then(|device| Places::of(from, device));
        let peak = from.counted_peak.filter(|_| recorded.is_some_and(|device| device.is_host()));
        let moments = peak.map(|peak| [peak.ticks, peak.since_ticks, peak.until_ticks]);
        let mut before = [0; 3];
        for row in recorded.into_iter().flat_map(|device| from.events.rows_of(device)) {
            let event = Event { device, ..from.events.get(row) };
            let category = self.category_of(row);
            let mut address = event.address;
            if let Some(places) = &mut places {
                if event.action == Action::Alloc
                    && let Some(before) = places.take_live_alloc_at(&event)
                {
                    let (ticks, stack) = (event.ticks, StackId::NONE);
                    let free = Event { action: Action::Free, ticks, stack, ..before };
                    let address = places.address_of(&free);
                    self.convert_event(&Event { address, ..free }, None);
                }
                address = places.address_of(&event);
            }
            // The number of events in the file up to this one. A free becomes two events there, of which only the first
            // is included.
            let place = (self.to.events.len() - start + 1) as u64;
            for (moment, before) in moments.iter().flatten().zip(&mut before) {
                if event.ticks <= *moment {
                    *before = place;
                }
            }
            self.convert_event(&Event { address, ..event }, category);
        }
        if let (Some(recorded), Some(places)) = (recorded, places) {
            self.places.insert(recorded, places);
        }
        if let (Some(peak), Some(moments)) = (peak, moments) {
            let [ticks, since_ticks, until_ticks] = moments.map(|ticks| from.clock.time_ns(ticks) / 1000);
            let events_before = Some(before);
            self.to.counted_peak =
                Some(CountedPeak { ticks, since_ticks, until_ticks, events_before, ..peak });
        }
        start..self.to.events.len()
    }

    /// Converts an event. A free becomes the two events that PyTorch uses for it.
    fn convert_event(&mut self, event: &Event, category: Option<StringId>) {
        if event.action == Action::Free {
            self.push_event(&Event { action: Action::FreeRequested, ..*event }, category);
            self.push_event(&Event { action: Action::FreeCompleted, ..*event }, category);
        } else {
            self.push_event(event, category);
        }
    }

    /// Returns the category of an event's memory, if it is known.
    fn category_of(&mut self, row: usize) -> Option<StringId> {
        let category = self.from.categories.get()?.of_event(row)?;
        Some(self.names.strings.intern(category.as_bytes()))
    }

    /// Returns the device's number in PyTorch's file. In that file, [`DeviceId::HOST`] stands for pinned memory, and
    /// the host's heap and mapped memory are additional devices.
    fn file_device(&self, device: DeviceId) -> DeviceId {
        if device == DeviceId::PINNED { DeviceId::HOST } else { DeviceId(self.ordinals.of(device)) }
    }

    fn push_event(&mut self, event: &Event, category: Option<StringId>) {
        let stack = self.names.convert_stack(event.stack);
        let category = category.filter(|_| event.action != Action::Oom);
        let kind = 2 * u32::from(event.action == Action::Oom);
        let shape = category.map_or(kind, |_| FIRST_SHAPE_WITH_CATEGORY) + u32::from(!stack.is_none());
        let mut metadata = self.convert_scope(event.scope);
        let weighed = WeighedBlock::of(event.size_bytes, event.flags, &self.from.meta);
        if weighed.estimated {
            metadata = self.samples.intern_text(metadata, weighed, &mut self.names.strings);
        }
        let none = self.names.strings.intern(b"N/A");
        let details = &mut self.pytorch.events;
        let row = details.push(shape);
        if event.action == Action::Other {
            let name = self.names.strings.intern(Action::Other.name().as_bytes());
            details.exact.push(ExactValue { row: row as u32, place: 0, value: Value::Str(name) });
        }
        if event.action != Action::Oom {
            keep_bits(details, row, Key::Addr, event.address);
        }
        keep_bits(details, row, Key::Stream, event.stream.0);
        details.set(row, Key::CompileContext, none.0.into());
        details.set(row, Key::UserMetadata, metadata.0.into());
        set_default_pool(details, row, Key::PoolId);
        if let Some(category) = category {
            details.set(row, Key::Category, category.0.into());
        }
        let time_us = self.from.clock.time_ns(event.ticks) / 1000;
        let address =
            if event.action == Action::Oom { event.address.min(MAX_WRITTEN_INTEGER) } else { event.address };
        let size_bytes = weighed.bytes.min(MAX_WRITTEN_INTEGER);
        let flags = clear_sampled_flag(event.flags);
        self.to.events.push(&Event { ticks: time_us, address, size_bytes, stack, flags, ..*event });
    }

    /// Returns the path of a scope, such as `encoder.forward.matmul`, or an empty string if there is no scope.
    fn convert_scope(&mut self, scope: ScopeId) -> StringId {
        let (table, strings) = (&self.from.scopes, &mut self.names.strings);
        *self.scopes.entry(scope).or_insert_with(|| strings.intern(table.place(scope).full_name().as_bytes()))
    }

    /// Copies the scopes with their sums, and the driver readings. Times become microseconds.
    fn convert_tables(&mut self) {
        let from = self.from;
        let in_us = |ticks| from.clock.time_ns(ticks) / 1000;
        self.to.scopes = from.scopes.clone();
        self.to.driver =
            from.driver.iter().map(|row| DriverReading { ticks: in_us(row.ticks), ..*row }).collect();
        self.to.scope_sums = from.scope_sums.as_ref().map(|sums| {
            let row = |row: &ScopeSum| ScopeSum { device: self.file_device(row.device), ..*row };
            let mut rows: Vec<ScopeSum> = sums.rows.iter().map(row).collect();
            rows.sort_unstable();
            ScopeSums { ticks: in_us(sums.ticks), folded: sums.folded, rows }
        });
        let with_number =
            |row: &DeviceStatistics| DeviceStatistics { device: self.file_device(row.device), ..*row };
        self.to.devices = from.devices.iter().map(with_number).collect();
    }

    /// Returns the settings that memtrack adds: the parts of the scopes' paths, the driver readings, the recorder's
    /// counts, and the weights of sampled blocks. If several scopes have the same path, the parts come from the first
    /// one.
    fn convert_settings(&mut self) -> Value {
        let sums = self.convert_scope_sums();
        let mut scopes: Vec<(ScopeId, StringId)> = self.scopes.drain().collect();
        scopes.sort_unstable();
        let mut seen = HashSet::from([StringId::EMPTY]);
        scopes.retain(|&(_, path)| seen.insert(path));
        let steps = |(scope, path)| {
            let mut steps: Vec<ScopeStep<'_>> = self.from.scopes.outwards(scope).collect();
            steps.reverse();
            (path, steps)
        };
        let strings = &mut self.names.strings;
        let scopes = scopes::paths_to_value(scopes.into_iter().map(steps), strings);
        let driver = counts::readings_to_value(&self.to.driver, strings);
        let known = counts::counts_to_values(self.from, &self.to, &self.pytorch, strings);
        let parts = [
            ("scopes", scopes),
            ("scope_sums", sums),
            ("driver", driver),
            ("samples", self.samples.to_value()),
        ];
        settings::build_settings(parts.into_iter().chain(known), strings)
    }

    /// Returns the exact sums of the scopes, or `None` if they were not recorded.
    fn convert_scope_sums(&mut self) -> Option<Value> {
        let from = self.from;
        let sums = from.scope_sums.as_ref()?;
        let row = |row: &ScopeSum| {
            (
                self.file_device(row.device),
                self.convert_scope(row.scope),
                [row.allocated_bytes, row.allocations],
            )
        };
        let rows: Vec<_> = sums.rows.iter().map(row).collect();
        Some(scopes::sums_to_value(from.clock.time_ns(sums.ticks) / 1000, sums.folded, rows.into_iter()))
    }

    fn finish(self) -> PytorchSnapshot {
        PytorchSnapshot::try_from(self.into_snapshot()).expect("it has that form")
    }

    fn into_snapshot(mut self) -> Snapshot {
        self.convert_tables();
        let settings = Part::Value(self.convert_settings());
        let root = [
            (Key::Segments, Part::Segments),
            (Key::DeviceTraces, Part::DeviceTraces),
            (Key::AllocatorSettings, settings),
            (Key::ExternalAnnotations, Part::Annotations),
            (Key::HostSegments, Part::HostSegments),
            (Key::HostTraces, Part::HostTraces),
        ];
        self.pytorch.root = root.map(|(key, part)| (Value::Str(key.id()), part)).into();
        let host_segments = self.to.segments.iter().filter(|segment| segment.device.is_host()).count();
        self.pytorch.device_segments = self.pytorch.segments.len() - host_segments;
        let NameTables { strings, frames, stacks, .. } = self.names;
        self.to.strings = strings.table;
        self.to.frames = frames;
        self.to.named = stacks.table;
        let first = self.to.events.ticks.iter().min().copied();
        let start = self.pytorch.start_us.filter(|&start| first.is_none_or(|first| start <= first));
        self.pytorch.start_us = start;
        self.to.counted_peak = self.to.counted_peak.filter(|_| start.is_some());
        self.to.clock = Clock::of_microseconds(start.or(first).unwrap_or(0));
        self.pytorch.samples = self.samples.into_samples();
        self.to.pytorch = Some(Box::new(self.pytorch));
        self.to
    }
}

/// The largest integer that is ever written.
///
/// Pickle's integers are signed, so 2^63 and above would take nine bytes. PyTorch's viewer originally refused such
/// integers (PyTorch issue 115234), and today it reads them as a different type from all other numbers. A size that
/// large cannot be real and is replaced with this number. An address or handle may be real (as with tagged pointers),
/// and its bits matter; see [`keep_bits`]. Values from a PyTorch file are not changed, because Python's own pickler
/// would write them unchanged as well.
pub(super) const MAX_WRITTEN_INTEGER: u64 = i64::MAX as u64;

/// Keeps the bits of an address or handle of 2^63 or above. It is written as the negative number with the same bits, as
/// in PyTorch's C++ writer. The column keeps the unsigned number, and so do the tables when memtrack reads the file
/// again.
fn keep_bits(records: &mut Records, row: usize, key: Key, bits: u64) {
    if bits > MAX_WRITTEN_INTEGER
        && let Some(place) = records.shape_of(row).keys.iter().position(|name| known(name) == Some(key))
    {
        records.exact.push(ExactValue {
            row: row as u32,
            place: place as u16,
            value: Value::Int(bits as i64),
        });
    }
}

/// Removes the flag that marks a sampled block, because the size already includes all blocks that it represents.
fn clear_sampled_flag(flags: EventFlags) -> EventFlags {
    let others = [EventFlags::UNKNOWN_BLOCK, EventFlags::WHOLE_SEGMENT, EventFlags::SUPERSEDED];
    let kept = others.into_iter().filter(|&other| flags.contains(other));
    kept.fold(EventFlags::default(), EventFlags::with)
}

/// Sets the default pool, which contains all memory of a recording.
fn set_default_pool(records: &mut Records, row: usize, key: Key) {
    let pool = records.pool_number((0, 0)).unwrap_or(0);
    records.set(row, key, pool);
}
