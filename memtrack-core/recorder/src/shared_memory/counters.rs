//! The numbers that the process reports to the command in addition to its events: see [`Counter`] and [`CountedPeak`].

use super::arena::arena;
use super::layout::Counter;
use memtrack_model::snapshot::CountedPeak;
use std::sync::atomic::Ordering;

/// Adds to a counter of this process, if recording goes to shared memory.
pub(crate) fn count(counter: Counter, more: u64) {
    if let Some(arena) = arena() {
        arena.process().counters[counter as usize].fetch_add(more, Ordering::Relaxed);
    }
}

/// Adds to a counter that also falls (`more` may be negative, wrapped), and raises the counter of its highest value.
pub(crate) fn add_to_level(level: Counter, highest: Counter, more: u64) {
    if let Some(arena) = arena() {
        let counters = &arena.process().counters;
        let now = counters[level as usize].fetch_add(more, Ordering::Relaxed).wrapping_add(more);
        counters[highest as usize].fetch_max(now, Ordering::Relaxed);
    }
}

/// Adds to the sums of sampling, in nanoseconds, and sets the widest interval so far.
pub(crate) fn publish_sampling(cpu_ns: u64, exact_ns: u64, spent_ns: u64, widest_interval_bytes: u64) {
    if let Some(arena) = arena() {
        let counters = &arena.process().counters;
        let add = |counter: Counter, more| counters[counter as usize].fetch_add(more, Ordering::Relaxed);
        add(Counter::CpuNs, cpu_ns);
        add(Counter::ExactNs, exact_ns);
        add(Counter::SpentNs, spent_ns);
        counters[Counter::WidestIntervalBytes as usize].fetch_max(widest_interval_bytes, Ordering::Relaxed);
    }
}

/// Sets the counted peak so far. Only the thread that observes the sums may call this.
#[inline]
pub(crate) fn publish_counted_peak(peak: &CountedPeak) {
    if let Some(arena) = arena() {
        let words = [1, peak.ticks, peak.bytes, peak.most_bytes, peak.since_ticks, peak.until_ticks];
        arena.process().peak.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }
}
