//! Determines why segments were released, because a trace contains the releases but not their causes. A request
//! that finds no memory releases cached memory, and then either allocates a segment or fails; any other release
//! came from an explicit call by the program.

use crate::settings::sizes::SMALL_BUFFER;
use crate::{MempoolId, Settings};
use memtrack_blocks::reserved::reserved_over_time;
use memtrack_model::event::{Action, DeviceId, StackId};
use memtrack_model::snapshot::Snapshot;
use std::collections::HashMap;

/// The reason segments were released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// The next request released the segments to make room.
    ForRequest,
    /// The program emptied the cache.
    EmptyCache,
    /// The program dropped a private pool.
    Pool(MempoolId),
}

/// The releases in a trace.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// The causes of each series of releases. The key is the index in the trace of the first release in the series for
    /// [`Release::ForRequest`], and of the last release for other causes.
    by_index: HashMap<usize, Vec<Release>>,
    /// The maximum sum of reserved and free memory at times when memory ran out, in bytes; `None` if memory never ran
    /// out.
    pub(super) capacity: Option<u64>,
}

fn is_release(action: Action) -> bool {
    matches!(action, Action::SegmentFree | Action::SegmentUnmap)
}

impl Releases {
    /// Finds the causes of the releases among the events `rows` of `device`, recorded under `settings` if the
    /// settings are known.
    pub(super) fn of(
        snapshot: &Snapshot,
        device: DeviceId,
        rows: &[usize],
        capacity: Option<u64>,
        settings: Option<&str>,
    ) -> Self {
        let settings = settings.and_then(|text| Settings::parse(text).ok()).unwrap_or_default();
        let threshold = settings.options().garbage_collection_threshold;
        let reserved = reserved_before(snapshot, device, rows);
        let events = &snapshot.events;
        let ooms = rows.iter().zip(&reserved).filter(|(row, _)| events.action[**row] == Action::Oom);
        let seen = ooms.map(|(&row, reserved)| events.address[row].saturating_add(*reserved)).max();
        let mut releases = Self { by_index: HashMap::new(), capacity: seen };
        let capacity = capacity.or(seen);
        let last_use = find_last_uses(snapshot, rows);
        let mut index = 0;
        while index < rows.len() {
            if !is_release(events.action[rows[index]]) {
                index += 1;
                continue;
            }
            let start = index;
            let mut end = index;
            // A request that waits for other streams completes frees between its releases.
            while end < rows.len()
                && (is_release(events.action[rows[end]]) || events.action[rows[end]] == Action::FreeCompleted)
            {
                end += 1;
            }
            let group = &rows[start..end];
            let garbage = threshold > 0.0
                && capacity.is_some_and(|capacity| reserved[start] as f64 > threshold * capacity as f64)
                && group.iter().all(|&row| may_be_garbage(snapshot, row));
            if is_for_request(snapshot, group, rows.get(end).copied(), reserved[start], capacity, garbage) {
                releases.by_index.insert(start, vec![Release::ForRequest]);
            } else {
                let explicit_releases = find_explicit_releases(snapshot, group, &last_use, end);
                releases.by_index.insert(end - 1, explicit_releases);
            }
            index = end;
        }
        releases
    }

    /// Returns the causes of the releases at an index in the trace.
    pub(super) fn releases_at(&self, index: usize) -> &[Release] {
        self.by_index.get(&index).map_or(&[], Vec::as_slice)
    }
}

/// Returns whether garbage collection may have released a segment. It releases only large segments of the default pool.
fn may_be_garbage(snapshot: &Snapshot, row: usize) -> bool {
    let pool = snapshot.event_pool(row);
    let events = &snapshot.events;
    events.action[row] == Action::SegmentFree && events.size_bytes[row] > SMALL_BUFFER && pool == (0, 0)
}

/// Returns whether the group was released by a request that needed room; `next` is the event after the group. If
/// `garbage` is true, garbage collection may have released the group long before memory ran out.
fn is_for_request(
    snapshot: &Snapshot,
    group: &[usize],
    next: Option<usize>,
    reserved: u64,
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
    // Releases by a request have the request's stack.
    let (freed, requested) = (events.stack[group[0]], events.stack[next]);
    if freed != StackId::NONE && requested != StackId::NONE {
        return freed == requested;
    }
    garbage || capacity.is_some_and(|capacity| reserved.saturating_add(events.size_bytes[next]) > capacity)
}

/// Returns the explicit calls that released the group.
fn find_explicit_releases(
    snapshot: &Snapshot,
    group: &[usize],
    last_use: &HashMap<MempoolId, usize>,
    end: usize,
) -> Vec<Release> {
    let mut explicit_releases = Vec::new();
    for &row in group.iter().filter(|&&row| is_release(snapshot.events.action[row])) {
        let pool = snapshot.event_pool(row);
        let release = if pool != (0, 0) && last_use.get(&pool).is_none_or(|&last| last < end) {
            Release::Pool(pool)
        } else {
            Release::EmptyCache
        };
        if !explicit_releases.contains(&release) {
            explicit_releases.push(release);
        }
    }
    explicit_releases
}

/// Returns the index of the last allocation in each private pool.
fn find_last_uses(snapshot: &Snapshot, rows: &[usize]) -> HashMap<MempoolId, usize> {
    let allocs = rows.iter().enumerate().filter(|(_, row)| snapshot.events.action[**row] == Action::Alloc);
    allocs
        .map(|(index, &row)| (snapshot.event_pool(row), index))
        .filter(|(pool, _)| *pool != (0, 0))
        .collect()
}

/// Returns the number of bytes in segments before each event.
fn reserved_before(snapshot: &Snapshot, device: DeviceId, rows: &[usize]) -> Vec<u64> {
    let (mut reserved, changes) = reserved_over_time(snapshot, device);
    let mut changes = changes.peekable();
    let mut pass = |&row: &usize| {
        let after = changes.next_if(|(changed, _)| *changed == row).map_or(reserved, |(_, after)| after);
        std::mem::replace(&mut reserved, after)
    };
    rows.iter().map(&mut pass).collect()
}
