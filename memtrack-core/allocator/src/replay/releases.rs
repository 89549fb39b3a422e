//! The causes of released segments: a trace shows releases, but not what requested them. A request that finds
//! no memory releases cached memory and then takes a segment or fails; any other release was made explicitly
//! by the program.

use crate::settings::sizes::SMALL_BUFFER;
use crate::{MempoolId, Settings};
use memtrack_model::event::{Action, DeviceId, StackId};
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use std::collections::HashMap;

/// The cause of released segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// The next request needed the memory.
    Own,
    /// The cache was emptied.
    Everything,
    /// A private pool was dropped.
    Pool(MempoolId),
}

/// The releases of a trace.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// By the index of a run of releases: [`Release::Own`] at its first, the others at its last.
    by_place: HashMap<usize, Vec<Release>>,
    /// The maximum that was held and free at once when memory ran out.
    pub(super) capacity: Option<u64>,
}

fn is_release(action: Action) -> bool {
    matches!(action, Action::SegmentFree | Action::SegmentUnmap)
}

impl Releases {
    /// Examines the `rows` of `device`, recorded under these settings if they are known.
    pub(super) fn of(
        snapshot: &PytorchSnapshot,
        device: DeviceId,
        rows: &[usize],
        capacity: Option<u64>,
        settings: Option<&str>,
    ) -> Self {
        let settings = settings.and_then(|text| Settings::parse(text).ok()).unwrap_or_default();
        let threshold = settings.options().garbage_collection_threshold;
        let held = held_before(snapshot, device, rows);
        let events = &snapshot.events;
        let ooms = rows.iter().zip(&held).filter(|(row, _)| events.action[**row] == Action::Oom);
        let seen = ooms.map(|(&row, held)| events.address[row].saturating_add(*held)).max();
        let mut releases = Self { by_place: HashMap::new(), capacity: seen };
        let capacity = capacity.or(seen);
        let last_use = last_uses(snapshot, rows);
        let mut place = 0;
        while place < rows.len() {
            if !is_release(events.action[rows[place]]) {
                place += 1;
                continue;
            }
            let start = place;
            let mut end = place;
            // Waiting for other streams completes frees in between.
            while end < rows.len()
                && (is_release(events.action[rows[end]]) || events.action[rows[end]] == Action::FreeCompleted)
            {
                end += 1;
            }
            let group = &rows[start..end];
            let garbage = threshold > 0.0
                && capacity.is_some_and(|capacity| held[start] as f64 > threshold * capacity as f64)
                && group.iter().all(|&row| may_be_garbage(snapshot, row));
            if own(snapshot, group, rows.get(end).copied(), held[start], capacity, garbage) {
                releases.by_place.insert(start, vec![Release::Own]);
            } else {
                let by_hand = by_hand(snapshot, group, &last_use, end);
                releases.by_place.insert(end - 1, by_hand);
            }
            place = end;
        }
        releases
    }

    /// Returns the releases at an index.
    pub(super) fn at(&self, place: usize) -> &[Release] {
        self.by_place.get(&place).map_or(&[], Vec::as_slice)
    }
}

/// Returns whether garbage collection may have released a segment: it takes only large ones of the default
/// pool.
fn may_be_garbage(snapshot: &PytorchSnapshot, row: usize) -> bool {
    let pool = snapshot.details().events.pool(row, Key::PoolId);
    let events = &snapshot.events;
    events.action[row] == Action::SegmentFree && events.size_bytes[row] > SMALL_BUFFER && pool == (0, 0)
}

/// Returns whether a request released the group for itself; `next` is the event after it. The group may be
/// `garbage` that a request collects long before memory runs out.
fn own(
    snapshot: &PytorchSnapshot,
    group: &[usize],
    next: Option<usize>,
    held: u64,
    capacity: Option<u64>,
    garbage: bool,
) -> bool {
    let events = &snapshot.events;
    let Some(next) = next else { return false };
    match events.action[next] {
        Action::Oom => return true,
        Action::SegmentAlloc | Action::SegmentMap => {}
        _ => return false,
    }
    // Releases by a request carry its stack.
    let (freed, requested) = (events.stack[group[0]], events.stack[next]);
    if freed != StackId::NONE && requested != StackId::NONE {
        return freed == requested;
    }
    garbage || capacity.is_some_and(|capacity| held.saturating_add(events.size_bytes[next]) > capacity)
}

/// Returns the explicit calls that released the group.
fn by_hand(
    snapshot: &PytorchSnapshot,
    group: &[usize],
    last_use: &HashMap<MempoolId, usize>,
    end: usize,
) -> Vec<Release> {
    let pytorch = snapshot.details();
    let mut by_hand = Vec::new();
    for &row in group.iter().filter(|&&row| is_release(snapshot.events.action[row])) {
        let pool = pytorch.events.pool(row, Key::PoolId);
        let release = if pool != (0, 0) && last_use.get(&pool).is_none_or(|&last| last < end) {
            Release::Pool(pool)
        } else {
            Release::Everything
        };
        if !by_hand.contains(&release) {
            by_hand.push(release);
        }
    }
    by_hand
}

/// Returns the index of each private pool's last allocation.
fn last_uses(snapshot: &PytorchSnapshot, rows: &[usize]) -> HashMap<MempoolId, usize> {
    let pytorch = snapshot.details();
    let allocs = rows.iter().enumerate().filter(|(_, row)| snapshot.events.action[**row] == Action::Alloc);
    allocs
        .map(|(place, &row)| (pytorch.events.pool(row, Key::PoolId), place))
        .filter(|(pool, _)| *pool != (0, 0))
        .collect()
}

/// Returns the bytes in segments before each event. They are known at the end, so the events are undone from
/// there.
fn held_before(snapshot: &PytorchSnapshot, device: DeviceId, rows: &[usize]) -> Vec<u64> {
    let at_end: u64 = snapshot
        .segments
        .iter()
        .filter(|segment| segment.device == device)
        .map(|segment| segment.size_bytes)
        .sum();
    let mut held = i128::from(at_end);
    let mut before: Vec<u64> = rows
        .iter()
        .rev()
        .map(|&row| {
            let size = i128::from(snapshot.events.size_bytes[row]);
            match snapshot.events.action[row] {
                Action::SegmentAlloc | Action::SegmentMap => held -= size,
                Action::SegmentFree | Action::SegmentUnmap => held += size,
                _ => {}
            }
            u64::try_from(held).unwrap_or(0)
        })
        .collect();
    before.reverse();
    before
}
