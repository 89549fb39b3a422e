//! What a device held after each of its events: live and reserved bytes. One walk; steps and the timeline read it.

use super::digest::Timeline;
use crate::analysis::lifetimes::Lifetime;
use crate::analysis::reserved;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;

/// The levels of one device, in the order of its events.
pub(super) struct Curve {
    /// When each event was, in ticks; ascending.
    ticks: Vec<u64>,
    /// Requested bytes that were live before the first event and after each.
    requested: Levels,
    /// Reserved bytes likewise; none where the file does not say.
    reserved: Option<Levels>,
}

/// A number before the first event and after each.
struct Levels {
    before: u64,
    after: Vec<u64>,
}

impl Levels {
    /// From `before` on, by what each event changes.
    fn new(before: i128, changes: impl Iterator<Item = i128>) -> Self {
        let clamped = |bytes: i128| u64::try_from(bytes.max(0)).unwrap_or(u64::MAX);
        let mut level = before;
        let after = changes.map(|change| {
            level += change;
            clamped(level)
        });
        Self { before: clamped(before), after: after.collect() }
    }

    /// After the first `events`.
    fn at(&self, events: usize) -> u64 {
        events.checked_sub(1).map_or(self.before, |last| self.after[last])
    }

    /// The most from before event `from` to after the event before `to`.
    fn most(&self, from: usize, to: usize) -> u64 {
        self.after[from..to].iter().copied().max().unwrap_or(0).max(self.at(from))
    }
}

impl Curve {
    /// That of `device`, whose blocks lived for `lifetimes`.
    pub(super) fn of(
        snapshot: &Snapshot,
        device: DeviceId,
        lifetimes: &[Lifetime],
        tells_reserved: bool,
    ) -> Self {
        let rows: Vec<usize> = snapshot.events.rows_of(device).collect();
        let first = rows.first().copied().unwrap_or(0);
        // The rows of a device lie together in PyTorch's files, and those of a recording are mostly of one.
        let mut changes = vec![0i128; rows.last().map_or(0, |last| last + 1 - first)];
        let mut before = 0i128;
        for lifetime in lifetimes {
            match lifetime.from {
                Some(row) => changes[row - first] += i128::from(lifetime.bytes),
                None => before += i128::from(lifetime.bytes),
            }
            if let Some(row) = lifetime.to {
                changes[row - first] -= i128::from(lifetime.bytes);
            }
        }
        let reserved = tells_reserved.then(|| {
            let all: i128 = rows.iter().map(|&row| reserved::change(snapshot, row)).sum();
            let changes = rows.iter().map(|&row| reserved::change(snapshot, row));
            Levels::new(reserved::at_end(snapshot, device) - all, changes)
        });
        Self {
            ticks: rows.iter().map(|&row| snapshot.events.ticks[row]).collect(),
            requested: Levels::new(before, rows.iter().map(|&row| changes[row - first])),
            reserved,
        }
    }

    /// What was held between two moments, in ticks, the later one included: the most that was live, the most that was
    /// reserved, and what was live at the later moment.
    pub(super) fn between(&self, begin: u64, end: u64) -> (u64, Option<u64>, u64) {
        let after = |tick: u64| self.ticks.partition_point(|&at| at <= tick);
        // What happens at its beginning belongs to it, unless it was the end of the step before.
        let (from, to) = (after(begin), after(end).max(after(begin)));
        let reserved = self.reserved.as_ref().map(|levels| levels.most(from, to));
        (self.requested.most(from, to), reserved, self.requested.at(to))
    }

    /// In `bins` equal times from tick `begin` to `end`; `seconds` tells how long so many ticks are.
    pub(super) fn timeline(
        &self,
        begin: u64,
        end: u64,
        bins: usize,
        begin_seconds: f64,
        seconds: f64,
    ) -> Timeline {
        let span = end.saturating_sub(begin);
        let bins = if span == 0 { 1 } else { bins.max(1) };
        let mut requested = Vec::with_capacity(bins);
        let mut reserved = self.reserved.as_ref().map(|_| Vec::with_capacity(bins));
        let mut from = 0;
        for bin in 1..=bins as u128 {
            let until = begin + (u128::from(span) * bin / bins as u128) as u64;
            let to = from + self.ticks[from..].partition_point(|&at| at <= until);
            requested.push(self.requested.most(from, to));
            if let (Some(list), Some(levels)) = (&mut reserved, &self.reserved) {
                list.push(levels.most(from, to));
            }
            from = to;
        }
        Timeline {
            begin_seconds,
            bin_seconds: if span == 0 { 0.0 } else { seconds / bins as f64 },
            requested_bytes: requested,
            reserved_bytes: reserved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve() -> Curve {
        let reserved = Levels::new(100, [0, 0, 50, 0].into_iter());
        Curve {
            ticks: vec![10, 20, 30, 40],
            requested: Levels::new(5, [10, -8, 40, -47].into_iter()),
            reserved: Some(reserved),
        }
    }

    #[test]
    fn a_step_has_what_was_there_when_it_began() {
        assert_eq!(curve().between(0, 10), (15, Some(100), 15));
        assert_eq!(curve().between(10, 20), (15, Some(100), 7));
        assert_eq!(curve().between(20, 40), (47, Some(150), 0));
        assert_eq!(curve().between(40, 90), (0, Some(150), 0));
        // The clock of a damaged file may run backwards.
        assert_eq!(curve().between(40, 10), (0, Some(150), 0));
    }

    #[test]
    fn a_time_in_which_nothing_happens_holds_what_was_there() {
        let line = curve().timeline(10, 40, 6, 0.0, 3.0);
        assert_eq!(line.requested_bytes, [15, 15, 7, 47, 47, 47]);
        assert_eq!(line.reserved_bytes.unwrap(), [100, 100, 100, 150, 150, 150]);
        assert_eq!(line.bin_seconds, 0.5);
        assert_eq!(curve().timeline(10, 10, 6, 0.0, 0.0).requested_bytes, [15]);
    }
}
