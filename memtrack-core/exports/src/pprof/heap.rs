//! The heap profile of a running program, as Go's `/debug/pprof/heap` has it: what is in use now, and what was allocated
//! since monitoring began; or how both have changed since an earlier moment.
//!
//! The recorder keeps the newest events and all live blocks. So the stacks of memory in use are known, but the stacks of
//! blocks that were freed long ago are not. The recorder's totals are exact, and the difference between them and the
//! blocks whose stacks are known is one sample without a stack ([`REST`]), so that a part is never shown as the whole.

use super::{Builder, CarriedRounding, Part, Row, SAMPLE_TYPES, compress, estimates_comment};
use crate::usage::{Counts, Group, TotalSums};
use memtrack_blocks::estimate::Precision;
use memtrack_blocks::lifetimes::{Lifetime, lifetimes};
use memtrack_blocks::net::net;
use memtrack_blocks::origin::Origins;
use memtrack_frames::ownership::Rules;
use memtrack_model::Snapshot;
use memtrack_model::event::{DeviceId, ScopeId};
use memtrack_model::units::{counted, human_bytes};
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;
use std::io::{self, Write};

/// The function name of the sample for allocations whose stacks are not known any more.
pub const REST: &str = "(freed long ago: stack no longer kept)";

/// The sample type that tools show first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstValue {
    /// `inuse_space`, as in Go's `/debug/pprof/heap`.
    #[default]
    InUse,
    /// `alloc_space`, as in Go's `/debug/pprof/allocs`.
    Allocated,
}

/// The sums of an earlier snapshot of the same session, from which a profile of the changes since then is made. It has one
/// entry for each stack with live blocks.
#[derive(Clone, Debug)]
pub struct Earlier {
    /// The clock's first reading, which differs between sessions.
    session: (u64, u64),
    taken_ns: u64,
    /// The newest event or block in the snapshot.
    newest_ticks: u64,
    devices: HashMap<DeviceId, EarlierDevice>,
}

#[derive(Clone, Debug, Default)]
struct EarlierDevice {
    in_use: HashMap<Group, Counts, foldhash::fast::RandomState>,
    /// The exact numbers of blocks and bytes that had been allocated.
    allocated: [u64; 2],
}

impl Earlier {
    /// Adds up what is in use in a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let newest_event = snapshot.events.ticks.iter().copied().max().unwrap_or(0);
        let newest_block = snapshot.blocks.iter().map(|block| block.ticks).max().unwrap_or(0);
        let devices = snapshot.device_ids().into_iter().map(|device| {
            let sums = HeapSums::of(snapshot, device, None);
            let in_use = sums.rows.into_iter().map(|row| (row.group, row.in_use)).collect();
            (
                device,
                EarlierDevice { in_use, allocated: exact_allocated(snapshot, device).unwrap_or_default() },
            )
        });
        Self {
            session: snapshot.clock.first,
            taken_ns: snapshot.clock.last.1,
            newest_ticks: newest_event.max(newest_block),
            devices: devices.collect(),
        }
    }
}

/// Writes the profile of all devices of a snapshot that was taken just now, as gzip. If `since` is given, the values are the
/// differences to that snapshot, which may be negative for memory in use.
///
/// # Errors
/// Fails if `out` cannot be written, or if `since` belongs to another session.
pub fn write(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    since: Option<&Earlier>,
    first: FirstValue,
    out: &mut dyn Write,
) -> io::Result<()> {
    if since.is_some_and(|since| since.session != snapshot.clock.first) {
        return Err(io::Error::other("monitoring was stopped and started again in between"));
    }
    let devices = snapshot.device_ids().into_iter();
    let parts = devices.map(|device| part(snapshot, device, since)).collect();
    let note = match since {
        None => {
            "alloc: since monitoring began; inuse: what was allocated since then and is live now; bytes are requested bytes"
        }
        Some(_) => "the changes between two moments; bytes are requested bytes",
    };
    let first = match first {
        FirstValue::InUse => SAMPLE_TYPES[3].0,
        FirstValue::Allocated => SAMPLE_TYPES[1].0,
    };
    let rules = Rules::new();
    let mut profile = Builder::new(snapshot, symbols, &rules).build(parts, note, first);
    let now_ns = snapshot.clock.last.1;
    profile.time_nanos = i64::try_from(now_ns).unwrap_or(0);
    let duration_ns = since.map_or(0, |since| now_ns.saturating_sub(since.taken_ns));
    profile.duration_nanos = i64::try_from(duration_ns).unwrap_or(0);
    compress(&profile, out)
}

/// Returns the exact numbers of blocks and bytes allocated on a device since monitoring began; `None` if they were not
/// counted.
fn exact_allocated(snapshot: &Snapshot, device: DeviceId) -> Option<[u64; 2]> {
    snapshot.exact_counts(device).map(|counts| [counts.allocations, counts.allocated_bytes])
}

fn part(snapshot: &Snapshot, device: DeviceId, since: Option<&Earlier>) -> Part {
    let none = EarlierDevice::default();
    let earlier = since.map(|since| since.devices.get(&device).unwrap_or(&none));
    let sums = HeapSums::of(snapshot, device, since.map(|since| since.newest_ticks));
    let name = snapshot.device_name(device);
    let (mut allocated, mut in_use) = (CarriedRounding::default(), CarriedRounding::default());
    let mut before_rounding = CarriedRounding::default();
    let mut gone = earlier.map(|earlier| earlier.in_use.clone()).unwrap_or_default();
    let mut rows = Vec::new();
    let mut stacks = [0; 2];
    for row in &sums.rows {
        let [blocks, bytes] = allocated.round_values(row.allocated);
        let mut now = in_use.round_values(row.in_use);
        if let Some(before) = gone.remove(&row.group) {
            let before = before_rounding.round_values(before);
            now = [now[0] - before[0], now[1] - before[1]];
        }
        stacks = [stacks[0] + blocks, stacks[1] + bytes];
        rows.push(Row { group: row.group, values: [blocks, bytes, now[0], now[1]] });
    }
    for (group, before) in gone {
        let [blocks, bytes] = before_rounding.round_values(before);
        rows.push(Row { group, values: [0, 0, -blocks, -bytes] });
    }
    rows.retain(|row| row.values != [0; 4]);
    let exact = exact_allocated(snapshot, device).map(|exact| {
        let before = earlier.map_or([0; 2], |earlier| earlier.allocated);
        [exact[0].saturating_sub(before[0]), exact[1].saturating_sub(before[1])]
    });
    let is_estimate = sums.in_use_sum.is_estimate() || sums.allocated_sum.is_estimate();
    let was_dropped = snapshot.exact_counts(device).is_some_and(|counts| counts.dropped > 0);
    // If no event was dropped, the difference between an estimate and the exact total is only its error.
    let rest = exact.filter(|_| was_dropped || !is_estimate).map(|exact| {
        let rest = |place: usize| {
            i64::try_from(exact[place]).unwrap_or(i64::MAX).saturating_sub(stacks[place]).max(0)
        };
        (REST, [rest(0), rest(1), 0, 0])
    });
    let mut comments = Vec::new();
    if since.is_none() {
        comments.push(format!("{name}: inuse: {} now", sums.in_use_sum.to_text()));
        if let Some(net) = net(snapshot, device).filter(|_| is_estimate) {
            comments.push(format!(
                "{name}: inuse: counted exactly: {} bytes in {} blocks more allocated than freed since monitoring began",
                net.bytes, net.blocks
            ));
        }
    }
    comments.push(format!("{name}: alloc: {} whose stacks are kept", sums.allocated_sum.to_text()));
    if let Some([blocks, bytes]) = exact {
        let all = format!("{} in {}", human_bytes(bytes), counted(blocks, "block"));
        comments.push(format!("{name}: alloc: counted exactly: {all}"));
    }
    if is_estimate {
        comments.push(estimates_comment(&name));
    }
    Part { name, rows, rest: rest.filter(|(_, values)| *values != [0; 4]), comments }
}

/// The blocks of a device by group: those allocated, and those in use.
struct HeapSums {
    rows: Vec<GroupSums>,
    allocated_sum: crate::usage::Total,
    in_use_sum: crate::usage::Total,
}

struct GroupSums {
    group: Group,
    allocated: Counts,
    in_use: Counts,
}

impl HeapSums {
    /// Adds up the live blocks, and the blocks that were allocated, or allocated after `since`, as far as their stacks are
    /// known.
    fn of(snapshot: &Snapshot, device: DeviceId, since: Option<u64>) -> Self {
        let lifetimes = lifetimes(snapshot, device);
        let precision = Precision::of(snapshot, device, &lifetimes);
        let origins = Origins::of(snapshot, &lifetimes);
        let mut indices: HashMap<Group, usize, foldhash::fast::RandomState> = HashMap::default();
        let mut rows: Vec<GroupSums> = Vec::new();
        let (mut allocated_sum, mut in_use_sum) = (TotalSums::default(), TotalSums::default());
        for lifetime in &lifetimes {
            let is_live = lifetime.to.is_none();
            let is_counted =
                allocated_at(snapshot, lifetime).is_some_and(|ticks| since.is_none_or(|since| ticks > since));
            if !is_live && !is_counted {
                continue;
            }
            let scope = if lifetime.known { lifetime.scope } else { ScopeId::NONE };
            let group = Group { origin: origins.origin(lifetime), scope, stream: lifetime.stream(snapshot) };
            let index = *indices.entry(group).or_insert_with(|| {
                rows.push(GroupSums { group, allocated: Counts::default(), in_use: Counts::default() });
                rows.len() - 1
            });
            if is_counted {
                rows[index].allocated.add(lifetime.blocks, lifetime.bytes);
                allocated_sum.add(lifetime);
            }
            if is_live {
                rows[index].in_use.add(lifetime.blocks, lifetime.bytes);
                in_use_sum.add(lifetime);
            }
        }
        Self {
            rows,
            allocated_sum: allocated_sum.total(&precision),
            in_use_sum: in_use_sum.total(&precision),
        }
    }
}

/// Returns the time of a block's allocation, in ticks; `None` if only its free is known. A live block of the recorder was
/// allocated since monitoring began, even if the ring has dropped the event.
fn allocated_at(snapshot: &Snapshot, lifetime: &Lifetime) -> Option<u64> {
    let of_event = lifetime.from.map(|row| snapshot.events.ticks[row]);
    of_event.or_else(|| snapshot.blocks.get(lifetime.block? as usize).map(|block| block.ticks))
}

#[cfg(test)]
mod tests {
    use super::super::messages::Profile;
    use super::*;
    use crate::fixtures::{full_recording, read_snapshots};
    use crate::usage::Usage;
    use flate2::read::GzDecoder;
    use memtrack_blocks::moment::Moment;
    use memtrack_model::snapshot::DeviceStatistics;
    use prost::Message;
    use std::io::Read;

    fn profile(snapshot: &Snapshot, since: Option<&Earlier>) -> Profile {
        let mut compressed = Vec::new();
        let mut symbols = Symbolizer::of(snapshot);
        write(snapshot, &mut symbols, since, FirstValue::InUse, &mut compressed).unwrap();
        let mut bytes = Vec::new();
        GzDecoder::new(&compressed[..]).read_to_end(&mut bytes).unwrap();
        Profile::decode(&bytes[..]).unwrap()
    }

    /// Returns the sums of the values of a device's samples, without or with only the sample of [`REST`].
    fn sums(profile: &Profile, device: &str, rest: bool) -> [i64; 4] {
        let text = |row: i64| &*profile.string_table[row as usize];
        let name_of = |id: u64| {
            let location = &profile.location[id as usize - 1];
            let function = location.line.first().map(|line| &profile.function[line.function_id as usize - 1]);
            function.map_or("", |function| text(function.name))
        };
        let mut sums = [0; 4];
        for sample in &profile.sample {
            let of_device =
                sample.label.iter().any(|label| text(label.key) == "device" && text(label.text) == device);
            let is_rest = sample.location_id.first().is_some_and(|&id| name_of(id) == REST);
            if of_device && is_rest == rest {
                sums.iter_mut().zip(&sample.value).for_each(|(sum, value)| *sum += value);
            }
        }
        sums
    }

    #[test]
    fn memory_in_use_is_that_of_other_exports_at_the_end() {
        let mut devices = 0;
        for (name, snapshot) in read_snapshots() {
            let profile = profile(&snapshot, None);
            for device in snapshot.device_ids() {
                let expected = Usage::of(&snapshot, device, &[Moment::End], true).in_use[0].counts;
                let [_, _, blocks, bytes] = sums(&profile, &snapshot.device_name(device), false);
                assert_eq!(bytes as u64, expected.bytes, "{name} {device}");
                assert!((blocks as f64 - expected.blocks).abs() <= 1.0, "{name} {device}: {blocks}");
                devices += 1;
            }
        }
        assert!(devices > 8, "{devices}");
    }

    /// The recording with exact counts: more was allocated than its events show.
    fn counted_recording() -> Snapshot {
        let mut snapshot = full_recording();
        snapshot.devices = vec![DeviceStatistics {
            recorded: 17,
            dropped: 10,
            allocated_bytes: 20_000,
            freed_bytes: 16_500,
            allocations: 12,
            frees: 9,
            ..DeviceStatistics::of(DeviceId(0))
        }];
        snapshot
    }

    #[test]
    fn allocations_without_a_stack_are_one_sample_and_the_sum_is_exact() {
        let profile = profile(&counted_recording(), None);
        // Three events, and a live block whose event was dropped.
        assert_eq!(sums(&profile, "device 0", false), [4, 4096 + 1000 + 2000 + 500, 3, 3500]);
        assert_eq!(sums(&profile, "device 0", true), [12 - 4, 20_000 - 7596, 0, 0]);
        let comments: Vec<&str> =
            profile.comment.iter().map(|&row| &*profile.string_table[row as usize]).collect();
        assert!(comments.contains(&"device 0: inuse: 3.4 KiB in 3 blocks now"), "{comments:?}");
        assert!(
            comments.contains(&"device 0: alloc: counted exactly: 19.5 KiB in 12 blocks"),
            "{comments:?}"
        );
    }

    #[test]
    fn a_difference_has_what_changed() {
        let mut before = counted_recording();
        let earlier = Earlier::of(&before);
        let same = profile(&before, Some(&earlier));
        assert!(same.sample.is_empty(), "{:?}", same.sample);
        // Later, one block was freed and another allocated; an allocation and its free were dropped.
        let mut after = before.clone();
        after.blocks.remove(0);
        let mut event = after.events.get(2);
        (event.ticks, event.action) = (80, memtrack_model::event::Action::Free);
        after.events.push(&event);
        (event.ticks, event.action, event.size_bytes, event.address) =
            (90, memtrack_model::event::Action::Alloc, 700, 0x10_2000);
        after.events.push(&event);
        after.blocks.push(memtrack_model::snapshot::LiveBlock::of_allocation(&event));
        after.devices[0].allocated_bytes += 700 + 64;
        after.devices[0].allocations += 2;
        after.clock.last.1 += 5_000_000_000;
        let changes = profile(&after, Some(&earlier));
        assert_eq!(sums(&changes, "device 0", false), [1, 700, 0, 700 - 1000]);
        assert_eq!(sums(&changes, "device 0", true), [1, 64, 0, 0]);
        assert_eq!(changes.duration_nanos, 5_000_000_000);
        // Another session cannot be compared.
        before.clock.first.1 += 1;
        let refused =
            write(&before, &mut Symbolizer::of(&before), Some(&earlier), FirstValue::InUse, &mut io::sink());
        assert!(refused.unwrap_err().to_string().contains("stopped and started again"));
    }
}
