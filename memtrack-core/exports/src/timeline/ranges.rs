//! The ranges of PyTorch's profiler. Ranges from different threads may overlap without being nested, so they are
//! distributed over the smallest number of tracks on which all of them are nested.

use super::Times;
use memtrack_model::Snapshot;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::StringId;
use memtrack_model::snapshot::pytorch::Key;
use std::collections::BTreeMap;

/// The maximum number of ranges that may be open at once. Further ranges are omitted, as on memtrack's HTML page.
const MAX_OPEN: usize = 256;

/// A profiler range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The name of the range.
    pub(crate) name: StringId,
    /// The start time in nanoseconds, as in [`Times`].
    pub(crate) from_ns: u64,
    /// The end time in nanoseconds, as in [`Times`].
    pub(crate) to_ns: u64,
}

/// A track of ranges. Any two of them are either disjoint or nested. They are ordered by start, and an outer range comes
/// before an inner one.
pub(crate) struct Track {
    /// The device, or `None` for ranges without a device.
    device: Option<DeviceId>,
    pub(crate) ranges: Vec<Range>,
}

impl Track {
    /// Returns the name of the track.
    pub(crate) fn name(&self, snapshot: &Snapshot) -> String {
        match self.device {
            Some(device) => format!("{}: profiler", snapshot.device_name(device)),
            None => "profiler".to_owned(),
        }
    }
}

/// Returns the tracks for the ranges of these devices, and for ranges without a device.
pub(crate) fn build_tracks(snapshot: &Snapshot, times: &Times<'_>, devices: &[DeviceId]) -> Vec<Track> {
    let mut all: Vec<Track> = Vec::new();
    for (device, mut ranges) in ranges_by_device(snapshot, times) {
        if device.is_some_and(|device| !devices.contains(&device)) {
            continue;
        }
        ranges.sort_by_key(|range| (range.from_ns, std::cmp::Reverse(range.to_ns)));
        // For each track, the end times of its open ranges.
        let mut open: Vec<Vec<u64>> = Vec::new();
        let first = all.len();
        for range in ranges {
            open.iter_mut().for_each(|ends| {
                while ends.last().is_some_and(|&end| end <= range.from_ns) {
                    ends.pop();
                }
            });
            let fits = |ends: &Vec<u64>| ends.last().is_none_or(|&end| range.to_ns <= end);
            let at = open.iter().position(fits).unwrap_or(open.len());
            if at == open.len() {
                open.push(Vec::new());
                all.push(Track { device, ranges: Vec::new() });
            }
            open[at].push(range.to_ns);
            all[first + at].ranges.push(range);
        }
    }
    all
}

/// Returns the ranges that have a start and an end, grouped by device.
fn ranges_by_device(snapshot: &Snapshot, times: &Times<'_>) -> BTreeMap<Option<DeviceId>, Vec<Range>> {
    let mut by_device: BTreeMap<Option<DeviceId>, Vec<Range>> = BTreeMap::new();
    let Some(pytorch) = snapshot.pytorch.as_deref().filter(|_| times.known) else { return by_device };
    let notes = &pytorch.annotations;
    let mut order: Vec<usize> = (0..notes.len()).collect();
    order.sort_by_key(|&row| notes.number(row, Key::TimeUs));
    let mut open: BTreeMap<Option<DeviceId>, Vec<(StringId, u64)>> = BTreeMap::new();
    for row in order {
        let number = notes.has(row, Key::Device).then(|| notes.number(row, Key::Device) as i64);
        let device = number.and_then(|number| u16::try_from(number).ok()).map(DeviceId);
        let (name, ns) = (notes.text(row, Key::Name), times.ns(notes.number(row, Key::TimeUs)));
        let open = open.entry(device).or_default();
        match snapshot.strings.bytes(notes.text(row, Key::Stage)) {
            b"START" if open.len() < MAX_OPEN => open.push((name, ns)),
            b"END" => {
                let Some(index) = open.iter().rposition(|(known, _)| *known == name) else { continue };
                let (_, from_ns) = open.remove(index);
                by_device.entry(device).or_default().push(Range { name, from_ns, to_ns: ns });
            }
            _ => {}
        }
    }
    by_device
}
