//! Byte sampling as in jemalloc and tcmalloc: a countdown of bytes, and after each sample a new gap drawn from
//! an exponential distribution. A block of size s is then picked with chance 1 − e^(−s/mean), independently of
//! earlier blocks, and weighting it by the inverse
//! ([`sampling_weight`](memtrack_model::event::sampling_weight)) keeps totals unbiased. A mean of 0 picks every
//! block. With a budget the mean follows the load, each sample's event contains the mean at which it was
//! picked, and a block counts for some bytes more than it has, so that the smallest blocks are sampled too.

use super::Counting;
use super::budget::{Activity, Cost, Ledger, interval, least_class, sample_block_bytes};
use super::counted_peak;
use super::cpu_time::thread_cpu_ns;
use crate::events::{live_blocks, ns_per_tick, sampling, ticks};
use memtrack_model::event::EventFlags;
use std::sync::atomic::Ordering;

/// The most recorded blocks between two settlings of a thread.
const SETTLE_BLOCKS: u32 = 1024;
/// The longest time between two settlings, in nanoseconds: the next recorded block after it settles.
const SETTLE_NS: f64 = 4e6;
/// The time that a measurement of the live table's size is used, in nanoseconds, by a thread that records few
/// blocks: each takes some microseconds, because the shards are in no cache.
const MEASURE_NS: f64 = 64e6;
/// The assumed cost of a recorded block and its free until it was measured, in nanoseconds.
const UNMEASURE_NS: f64 = 400.0;

/// The rules by which small blocks are picked in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rules {
    /// The mean gap in bytes where it is fixed; 0: every block.
    pub mean_bytes: u64,
    /// The share of processor time that recording may take; 0: the mean is fixed.
    pub budget: f64,
    /// The number of blocks that the live table may hold before small ones are sampled to save memory.
    pub live_blocks: u64,
}

/// The sampling state of one thread. The countdown itself is in its [`Counting`], which is passed to every
/// function that moves it.
pub struct Sampler {
    /// The session whose rules are used.
    session: u64,
    /// The mean with which the countdown was drawn; 0: every block is picked.
    mean_bytes: u64,
    /// The flags in the events of picked blocks.
    flags: EventFlags,
    random: u64,
    /// The rest of the gap after the countdown: a gap is counted down in pieces, after each of which the counted peak
    /// ([`counted_peak`]) is updated, so that no memory can have come and gone unseen for long.
    beyond: i64,
    /// Whether a piece has ended.
    piece_ended: bool,
    /// With a budget only.
    account: Option<Account>,
}

/// The additional state of a thread with a budget.
struct Account {
    budget: f64,
    max_live: u64,
    ledger: Ledger,
    /// The costs of recording a block, and its free.
    alloc: Cost,
    free: Cost,
    /// The begin of the call that is being timed; 0: none is.
    timed_from: u64,
    /// The countdown when it was last set.
    bytes_set: i64,
    small_bytes: u64,
    picked: u32,
    recorded: u32,
    /// The number of blocks that may be recorded until the next settling, and the stamp from which on it is due.
    recorded_most: u32,
    due_ticks: u64,
    /// Readings at the last settling.
    last_ticks: u64,
    last_cpu_ns: u64,
    last_blocks: u64,
    least_class: u8,
    /// Blocks recorded since the live table was measured, and when the next measurement is due.
    unmeasured: u32,
    measure_ticks: u64,
}

impl Sampler {
    /// Makes a sampler that is started by its first use.
    pub(crate) fn new() -> Self {
        // A different seed for each thread: the address of a new sampler's stack frame, and the time.
        let here = 0_u8;
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = (&raw const here as u64).rotate_left(32) ^ time.map_or(0, |time| time.as_nanos() as u64);
        Self::seeded(seed)
    }

    /// Makes a sampler with the caller's seed.
    fn seeded(seed: u64) -> Self {
        let flags = EventFlags::SAMPLED;
        Self { session: 0, mean_bytes: 0, flags, random: seed, beyond: 0, piece_ended: false, account: None }
    }

    /// Returns whether a block of `size_bytes` is picked in this `session`: if so, returns its event's flags.
    #[inline(always)]
    pub(super) fn picks(&mut self, counting: &Counting, size_bytes: u64, session: u64) -> Option<EventFlags> {
        if session != self.session {
            self.renew(counting, session);
        }
        counting.set_left(counting.left_after(size_bytes));
        if counting.left() > 0 || self.beyond > 0 && self.next_piece(counting) {
            return None;
        }
        Some(self.hit(counting))
    }

    /// Starts the next piece of the gap. Whether there is one.
    #[cold]
    fn next_piece(&mut self, counting: &Counting) -> bool {
        let left = self.left(counting);
        self.set_left(counting, left);
        self.piece_ended = left > 0;
        self.piece_ended
    }

    /// Returns whether the counted peak must be updated, once, after a block that was not picked.
    #[inline(always)]
    pub(super) fn take_piece_ended(&mut self) -> bool {
        std::mem::take(&mut self.piece_ended)
    }

    /// Returns the rest of the gap.
    fn left(&self, counting: &Counting) -> i64 {
        counting.left() + self.beyond
    }

    /// Sets the rest of the gap, in pieces of its mean.
    fn set_left(&mut self, counting: &Counting, bytes: i64) {
        let piece = bytes.min(i64::try_from(self.mean_bytes).unwrap_or(i64::MAX).max(1));
        counting.set_left(piece);
        self.beyond = bytes - piece;
    }

    /// Starts anew: a session began, or it is the thread's first block in it.
    #[cold]
    fn renew(&mut self, counting: &Counting, session: u64) {
        self.session = session;
        // Makes visible the data that was written before the session was numbered: its rules.
        std::sync::atomic::fence(Ordering::Acquire);
        self.start(counting, sampling());
        counting.refresh(session);
    }

    /// Updates the thread's copy of the settings of `session`.
    #[cold]
    pub(super) fn refresh(&mut self, counting: &Counting, session: u64) {
        if session != self.session {
            self.renew(counting, session);
        }
    }

    fn start(&mut self, counting: &Counting, rules: Rules) {
        self.flags = EventFlags::SAMPLED;
        self.mean_bytes = rules.mean_bytes;
        counting.set_block_bytes(sample_block_bytes(rules.budget));
        self.account = (rules.budget > 0.0).then(|| Account::new(rules));
        self.set_left(counting, 0);
        match self.account.as_ref().map(|account| account.ledger.class()) {
            Some(class) => self.change(counting, class),
            None => {
                if self.mean_bytes > 0 {
                    counted_peak::begin();
                }
                let gap = self.gap();
                self.set_left(counting, gap);
            }
        }
    }

    /// Picks the current block.
    #[inline(never)]
    fn hit(&mut self, counting: &Counting) -> EventFlags {
        let flags = self.flags;
        let consumed = self.left(counting);
        let gap = if self.mean_bytes == 0 { 0 } else { self.gap() };
        self.set_left(counting, gap);
        if let Some(account) = &mut self.account {
            account.picks(consumed, gap, self.random);
        }
        flags
    }

    /// Notes that a block, picked or large, was recorded with that stamp; the thread has allocated `blocks` so far.
    #[inline(always)]
    pub(super) fn recorded(&mut self, counting: &Counting, is_small: bool, stamp: u64, blocks: u64) {
        let left = self.left(counting);
        let Some(account) = &mut self.account else { return };
        if account.recorded(is_small, stamp) {
            let class = account.settle(left, blocks);
            self.change(counting, class);
        }
    }

    /// Begins the free of a recorded block. Returns the argument for [`Self::free_ends`].
    #[inline(always)]
    pub(crate) fn free_begins(&mut self) -> u64 {
        match &mut self.account {
            Some(account) => account.free_begins(self.random),
            None => 0,
        }
    }

    /// Ends the free of a recorded block.
    #[inline(always)]
    pub(crate) fn free_ends(&mut self, begun: u64) {
        if begun != 0
            && let Some(account) = &mut self.account
        {
            account.free.add(ticks().saturating_sub(begun));
        }
    }

    /// Changes to samples of `class`. The rest of the gap keeps its length in units of the mean: an exponential
    /// distribution is memoryless.
    fn change(&mut self, counting: &Counting, class: u8) {
        let mean_bytes = interval(class);
        if mean_bytes > 0 {
            counted_peak::begin();
        }
        let left = self.left(counting);
        if let Some(account) = &mut self.account {
            account.count_bytes(left);
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
        self.set_left(counting, left);
        self.flags = match class {
            0 => EventFlags::default(),
            class => EventFlags::SAMPLED.with_interval_class(class),
        };
        if let Some(account) = &mut self.account {
            account.bytes_set = left;
        }
    }

    /// Draws a gap in bytes.
    #[cold]
    fn gap(&mut self) -> i64 {
        // Steele, Lea and Flood's SplitMix64.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        // In (0, 1]: its logarithm is finite.
        let uniform = ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (-uniform.ln() * self.mean_bytes as f64).ceil() as i64
    }
}

impl Account {
    fn new(rules: Rules) -> Self {
        let ledger = Ledger::new();
        Self {
            budget: rules.budget,
            max_live: rules.live_blocks,
            recorded_most: blocks_before_settling(ledger.affordable(UNMEASURE_NS)),
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
            least_class: 0,
            unmeasured: SETTLE_BLOCKS,
            measure_ticks: 0,
        }
    }

    /// Notes that a block was picked with the countdown at `bytes_left`, and that the countdown was set anew.
    #[inline(always)]
    fn picks(&mut self, bytes_left: i64, bytes_set: i64, random: u64) {
        self.count_bytes(bytes_left);
        self.bytes_set = bytes_set;
        if self.alloc.is_due(random ^ self.small_bytes) {
            self.timed_from = ticks();
        }
    }

    /// Counts the bytes by which the countdown went down to `bytes_left`.
    #[inline(always)]
    fn count_bytes(&mut self, bytes_left: i64) {
        self.small_bytes += (self.bytes_set - bytes_left) as u64;
        self.bytes_set = bytes_left;
    }

    /// Counts a recorded block. Whether a settling is due.
    #[inline(always)]
    fn recorded(&mut self, is_small: bool, stamp: u64) -> bool {
        if self.timed_from != 0 {
            self.alloc.add(ticks().saturating_sub(self.timed_from));
            self.timed_from = 0;
        }
        self.picked += u32::from(is_small);
        self.recorded += 1;
        self.recorded >= self.recorded_most || stamp >= self.due_ticks
    }

    #[inline(always)]
    fn free_begins(&mut self, random: u64) -> u64 {
        if self.free.is_due(random ^ self.small_bytes) { ticks() } else { 0 }
    }

    /// Settles all that happened since the last time. Returns the class to use from now on.
    #[cold]
    fn settle(&mut self, bytes_left: i64, blocks: u64) -> u8 {
        let (now, cpu_ns) = (ticks(), thread_cpu_ns());
        let ns_per_tick = ns_per_tick();
        let is_first = self.last_ticks == 0;
        // The state may have moved to another thread meanwhile, whose processor time starts at 0; and no thread can
        // use more processor time than has passed.
        let passed_ns = now.saturating_sub(self.last_ticks) as f64 * ns_per_tick;
        let used_ns = (cpu_ns.saturating_sub(self.last_cpu_ns) as f64).min(passed_ns);
        let pair_ns = self.pair_ns(ns_per_tick);
        self.unmeasured = self.unmeasured.saturating_add(self.recorded);
        if self.unmeasured >= SETTLE_BLOCKS || now >= self.measure_ticks {
            self.unmeasured = 0;
            self.measure_ticks = now + (MEASURE_NS / ns_per_tick) as u64;
            self.least_class = least_class(live_blocks(), self.max_live);
        }
        self.count_bytes(bytes_left);
        let seen = Activity {
            cpu_ns: if is_first { 0.0 } else { used_ns },
            blocks: if is_first { u64::from(self.recorded) } else { blocks.wrapping_sub(self.last_blocks) },
            recorded: u64::from(self.recorded),
            large: u64::from(self.recorded - self.picked),
            small_bytes: self.small_bytes,
        };
        let class = self.ledger.settle(&seen, self.budget, pair_ns, self.least_class);
        (self.small_bytes, self.picked, self.recorded) = (0, 0, 0);
        (self.last_ticks, self.last_cpu_ns, self.last_blocks) = (now, cpu_ns, blocks);
        self.due_ticks = now + (SETTLE_NS / ns_per_tick) as u64;
        self.recorded_most = match class {
            0 => blocks_before_settling(self.ledger.affordable(pair_ns)),
            _ => SETTLE_BLOCKS,
        };
        class
    }

    fn pair_ns(&self, ns_per_tick: f64) -> f64 {
        let one = |cost: &Cost| cost.mean_ticks().map(|ticks| ticks * ns_per_tick);
        match (one(&self.alloc), one(&self.free)) {
            (Some(alloc), Some(free)) => alloc + free,
            // For blocks that other threads free, or none have freed yet.
            (Some(one), None) | (None, Some(one)) => 2.0 * one,
            (None, None) => UNMEASURE_NS,
        }
    }
}

/// Returns how many blocks may be recorded before the next settling, when the credit pays for `affordable` blocks.
fn blocks_before_settling(affordable: f64) -> u32 {
    affordable.clamp(16.0, f64::from(SETTLE_BLOCKS)) as u32
}

/// A sampler with its own countdown, for tests: picks blocks of session 0.
#[doc(hidden)]
pub struct StandaloneSampler {
    sampler: Sampler,
    counting: Counting,
}

impl StandaloneSampler {
    /// Makes a sampler with this seed and these rules, and of that class if they set a budget.
    pub fn new(seed: u64, rules: Rules, class: u8) -> Self {
        let mut standalone = Self { sampler: Sampler::seeded(seed), counting: Counting::default() };
        standalone.sampler.start(&standalone.counting, rules);
        if rules.budget > 0.0 {
            standalone.change(class);
        }
        standalone
    }

    /// Returns whether a block of `size_bytes` is picked: if so, returns its event's flags.
    pub fn picks(&mut self, size_bytes: u64) -> Option<EventFlags> {
        self.sampler.picks(&self.counting, size_bytes, 0)
    }

    /// Changes to samples of `class`.
    pub fn change(&mut self, class: u8) {
        self.sampler.change(&self.counting, class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::sampling_weight;

    #[test]
    fn weighted_samples_add_up_to_all_bytes() {
        let (mean, size) = (64 << 10, 1000);
        let mut sampler = StandaloneSampler::new(1, Rules { mean_bytes: mean, ..Rules::default() }, 0);
        let blocks = 4_000_000_u64;
        let picked = (0..blocks).filter(|_| sampler.picks(size).is_some()).count() as f64;
        let estimate = picked * sampling_weight(size, mean) / blocks as f64;
        // Some 60,000 samples: a standard deviation of 0.4 %.
        assert!((estimate - 1.0).abs() < 0.02, "{estimate}");
    }

    /// Creates a sampler with a budget whose class the test changes.
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
        // At every 7th block, picked or not, the class changes, and the rest of the gap with it.
        let mut sampler = budgeted(2);
        let (size, blocks) = (700, 2_000_000_u64);
        let meta = memtrack_model::snapshot::Meta {
            sample_block_bytes: sampler.counting.block_bytes(),
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
        // A standard deviation of 0.5 %.
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
            bytes += block % 500 + sampler.counting.block_bytes();
        }
        let account = sampler.sampler.account.as_ref().expect("it has a budget");
        let pending = (account.bytes_set - sampler.sampler.left(&sampler.counting)) as u64;
        assert_eq!(account.small_bytes + pending, bytes);
    }
}
