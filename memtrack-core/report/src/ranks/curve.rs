//! The memory of a device over its events, computed in a single pass: the highest level overall, in each step, and in
//! each of several equal time bins. Other levels are not kept, because a trace has millions of events.

use super::digest::Timeline;
use super::steps::Step;
use memtrack_blocks::lifetimes::Lifetime;
use memtrack_blocks::reserved;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;

/// The value for events that do not end any block.
const NONE: u32 = u32::MAX;

/// A device's memory over time.
#[derive(Debug, PartialEq)]
pub(super) struct Curve {
    /// The levels of the requested bytes that were live.
    pub(super) requested: Levels,
    /// The levels of the reserved bytes; `None` if the file has no reserved bytes.
    pub(super) reserved: Option<Levels>,
}

/// The highest levels that a number of bytes reached, including its level before the first event.
#[derive(Debug, PartialEq)]
pub(super) struct Levels {
    /// The highest level.
    pub(super) most: u64,
    /// The row of the event that first reached the highest level; `None` if that was the level before the first event.
    pub(super) row: Option<usize>,
    /// For each step, the highest level during it and the level at its end.
    pub(super) steps: Vec<(u64, u64)>,
    /// The highest level in each time bin.
    pub(super) bins: Vec<u64>,
}

impl Levels {
    /// Caps the levels at `most`. The true level never exceeded `most`, so any excess is an error of the estimate.
    pub(super) fn cap_at(&mut self, most: f64) {
        let lower = |level: &mut u64| *level = (*level).min(most.ceil() as u64);
        lower(&mut self.most);
        self.bins.iter_mut().for_each(lower);
        self.steps.iter_mut().for_each(|(most, end)| {
            lower(most);
            lower(end);
        });
    }
}

/// The times at which a device's trace is divided, in ticks.
pub(super) struct Cuts<'a> {
    /// The tick of the file's first event.
    pub(super) begin: u64,
    /// The tick of the file's last event.
    pub(super) end: u64,
    /// The steps, which do not overlap.
    pub(super) steps: &'a [Step],
    /// The number of time bins, which are equally long.
    pub(super) bins: usize,
}

impl Cuts<'_> {
    fn bin_count(&self) -> usize {
        if self.end > self.begin { self.bins.max(1) } else { 1 }
    }

    /// Returns the last tick that belongs to a bin.
    fn bin_end(&self, bin: usize) -> u64 {
        let span = u128::from(self.end.saturating_sub(self.begin));
        self.begin + (span * (bin as u128 + 1) / self.bin_count() as u128) as u64
    }
}

impl Curve {
    /// Computes the curve of `device`; `lifetimes` are the lifetimes of all its blocks.
    pub(super) fn of(
        snapshot: &Snapshot,
        device: DeviceId,
        lifetimes: &[Lifetime],
        has_reserved_bytes: bool,
        cuts: &Cuts<'_>,
    ) -> Self {
        let mut before = 0i128;
        // At each event, at most one block ends and at most one starts; the lifetimes are sorted by start.
        let mut ended = vec![NONE; snapshot.events.len()];
        for (place, lifetime) in lifetimes.iter().enumerate() {
            if lifetime.from.is_none() {
                before += i128::from(lifetime.bytes);
            }
            if let Some(row) = lifetime.to {
                ended[row] = place as u32;
            }
        }
        let mut begun = lifetimes.iter().filter_map(|one| one.from.map(|row| (row, one.bytes))).peekable();
        let mut requested = LevelTracker::new(before, cuts);
        let mut reserved = has_reserved_bytes.then(|| {
            let changes: i128 =
                snapshot.events.rows_of(device).map(|row| reserved::reserved_change(snapshot, row)).sum();
            LevelTracker::new(reserved::reserved_at_end(snapshot, device) - changes, cuts)
        });
        for row in snapshot.events.rows_of(device) {
            let tick = snapshot.events.ticks[row];
            let mut change = 0i128;
            while let Some((_, bytes)) = begun.next_if(|&(from, _)| from <= row) {
                change += i128::from(bytes);
            }
            if ended[row] != NONE {
                change -= i128::from(lifetimes[ended[row] as usize].bytes);
            }
            requested.visit_event(row, tick, change);
            if let Some(reserved) = &mut reserved {
                reserved.visit_event(row, tick, reserved::reserved_change(snapshot, row));
            }
        }
        Self { requested: requested.finish(), reserved: reserved.map(LevelTracker::finish) }
    }

    /// Returns the highest level in each time bin. The first bin starts at `begin_seconds`, and all bins together last
    /// for `seconds`.
    pub(super) fn timeline(&mut self, begin_seconds: f64, seconds: f64) -> Timeline {
        let requested_bytes = std::mem::take(&mut self.requested.bins);
        Timeline {
            begin_seconds,
            bin_seconds: seconds / requested_bytes.len() as f64,
            reserved_bytes: self.reserved.as_mut().map(|levels| std::mem::take(&mut levels.bins)),
            requested_bytes,
        }
    }
}

/// Tracks the level of a number of bytes as events are visited.
struct LevelTracker<'a> {
    cuts: &'a Cuts<'a>,
    level: i128,
    most: i128,
    row: Option<usize>,
    steps: Section<(u64, u64)>,
    bins: Section<u64>,
}

/// The completed sections of a trace (steps or bins), and the current one.
struct Section<T> {
    done: Vec<T>,
    /// Whether a section is open: it has started and not ended.
    is_open: bool,
    /// The tick at which the open section ends or, if no section is open, at which the next section starts.
    next: u64,
    /// The highest level in the current section so far.
    most: i128,
}

impl<'a> LevelTracker<'a> {
    fn new(before: i128, cuts: &'a Cuts<'a>) -> Self {
        let begin = cuts.steps.first().map_or(u64::MAX, |step| step.begin);
        Self {
            cuts,
            level: before,
            most: before,
            row: None,
            steps: Section {
                done: Vec::with_capacity(cuts.steps.len()),
                is_open: false,
                next: begin,
                most: before,
            },
            bins: Section {
                done: Vec::with_capacity(cuts.bin_count()),
                is_open: true,
                next: cuts.bin_end(0),
                most: before,
            },
        }
    }

    #[inline]
    fn visit_event(&mut self, row: usize, tick: u64, change: i128) {
        if tick > self.bins.next {
            self.complete_bins(tick);
        }
        // An event at the tick at which a step ends still belongs to that step.
        if tick > self.steps.next {
            self.complete_steps(tick);
        }
        if change == 0 {
            return;
        }
        self.level += change;
        if self.level > self.most {
            (self.most, self.row) = (self.level, Some(row));
        }
        self.steps.most = self.steps.most.max(self.level);
        self.bins.most = self.bins.most.max(self.level);
    }

    /// Completes the bins that end before `tick`.
    fn complete_bins(&mut self, tick: u64) {
        while tick > self.bins.next && self.bins.done.len() + 1 < self.cuts.bin_count() {
            self.bins.done.push(clamp(self.bins.most));
            (self.bins.most, self.bins.next) = (self.level, self.cuts.bin_end(self.bins.done.len()));
        }
        if self.bins.done.len() + 1 == self.cuts.bin_count() {
            self.bins.next = u64::MAX;
        }
    }

    /// Starts the steps that start before `tick`, and completes those that end before it.
    fn complete_steps(&mut self, tick: u64) {
        while tick > self.steps.next {
            let Some(step) = self.cuts.steps.get(self.steps.done.len()) else {
                self.steps.next = u64::MAX;
                return;
            };
            if self.steps.is_open {
                self.steps.done.push((clamp(self.steps.most), clamp(self.level)));
                let next = self.cuts.steps.get(self.steps.done.len());
                self.steps.next = next.map_or(u64::MAX, |next| next.begin);
            } else {
                self.steps.next = step.end;
            }
            self.steps.is_open = !self.steps.is_open;
            self.steps.most = self.level;
        }
    }

    fn finish(mut self) -> Levels {
        while self.bins.done.len() < self.cuts.bin_count() {
            self.bins.done.push(clamp(self.bins.most));
            self.bins.most = self.level;
        }
        let is_open = self.steps.is_open;
        for at in self.steps.done.len()..self.cuts.steps.len() {
            // Only the first of the remaining steps can have started.
            let most = if is_open && at == self.steps.done.len() { self.steps.most } else { self.level };
            self.steps.done.push((clamp(most), clamp(self.level)));
            self.steps.is_open = false;
        }
        Levels { most: clamp(self.most), row: self.row, steps: self.steps.done, bins: self.bins.done }
    }
}

fn clamp(bytes: i128) -> u64 {
    u64::try_from(bytes.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track_levels(steps: &[(u64, u64)], bins: usize) -> Levels {
        let steps: Vec<Step> = steps.iter().map(|&(begin, end)| Step { number: 0, begin, end }).collect();
        let cuts = Cuts { begin: 10, end: 40, steps: &steps, bins };
        let mut tracker = LevelTracker::new(5, &cuts);
        for (row, (tick, change)) in [(10, 10), (20, -8), (30, 40), (40, -47)].into_iter().enumerate() {
            tracker.visit_event(row, tick, change);
        }
        tracker.finish()
    }

    #[test]
    fn highest_level_is_first_one_that_reached_it() {
        let found = track_levels(&[], 1);
        assert_eq!((found.most, found.row, found.steps), (47, Some(2), vec![]));
    }

    #[test]
    fn step_includes_memory_live_at_its_beginning() {
        assert_eq!(track_levels(&[(0, 10), (10, 20), (20, 40)], 1).steps, [(15, 15), (15, 7), (47, 0)]);
        assert_eq!(track_levels(&[(20, 29), (30, 90)], 1).steps, [(7, 7), (47, 0)]);
        // Steps without events: before the first event, between events, and after the last event.
        assert_eq!(
            track_levels(&[(1, 2), (11, 12), (12, 13), (41, 50)], 1).steps,
            [(5, 5), (15, 15), (15, 15), (0, 0)]
        );
        assert_eq!(track_levels(&[(40, 40)], 1).steps, [(0, 0)]);
    }

    #[test]
    fn time_without_events_keeps_previous_level() {
        assert_eq!(track_levels(&[], 6).bins, [15, 15, 7, 47, 47, 47]);
        assert_eq!(track_levels(&[], 1).bins, [47]);
        assert_eq!(track_levels(&[], 30).bins.len(), 30);
    }
}
