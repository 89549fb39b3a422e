//! Byte sampling as in jemalloc and tcmalloc: a countdown of bytes precedes each sample, and after each sample, a new
//! gap is drawn from an exponential distribution. A block of size s is then sampled with probability 1 − e^(−s/mean),
//! independently of earlier blocks, and weighting it by the inverse
//! ([`sampling_weight`](memtrack_model::event::sampling_weight)) keeps totals unbiased. A mean of 0 samples every
//! block. With a budget, the mean follows the load, each sample's event contains the mean at which it was taken, and a
//! block counts for more bytes than its size, so that the smallest blocks are sampled too.

use super::Countdown;
use super::budget::{Activity, Cost, Ledger, interval, min_class, sample_block_bytes};
use crate::clock::{ns_per_tick, thread_cpu_ns, ticks};
use crate::settings::{Rules, sampling};
use crate::shared_memory;
use memtrack_model::event::EventFlags;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

/// The maximum number of recorded blocks between two settlements of a thread's ledger.
const SETTLE_BLOCKS: u32 = 1024;
/// The time after which the next recorded block settles the ledger, in nanoseconds.
const SETTLE_NS: f64 = 4e6;
/// How long a thread that records few blocks reuses a measurement of the live table's size, in nanoseconds. A
/// measurement takes a few microseconds, because the shards are not in the caches.
const REMEASURE_INTERVAL_NS: f64 = 64e6;
/// The assumed cost of a recorded block and its free before it has been measured, in nanoseconds.
const UNMEASURED_PAIR_NS: f64 = 400.0;

/// What a sampler needs of the recorder.
pub(crate) trait Recording {
    /// Returns the number of blocks in the live table. Takes a microsecond or two.
    fn live_blocks() -> u64;
    /// Called before blocks are counted that are not recorded.
    fn begin_counting();
}

/// The sampling state of one thread. The countdown itself is in the thread's [`Countdown`], which is passed to every
/// function that changes it.
pub(crate) struct Sampler<R> {
    /// The number of the session whose rules are in use.
    session: u64,
    /// The mean gap, in bytes, that the countdown was drawn with, or 0 if every block is sampled.
    mean_bytes: u64,
    /// The flags for the events of sampled blocks.
    flags: EventFlags,
    random: u64,
    /// The bytes of the gap that remain when the current countdown ends. A gap is counted down in pieces, and the
    /// counted peak (`counted_peak`) is updated after each piece, so that memory cannot be allocated and freed for
    /// long without an update.
    rest: i64,
    /// Whether a piece of the gap has ended since [`Self::take_piece_ended`] was last called.
    piece_ended: bool,
    /// The additional state for a budget; `None` without a budget.
    budgeted: Option<BudgetState>,
    recording: PhantomData<R>,
}

/// The additional state of a thread with a budget.
struct BudgetState {
    budget: f64,
    max_live: u64,
    ledger: Ledger,
    /// The cost of recording a block.
    alloc: Cost,
    /// The cost of recording the free of a block.
    free: Cost,
    /// The ticks at the start of the call being timed, or 0 if no call is being timed.
    timed_from: u64,
    /// The bytes until the next sample when `small_bytes` was last updated or a new gap was drawn.
    bytes_set: i64,
    small_bytes: u64,
    picked: u32,
    recorded: u32,
    /// The number of recorded blocks at which the next settlement is due.
    max_recorded: u32,
    /// The stamp at which the next settlement is due.
    due_ticks: u64,
    // The clocks and counters at the last settlement.
    last_ticks: u64,
    last_cpu_ns: u64,
    last_blocks: u64,
    min_class: u8,
    /// The number of blocks recorded since the live table's size was last measured.
    unmeasured: u32,
    /// The stamp at which the next measurement is due.
    measure_ticks: u64,
}

impl<R: Recording> Sampler<R> {
    /// Creates a sampler, which reads the rules when it is first used.
    pub(crate) fn new() -> Self {
        // Use a different seed for each thread, from an address on the thread's stack and the time.
        let here = 0_u8;
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = (&raw const here as u64).rotate_left(32) ^ time.map_or(0, |time| time.as_nanos() as u64);
        Self::seeded(seed)
    }

    /// Creates a sampler with `seed`.
    fn seeded(seed: u64) -> Self {
        let flags = EventFlags::SAMPLED;
        Self {
            session: 0,
            mean_bytes: 0,
            flags,
            random: seed,
            rest: 0,
            piece_ended: false,
            budgeted: None,
            recording: PhantomData,
        }
    }

    /// Decides whether a block of `size_bytes` is sampled in `session`. If so, returns the flags for its event.
    #[inline(always)]
    pub(crate) fn pick(
        &mut self,
        countdown: &Countdown,
        size_bytes: u64,
        session: u64,
    ) -> Option<EventFlags> {
        if session != self.session {
            self.restart(countdown, session);
        }
        countdown.set_left(countdown.left_after(size_bytes));
        if countdown.left() > 0 || self.rest > 0 && self.next_piece(countdown) {
            return None;
        }
        Some(self.take_sample(countdown))
    }

    /// Starts the next piece of the gap, and returns whether there is one.
    #[cold]
    fn next_piece(&mut self, countdown: &Countdown) -> bool {
        let left = self.left(countdown);
        self.set_left(countdown, left);
        self.piece_ended = left > 0;
        self.piece_ended
    }

    /// Returns whether a piece of the gap has ended since the last call, so that the counted peak must be updated.
    #[inline(always)]
    pub(crate) fn take_piece_ended(&mut self) -> bool {
        std::mem::take(&mut self.piece_ended)
    }

    /// Returns the rest of the gap, in bytes.
    fn left(&self, countdown: &Countdown) -> i64 {
        countdown.left() + self.rest
    }

    /// Sets the rest of the gap, in bytes. It is counted down in pieces as long as the mean gap.
    fn set_left(&mut self, countdown: &Countdown, bytes: i64) {
        let piece = bytes.min(i64::try_from(self.mean_bytes).unwrap_or(i64::MAX).max(1));
        countdown.set_left(piece);
        self.rest = bytes - piece;
    }

    /// Restarts with the rules of `session`, at the thread's first block in that session.
    #[cold]
    fn restart(&mut self, countdown: &Countdown, session: u64) {
        self.session = session;
        // Make the rules visible. They were written before the session's number.
        std::sync::atomic::fence(Ordering::Acquire);
        self.start(countdown, sampling());
        countdown.refresh(session);
    }

    /// Updates the thread's copy of the settings for `session`.
    #[cold]
    pub(crate) fn refresh(&mut self, countdown: &Countdown, session: u64) {
        if session != self.session {
            self.restart(countdown, session);
        }
    }

    fn start(&mut self, countdown: &Countdown, rules: Rules) {
        self.flags = EventFlags::SAMPLED;
        self.mean_bytes = rules.mean_bytes;
        countdown.set_block_bytes(sample_block_bytes(rules.budget));
        self.budgeted = (rules.budget > 0.0).then(|| BudgetState::new(rules));
        self.set_left(countdown, 0);
        match self.budgeted.as_ref().map(|budgeted| budgeted.ledger.class()) {
            Some(class) => self.change(countdown, class),
            None => {
                if self.mean_bytes > 0 {
                    R::begin_counting();
                }
                let gap = self.gap();
                self.set_left(countdown, gap);
            }
        }
    }

    /// Samples the current block and draws the next gap.
    #[inline(never)]
    fn take_sample(&mut self, countdown: &Countdown) -> EventFlags {
        let flags = self.flags;
        let consumed = self.left(countdown);
        let gap = if self.mean_bytes == 0 { 0 } else { self.gap() };
        self.set_left(countdown, gap);
        if let Some(budgeted) = &mut self.budgeted {
            budgeted.picked(consumed, gap, self.random);
        }
        flags
    }

    /// Accounts for a block, sampled or large, that was recorded with `stamp`. `blocks` is the number of blocks that
    /// the thread has allocated so far.
    #[inline(always)]
    pub(crate) fn recorded(&mut self, countdown: &Countdown, is_small: bool, stamp: u64, blocks: u64) {
        let left = self.left(countdown);
        let Some(budgeted) = &mut self.budgeted else { return };
        if budgeted.recorded(is_small, stamp) {
            let class = budgeted.settle(left, blocks, R::live_blocks);
            self.change(countdown, class);
        }
    }

    /// Starts timing the recording of a free, if this free is due to be timed. Returns the argument for [`Self::end_free`].
    #[inline(always)]
    pub(crate) fn begin_free(&mut self) -> u64 {
        match &mut self.budgeted {
            Some(budgeted) => budgeted.begin_free(self.random),
            None => 0,
        }
    }

    /// Finishes timing the recording of a free.
    #[inline(always)]
    pub(crate) fn end_free(&mut self, begun: u64) {
        if begun != 0
            && let Some(budgeted) = &mut self.budgeted
        {
            budgeted.free.add(ticks().saturating_sub(begun));
        }
    }

    /// Switches to the sampling interval of `class`. The rest of the gap keeps its length in units of the mean, because
    /// the exponential distribution is memoryless.
    fn change(&mut self, countdown: &Countdown, class: u8) {
        let mean_bytes = interval(class);
        if mean_bytes > 0 {
            R::begin_counting();
        }
        let left = self.left(countdown);
        if let Some(budgeted) = &mut self.budgeted {
            budgeted.count_bytes(left);
        }
        if mean_bytes == self.mean_bytes && left > 0 {
            return;
        }
        let left = match (self.mean_bytes, mean_bytes) {
            (_, 0) => 0,
            (before, _) if before > 0 && left > 0 => {
                (left as f64 * (mean_bytes as f64 / before as f64)).ceil() as i64
            }
            _ => {
                self.mean_bytes = mean_bytes;
                self.gap()
            }
        };
        self.mean_bytes = mean_bytes;
        self.set_left(countdown, left);
        self.flags = match class {
            0 => EventFlags::default(),
            class => EventFlags::SAMPLED.with_interval_class(class),
        };
        if let Some(budgeted) = &mut self.budgeted {
            budgeted.bytes_set = left;
        }
    }

    /// Draws a random gap, in bytes.
    #[cold]
    fn gap(&mut self) -> i64 {
        // Steele, Lea and Flood's SplitMix64.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        // The value is in (0, 1], so that its logarithm is finite.
        let uniform = ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (-logarithm(uniform) * self.mean_bytes as f64).ceil() as i64
    }
}

/// Returns the natural logarithm of a positive, normal number, correct to about 12 digits.
///
/// **Why not `f64::ln`?** It is the only function that would make the preloaded library depend on C's math library, which
/// takes 0.9 MiB of each program's address space and a third of the time needed to load the preloaded library.
fn logarithm(value: f64) -> f64 {
    const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    const BIAS: u64 = 1023;
    let bits = value.to_bits();
    let mut exponent = (bits >> MANTISSA_BITS) as i32 - BIAS as i32;
    let mut mantissa = f64::from_bits(bits & ((1 << MANTISSA_BITS) - 1) | BIAS << MANTISSA_BITS);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln(m) = 2 artanh(t), whose series converges quickly: t is at most 0.172.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let series = (0..8).rev().fold(0.0, |sum, term| sum * t * t + 1.0 / f64::from(2 * term + 1));
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * t * series
}

impl BudgetState {
    fn new(rules: Rules) -> Self {
        let ledger = Ledger::new();
        Self {
            budget: rules.budget,
            max_live: rules.live_blocks,
            max_recorded: blocks_before_settlement(ledger.affordable(UNMEASURED_PAIR_NS)),
            ledger,
            alloc: Cost::default(),
            free: Cost::default(),
            timed_from: 0,
            bytes_set: 0,
            small_bytes: 0,
            picked: 0,
            recorded: 0,
            due_ticks: 0,
            last_ticks: 0,
            last_cpu_ns: 0,
            last_blocks: 0,
            min_class: 0,
            unmeasured: SETTLE_BLOCKS,
            measure_ticks: 0,
        }
    }

    /// Accounts for a sampled block, which reduced the previous gap to `bytes_left`. The new gap is `bytes_set`.
    #[inline(always)]
    fn picked(&mut self, bytes_left: i64, bytes_set: i64, random: u64) {
        self.count_bytes(bytes_left);
        self.bytes_set = bytes_set;
        if self.alloc.is_due(random ^ self.small_bytes) {
            self.timed_from = ticks();
        }
    }

    /// Counts the bytes by which the gap has shrunk to `bytes_left`.
    #[inline(always)]
    fn count_bytes(&mut self, bytes_left: i64) {
        self.small_bytes += (self.bytes_set - bytes_left) as u64;
        self.bytes_set = bytes_left;
    }

    /// Counts a recorded block, and returns whether a settlement is due.
    #[inline(always)]
    fn recorded(&mut self, is_small: bool, stamp: u64) -> bool {
        if self.timed_from != 0 {
            self.alloc.add(ticks().saturating_sub(self.timed_from));
            self.timed_from = 0;
        }
        self.picked += u32::from(is_small);
        self.recorded += 1;
        self.recorded >= self.max_recorded || stamp >= self.due_ticks
    }

    #[inline(always)]
    fn begin_free(&mut self, random: u64) -> u64 {
        if self.free.is_due(random ^ self.small_bytes) { ticks() } else { 0 }
    }

    /// Settles the ledger for the activity since the last settlement, and returns the class to use from now on.
    #[cold]
    fn settle(&mut self, bytes_left: i64, blocks: u64, live_blocks: fn() -> u64) -> u8 {
        let (now, cpu_ns) = (ticks(), thread_cpu_ns());
        let ns_per_tick = ns_per_tick();
        let is_first = self.last_ticks == 0;
        // Since the last settlement, another thread, whose processor time starts at 0, may have taken over the state.
        // And no thread can use more processor time than has elapsed.
        let passed_ns = now.saturating_sub(self.last_ticks) as f64 * ns_per_tick;
        let used_ns = (cpu_ns.saturating_sub(self.last_cpu_ns) as f64).min(passed_ns);
        let pair_ns = self.pair_ns(ns_per_tick);
        self.unmeasured = self.unmeasured.saturating_add(self.recorded);
        if self.unmeasured >= SETTLE_BLOCKS || now >= self.measure_ticks {
            self.unmeasured = 0;
            self.measure_ticks = now + (REMEASURE_INTERVAL_NS / ns_per_tick) as u64;
            self.min_class = min_class(live_blocks(), self.max_live);
        }
        self.count_bytes(bytes_left);
        let activity = Activity {
            cpu_ns: if is_first { 0.0 } else { used_ns },
            blocks: if is_first { u64::from(self.recorded) } else { blocks.wrapping_sub(self.last_blocks) },
            recorded: u64::from(self.recorded),
            large: u64::from(self.recorded - self.picked),
            small_bytes: self.small_bytes,
        };
        let min_class = self.min_class.max(min_class_of_room());
        let class = self.ledger.settle(&activity, self.budget, pair_ns, min_class);
        (self.small_bytes, self.picked, self.recorded) = (0, 0, 0);
        (self.last_ticks, self.last_cpu_ns, self.last_blocks) = (now, cpu_ns, blocks);
        self.due_ticks = now + (SETTLE_NS / ns_per_tick) as u64;
        self.max_recorded = match class {
            0 => blocks_before_settlement(self.ledger.affordable(pair_ns)),
            _ => SETTLE_BLOCKS,
        };
        class
    }

    fn pair_ns(&self, ns_per_tick: f64) -> f64 {
        let mean_ns = |cost: &Cost| cost.mean_ticks().map(|ticks| ticks * ns_per_tick);
        match (mean_ns(&self.alloc), mean_ns(&self.free)) {
            (Some(alloc), Some(free)) => alloc + free,
            // Only one of the two costs is known, for example because other threads free the blocks. The costs are
            // assumed to be equal.
            (Some(known), None) | (None, Some(known)) => 2.0 * known,
            (None, None) => UNMEASURED_PAIR_NS,
        }
    }
}

/// Returns the lowest class, which has the shortest interval, for which there is enough memory for events.
fn min_class_of_room() -> u8 {
    if let Some(arena) = shared_memory::arena() {
        return arena.min_class();
    }
    0
}

/// Returns the number of blocks to record before the next settlement if the credit pays for `affordable` blocks.
fn blocks_before_settlement(affordable: f64) -> u32 {
    affordable.clamp(16.0, f64::from(SETTLE_BLOCKS)) as u32
}

/// Stands for the recorder where nothing is recorded.
struct Unrecorded;

impl Recording for Unrecorded {
    fn live_blocks() -> u64 {
        0
    }

    fn begin_counting() {}
}

/// A sampler with its own countdown, for tests and simulations.
#[doc(hidden)]
pub struct StandaloneSampler {
    sampler: Sampler<Unrecorded>,
    countdown: Countdown,
}

impl StandaloneSampler {
    /// Creates a sampler with `seed` and `rules`. If the rules set a budget, the sampler starts with `class`.
    pub fn new(seed: u64, rules: Rules, class: u8) -> Self {
        let mut standalone = Self { sampler: Sampler::seeded(seed), countdown: Countdown::default() };
        standalone.sampler.start(&standalone.countdown, rules);
        if rules.budget > 0.0 {
            standalone.change(class);
        }
        standalone
    }

    /// Decides whether a block of `size_bytes` is sampled. If so, returns the flags for its event.
    pub fn picks(&mut self, size_bytes: u64) -> Option<EventFlags> {
        self.sampler.pick(&self.countdown, size_bytes, 0)
    }

    /// Switches to the sampling interval of `class`.
    pub fn change(&mut self, class: u8) {
        self.sampler.change(&self.countdown, class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::sampling_weight;

    #[test]
    fn the_logarithm_agrees_with_the_standard_library() {
        assert_eq!(logarithm(1.0), 0.0);
        let smallest = 1.0 / (1_u64 << 53) as f64;
        let mut value = smallest;
        while value < 4.0 {
            for value in [value, 1.0 - value / 8.0] {
                let expected = value.ln();
                assert!((logarithm(value) - expected).abs() <= 1e-12 * expected.abs(), "{value}");
            }
            value *= 1.003;
        }
    }

    #[test]
    fn weighted_samples_add_up_to_all_bytes() {
        let (mean, size) = (64 << 10, 1000);
        let mut sampler = StandaloneSampler::new(1, Rules { mean_bytes: mean, ..Rules::default() }, 0);
        let blocks = 4_000_000_u64;
        let picked = (0..blocks).filter(|_| sampler.picks(size).is_some()).count() as f64;
        let estimate = picked * sampling_weight(size, mean) / blocks as f64;
        // With about 60,000 samples, the standard deviation is 0.4 %.
        assert!((estimate - 1.0).abs() < 0.02, "{estimate}");
    }

    /// Creates a sampler with a budget, whose class the test changes.
    fn budgeted(seed: u64) -> StandaloneSampler {
        StandaloneSampler::new(seed, Rules { budget: 0.03, live_blocks: 1 << 20, ..Rules::default() }, 0)
    }

    #[test]
    fn every_block_is_picked_unweighted_in_class_zero() {
        let mut sampler = budgeted(1);
        sampler.change(0);
        let picked: Vec<_> = [64, 0, 1, 5000].map(|size| sampler.picks(size)).into();
        assert_eq!(picked, [Some(EventFlags::default()); 4]);
    }

    #[test]
    fn changing_the_interval_keeps_totals_unbiased() {
        // The class, and with it the rest of the gap, changes at every 7th block, whether or not that block is sampled.
        let mut sampler = budgeted(2);
        let (size, blocks) = (700, 2_000_000_u64);
        let meta = memtrack_model::snapshot::Meta {
            sample_block_bytes: sampler.countdown.block_bytes(),
            ..Default::default()
        };
        let mut estimate = 0.0;
        for block in 0..blocks {
            if block % 7 == 0 {
                sampler.change([1, 6, 3, 0, 9][(block / 7 % 5) as usize]);
            }
            if let Some(flags) = sampler.picks(size) {
                estimate += meta.weight(flags, size);
            }
        }
        let ratio = estimate / blocks as f64;
        // The standard deviation is 0.5 %.
        assert!((ratio - 1.0).abs() < 0.02, "{ratio}");
    }

    #[test]
    fn bytes_are_counted_whichever_blocks_are_picked() {
        let mut sampler = budgeted(3);
        let mut bytes = 0;
        for block in 0..10_000_u64 {
            if block % 100 == 0 {
                sampler.change([0, 4, 11][(block / 100 % 3) as usize]);
            }
            let _ = sampler.picks(block % 500);
            bytes += block % 500 + sampler.countdown.block_bytes();
        }
        let budgeted = sampler.sampler.budgeted.as_ref().expect("it has a budget");
        let pending = (budgeted.bytes_set - sampler.sampler.left(&sampler.countdown)) as u64;
        assert_eq!(budgeted.small_bytes + pending, bytes);
    }
}
