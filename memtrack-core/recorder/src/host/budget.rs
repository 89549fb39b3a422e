//! The budget of recording, and the sampling interval that follows from it. Each thread keeps a [`Ledger`]: it earns
//! a share of the processor time that the thread uses, and pays for the blocks that it records, and for their frees,
//! whichever thread makes them. While it can pay, every block is recorded; otherwise small blocks are sampled at an
//! interval that follows the load. The interval depends on past blocks and past costs alone, never on the current
//! block: that keeps estimates unbiased.
//!
//! **Why a budget and not a fixed rate?** A rate that suits one program is too expensive for another. Intervals are
//! powers of two, each thread chooses its own, and each sample carries its class: no table of epochs is needed, and a
//! thread that learns of a change late does no harm. A thread alternates between two intervals within milliseconds,
//! because an estimate's variance grows with the mean interval and its cost with the mean rate. (On the tiny model of
//! `examples/benches/cost`, 62,000 evenly spent samples put 99 % of the rows within 10 % of the truth; 84,000 samples
//! whose budget was saved up and then spent at once, 97 %.)
//!
//! **Why does a block count for 2 KiB more than its size?** By bytes alone, blocks of a few dozen bytes are hardly ever
//! picked. On the tiny model, 1,000 steps, 40 % of the counts of rows above 1 % were within 10 % of the truth, and the
//! worst row was off by three quarters on average; with the addition 70 %, and the worst by a fifth (bytes: 84 and 69 %).

use memtrack_model::event::interval_of_class;
use memtrack_model::snapshot::Sampling;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

/// The bytes that a small block counts for in addition to its size. By size alone, blocks of a few dozen bytes would
/// hardly ever be picked beside those of some thousand: their number, which is most of all blocks, would be known
/// only to within a factor.
const BLOCK_BYTES: u64 = 2048;
/// The class of the widest interval.
const WIDEST: u8 = 15;
/// The processor time whose earnings can be saved for a burst.
const MAX_SAVED_NS: f64 = 2e9;
/// The processor time whose earnings must be saved before every block is recorded again.
const EXACT_RESERVE_NS: f64 = 0.1e9;
/// The window of the load average: older processor time fades out.
const LOAD_WINDOW_NS: f64 = 0.15e9;
/// The loan to all threads of a session, spendable before they have earned anything, in nanoseconds: a short run is
/// recorded completely though it costs a little more than its budget.
const START_LOAN_NS: i64 = 120_000_000;
/// The part of it that a thread may spend at any load, in nanoseconds: programs have bursts (those of the
/// `train` example take up to 3.4 ms). Beyond that it gets more only while its spending stays below
/// [`BURST_FACTOR`] times its income: a heavier load would use up everything at once, and the recording would
/// hardly be better for it.
const BURST_NS: f64 = 6e6;
/// The part of [`BURST_NS`] that is available at once, and the part of the thread's processor time so far that is
/// added: a load that is heavy from the first moment on is no burst, and would spend all of it in ten milliseconds
/// (the tiny model of `examples/benches/cost`, which spends 2.0 ms in its first 4; the `train` example 1.25).
const BURST_AT_ONCE_NS: f64 = 0.9e6;
const BURST_GROWTH: f64 = 0.25;
/// The factor of its income that a thread may spend in a burst. A thread that allocates all blocks earns for
/// itself alone: the training run of `examples/benches/cost` on two cores spends 5 % of its processor time on
/// recording everything, and its main thread 6 to 7 % of its own.
const BURST_FACTOR: f64 = 3.0;
/// A thread that samples borrows again if recording every block would take less than this part of [`BURST_FACTOR`]
/// times the budget: so a burst, or a neighbour that took the caches for a moment, does not leave the rest of a run
/// sampled.
const BURST_EASE: f64 = 0.7;
/// The slice of it that a thread takes at once. It is lent: a thread that samples repays it out of its credit.
const LOAN_SLICE_NS: i64 = 500_000;
/// The cost of counting a block and its free, in nanoseconds (measured: 2 in a loop of nothing else, 3 in a program).
/// Not a part of the cost of recording: rare events find nothing in the caches and cost several times as much as
/// frequent ones, counting does not.
const COUNTED_NS: f64 = 3.0;
/// The largest part of a budget that is charged for counting, which cannot be avoided: the rest is for samples, or a
/// program of nothing but tiny blocks would have none.
const MAX_COUNTED_PART: f64 = 2.0 / 3.0;
/// The share of the savings beyond which every block is recorded for a while even if that takes more than the
/// budget: up to [`BURST_EASE`] of [`BURST_FACTOR`] times as much. With a heavier load they would last for an
/// instant.
const FULL_SAVINGS: f64 = 0.5;
/// The deviation of the samples' cost from its aim is limited to the earnings of so much processor time; more is
/// forgotten.
const MAX_STEER_NS: f64 = 50e6;
/// The cost of a sample, relative to the timed cost of the calls: the way to the first reading of the clock and from
/// the last, and the code and tables that rare calls find in no cache (measured by a profiler: 1.7 to 1.9).
const SAMPLED_COST_FACTOR: f64 = 1.7;
/// The same for a block while every block is recorded: the code and the tables are in the caches then, and the rest
/// is mostly the program's data that recording evicts from them (measured on the training run of
/// `examples/benches/cost`: 3.5 % by timing the calls, 5.1 ± 0.6 % of the process's time).
const EXACT_COST_FACTOR: f64 = 1.5;
/// The cost allowed for samples, as a part of the budget that counting leaves. No timing of a call sees what
/// recording costs the program afterwards by evicting its data from the caches: the rest is for that, and for debts.
const SAMPLE_PART: f64 = 0.6;
/// The part of that which is left for a thread that has more than a slice of its loan to repay.
const SAMPLE_PART_IN_DEBT: f64 = 0.5;
/// The part of the budget within which recording every block must be.
const EXACT_PART: f64 = 0.85;

/// The rest of [`START_LOAN_NS`].
static LOAN_LEFT_NS: AtomicI64 = AtomicI64::new(0);
/// The class that a thread chose last: a new thread begins with it when nothing is left to spend.
static LAST_CLASS: AtomicU8 = AtomicU8::new(0);
/// Sums over all threads for the recording: processor time, the part of it with every block recorded, and the
/// spending.
static CPU_NS: AtomicU64 = AtomicU64::new(0);
static EXACT_NS: AtomicU64 = AtomicU64::new(0);
static SPENT_NS: AtomicU64 = AtomicU64::new(0);
/// The widest class that was used.
static WIDEST_CLASS: AtomicU8 = AtomicU8::new(0);

/// Begins a new session.
pub(super) fn begin() {
    LOAN_LEFT_NS.store(START_LOAN_NS, Relaxed);
    LAST_CLASS.store(0, Relaxed);
    WIDEST_CLASS.store(0, Relaxed);
    for sum in [&CPU_NS, &EXACT_NS, &SPENT_NS] {
        sum.store(0, Relaxed);
    }
}

/// Returns the sums of the threads' ledgers so far.
pub fn so_far() -> Sampling {
    let seconds = |sum: &AtomicU64| sum.load(Relaxed) as f64 / 1e9;
    let widest = WIDEST_CLASS.load(Relaxed);
    Sampling {
        cpu_seconds: seconds(&CPU_NS),
        exact_seconds: seconds(&EXACT_NS),
        spent_seconds: seconds(&SPENT_NS),
        widest_interval_bytes: interval(widest),
        ..Sampling::default()
    }
}

/// Returns the bytes that a small block counts for in addition to its size when samples are picked within a `budget`;
/// 0 without a budget.
pub fn sample_block_bytes(budget: f64) -> u64 {
    if budget > 0.0 { BLOCK_BYTES } else { 0 }
}

/// Returns the mean gap in bytes between samples of a class; 0 for class 0, in which every block is recorded.
pub(super) fn interval(class: u8) -> u64 {
    if class == 0 { 0 } else { interval_of_class(class) }
}

/// Returns the lowest class allowed, to limit memory, with `live` of at most `bound` blocks in the live table. Over
/// the last quarter each sixteenth doubles the interval: the table would be full only when terabytes are live.
pub(super) fn least_class(live: u64, bound: u64) -> u8 {
    let free_from = bound - bound / 4;
    if live < free_from {
        return 0;
    }
    let step = (bound / 64).max(1);
    (1 + (live - free_from) / step).min(u64::from(WIDEST)) as u8
}

/// The activity of a thread since it last settled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Activity {
    /// Processor time that it used.
    pub(super) cpu_ns: f64,
    /// Blocks that it allocated.
    pub(super) blocks: u64,
    /// The number of them that were recorded.
    pub(super) recorded: u64,
    /// The number of these that are always recorded because they are large.
    pub(super) large: u64,
    /// Bytes of the small ones, with [`BLOCK_BYTES`] for each.
    pub(super) small_bytes: u64,
}

/// One thread's earnings and costs.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    class: u8,
    /// The credit, in nanoseconds of processor time.
    credit_ns: f64,
    /// The part of it that was lent and must be repaid.
    lent_ns: f64,
    /// The spending beyond [`BURST_FACTOR`] times the income so far.
    beyond_ns: f64,
    /// The cost of more samples that would have been affordable lately.
    steer_ns: f64,
    /// Processor time that the thread used, in all.
    used_ns: f64,
    /// The cost of a recorded block and its free while every block was recorded, 0 before: rare ones cost more.
    exact_pair_ns: f64,
    // The load lately; older time fades out.
    cpu_ns: f64,
    small: f64,
    large: f64,
    bytes: f64,
}

impl Ledger {
    /// Makes the ledger of a new thread.
    pub(super) fn new() -> Self {
        let credit_ns = take_loan();
        let class = if credit_ns > 0.0 { 0 } else { LAST_CLASS.load(Relaxed) };
        Self { class, credit_ns, lent_ns: credit_ns, ..Self::default() }
    }

    /// Returns the class in use.
    pub(super) fn class(&self) -> u8 {
        self.class
    }

    /// Returns how many more blocks the credit pays for while every one is recorded, at `pair_ns` each.
    pub(super) fn affordable(&self, pair_ns: f64) -> f64 {
        self.credit_ns / (pair_ns * EXACT_COST_FACTOR)
    }

    /// Settles the blocks `seen` and returns the class to use from now on. `budget`: the share of processor
    /// time that recording may take; `pair_ns`: the cost of a recorded block and its free.
    pub(super) fn settle(&mut self, seen: &Activity, budget: f64, pair_ns: f64, least_class: u8) -> u8 {
        let income_ns = budget * seen.cpu_ns;
        let counted_ns = seen.blocks.saturating_sub(seen.recorded) as f64 * COUNTED_NS;
        let pair_costs_ns =
            if self.class == 0 { pair_ns * EXACT_COST_FACTOR } else { pair_ns * SAMPLED_COST_FACTOR };
        let recorded_ns = seen.recorded as f64 * pair_costs_ns;
        let charged_ns = counted_ns.min(income_ns * MAX_COUNTED_PART);
        let spent_ns = recorded_ns + charged_ns;
        let most = budget * MAX_SAVED_NS;
        self.credit_ns = (self.credit_ns + income_ns - spent_ns).clamp(-most, most);
        self.beyond_ns = (self.beyond_ns + spent_ns - BURST_FACTOR * income_ns).max(0.0);
        self.used_ns += seen.cpu_ns;
        if self.class == 0 {
            self.exact_pair_ns = pair_ns;
            self.steer_ns = 0.0;
        } else {
            let most = budget * MAX_STEER_NS;
            let aim_ns = self.aim() * (income_ns - charged_ns);
            self.steer_ns = (self.steer_ns + aim_ns - recorded_ns).clamp(-most, most);
            let repaid = self.credit_ns.clamp(0.0, self.lent_ns);
            self.credit_ns -= repaid;
            self.lent_ns -= repaid;
        }
        // The recording contains its full cost, beyond the charged part.
        add_to_sums(self.class, seen.cpu_ns, recorded_ns + counted_ns);
        let keep = LOAD_WINDOW_NS / (LOAD_WINDOW_NS + seen.cpu_ns);
        self.cpu_ns = self.cpu_ns * keep + seen.cpu_ns;
        self.large = self.large * keep + seen.large as f64;
        self.small = self.small * keep + seen.blocks.saturating_sub(seen.large) as f64;
        self.bytes = self.bytes * keep + seen.small_bytes as f64;
        if self.may_borrow(budget, pair_ns) {
            self.borrow();
        }
        self.class = self.next_class(budget, pair_ns).max(least_class);
        LAST_CLASS.store(self.class, Relaxed);
        WIDEST_CLASS.fetch_max(self.class, Relaxed);
        self.class
    }

    /// Returns whether more may be lent to record every block, or to do so again.
    fn may_borrow(&self, budget: f64, pair_ns: f64) -> bool {
        match self.class {
            0 => self.beyond_ns < BURST_NS.min(BURST_AT_ONCE_NS + BURST_GROWTH * self.used_ns),
            _ if LOAN_LEFT_NS.load(Relaxed) <= 0 => false,
            _ => self.beyond_ns <= 0.0 && self.is_cheap(budget * BURST_FACTOR * BURST_EASE, pair_ns),
        }
    }

    /// Borrows until the credit is positive, or nothing more is lent.
    fn borrow(&mut self) {
        while self.credit_ns <= 0.0 {
            let lent = take_loan();
            if lent <= 0.0 {
                return;
            }
            self.credit_ns += lent;
            self.lent_ns += lent;
        }
        self.class = 0;
    }

    fn next_class(&self, budget: f64, pair_ns: f64) -> u8 {
        let in_debt = self.credit_ns <= 0.0;
        let has_reserve = self.credit_ns >= budget * EXACT_RESERVE_NS;
        let is_full = self.credit_ns >= budget * MAX_SAVED_NS * FULL_SAVINGS;
        if self.class == 0 && !in_debt
            || has_reserve && self.is_cheap(budget * EXACT_PART, pair_ns)
            || is_full && self.is_cheap(budget * BURST_FACTOR * BURST_EASE, pair_ns)
        {
            return 0;
        }
        // Classes are far apart, so two alternate, such that samples cost the intended amount. In short turns:
        // estimates are as good as the interval is even over time.
        let narrowest_class = self.narrowest_class(budget, self.aim(), pair_ns);
        if self.steer_ns > 0.0 { narrowest_class.saturating_sub(1).max(1) } else { narrowest_class.max(1) }
    }

    /// Returns the part of the budget left by counting that samples may cost.
    fn aim(&self) -> f64 {
        if self.lent_ns > LOAN_SLICE_NS as f64 { SAMPLE_PART * SAMPLE_PART_IN_DEBT } else { SAMPLE_PART }
    }

    /// Returns whether recording every block under the present load takes at most `share` of the processor time.
    fn is_cheap(&self, share: f64, pair_ns: f64) -> bool {
        let pair_ns = if self.exact_pair_ns > 0.0 { self.exact_pair_ns.min(pair_ns) } else { pair_ns };
        (self.small + self.large) * pair_ns * EXACT_COST_FACTOR <= share * self.cpu_ns
    }

    /// Returns the narrowest class in which recording takes, under the present load, at most a `part` of the budget
    /// left by counting.
    fn narrowest_class(&self, budget: f64, part: f64, pair_ns: f64) -> u8 {
        let budget_ns = budget * self.cpu_ns;
        let counted_ns = (self.small * COUNTED_NS).min(budget_ns * MAX_COUNTED_PART);
        // Something must be left, or no small block would ever be recorded.
        let room_ns = (part * (budget_ns - counted_ns) - self.large * pair_ns).max(budget_ns / 20.0);
        let sample_ns = pair_ns * SAMPLED_COST_FACTOR;
        let fits = |class: u8| {
            let cost_ns = match class {
                0 => self.small * pair_ns * EXACT_COST_FACTOR,
                class => self.small.min(self.bytes / interval(class) as f64) * sample_ns,
            };
            cost_ns <= room_ns
        };
        (0..WIDEST).find(|&class| fits(class)).unwrap_or(WIDEST)
    }
}

/// Takes a slice of the loan for the start, in nanoseconds; returns 0 when nothing is left.
fn take_loan() -> f64 {
    if LOAN_LEFT_NS.load(Relaxed) <= 0 {
        return 0.0;
    }
    LOAN_LEFT_NS.fetch_sub(LOAN_SLICE_NS, Relaxed).clamp(0, LOAN_SLICE_NS) as f64
}

fn add_to_sums(class: u8, cpu_ns: f64, spent_ns: f64) {
    CPU_NS.fetch_add(cpu_ns as u64, Relaxed);
    SPENT_NS.fetch_add(spent_ns as u64, Relaxed);
    if class == 0 {
        EXACT_NS.fetch_add(cpu_ns as u64, Relaxed);
    }
}

/// The cost of one kind of call in ticks, as far as single calls were timed: a mean that forgets, and in which no
/// call counts for more than a few times the usual cost. So a call during which the thread lost its processor, or the
/// first one, which reads the binaries' tables, does not distort later estimates.
#[derive(Debug, Default)]
pub(super) struct Cost {
    mean_ticks: f64,
    timed: u32,
    calls_left: u32,
}

impl Cost {
    /// The weight of a new call: a mean over some sixteen timed calls.
    const NEW_WEIGHT: f64 = 1.0 / 16.0;
    /// The assumed duration of a call before one was timed.
    const GUESS_TICKS: f64 = 500.0;
    /// One call in so many is timed, on average.
    const TIMED_ONE_IN: u32 = 16;

    /// Returns whether this call is to be timed.
    #[inline(always)]
    pub(super) fn is_due(&mut self, random: u64) -> bool {
        match self.calls_left.checked_sub(1) {
            Some(left) => {
                self.calls_left = left;
                false
            }
            None => {
                // No fixed stride: programs repeat themselves.
                self.calls_left = (random as u32) % (2 * Self::TIMED_ONE_IN - 1);
                true
            }
        }
    }

    /// Adds a call that took so many ticks.
    pub(super) fn add(&mut self, ticks: u64) {
        if self.timed == 0 {
            self.mean_ticks = Self::GUESS_TICKS;
        }
        self.timed = self.timed.saturating_add(1);
        let counted = (ticks as f64).min(4.0 * self.mean_ticks);
        let part = Self::NEW_WEIGHT.max(1.0 / f64::from(self.timed + 1));
        self.mean_ticks += (counted - self.mean_ticks) * part;
    }

    /// Returns the mean in ticks; `None` before the first timed call.
    pub(super) fn mean_ticks(&self) -> Option<f64> {
        (self.timed > 0).then_some(self.mean_ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    const BUDGET: f64 = 0.03;
    const PAIR_NS: f64 = 400.0;
    const SIZE: u64 = 100;

    /// Sets how much can be borrowed, and keeps other tests from borrowing.
    fn with_loan(start_ns: i64) -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        LOAN_LEFT_NS.store(start_ns, Relaxed);
        alone
    }

    /// The outcome of a simulated thread.
    struct Outcome {
        /// Its costs relative to the time without them.
        share: f64,
        /// The fraction of the blocks that were recorded.
        recorded: f64,
        /// The factor of samples that its last half took for the same precision compared with evenly spaced ones.
        uneven: f64,
        class: u8,
    }

    /// Simulates a thread that allocates `blocks_per_ms(millisecond)` for so many milliseconds, sixteen blocks at a
    /// time.
    fn thread(ledger: &mut Ledger, milliseconds: u32, blocks_per_ms: impl Fn(u32) -> u32) -> Outcome {
        let (mut spent_ns, mut blocks, mut recorded) = (0.0, 0.0, 0.0);
        let (mut bunches_seen, mut intervals, mut samples) = (0.0, 0.0, 0.0);
        let mut class = ledger.class();
        for now in 0..milliseconds {
            let bunches = (blocks_per_ms(now) / 16).max(1);
            for _ in 0..bunches {
                let picked: f64 = match class {
                    0 => 16.0,
                    class => 16.0 * -(-(SIZE as f64) / interval(class) as f64).exp_m1(),
                };
                let cost_ns = picked * PAIR_NS + (16.0 - picked) * COUNTED_NS;
                // Only whole blocks are recorded: the remainder is settled with the next ones.
                let whole = (recorded + picked).floor() - f64::floor(recorded);
                (blocks, recorded, spent_ns) = (blocks + 16.0, recorded + picked, spent_ns + cost_ns);
                let seen = Activity {
                    cpu_ns: 1e6 / f64::from(bunches) + cost_ns,
                    blocks: 16,
                    recorded: whole as u64,
                    large: 0,
                    small_bytes: 16 * SIZE,
                };
                if now >= milliseconds / 2 {
                    let interval = interval(class).max(1) as f64;
                    (bunches_seen, intervals, samples) =
                        (bunches_seen + 1.0, intervals + interval, samples + 1.0 / interval);
                }
                class = ledger.settle(&seen, BUDGET, PAIR_NS, 0);
            }
        }
        let share = spent_ns / (f64::from(milliseconds) * 1e6);
        let uneven = intervals / bunches_seen * (samples / bunches_seen);
        Outcome { share, recorded: recorded / blocks, uneven, class }
    }

    #[test]
    fn every_block_is_recorded_under_a_light_load() {
        let _alone = with_loan(0);
        // Two percent.
        let outcome = thread(&mut Ledger::default(), 3000, |_| 50);
        assert!(outcome.recorded > 0.95 && outcome.class == 0, "{} {}", outcome.recorded, outcome.class);
    }

    #[test]
    fn a_heavy_load_is_sampled_within_the_budget() {
        let _alone = with_loan(0);
        for blocks_per_ms in [100, 300, 1000, 3000] {
            let outcome = thread(&mut Ledger::default(), 3000, |_| blocks_per_ms);
            let (share, recorded) = (outcome.share, outcome.recorded);
            assert!(share < BUDGET && share > BUDGET / 3.0, "{blocks_per_ms}: {share}, {recorded}");
            // With few blocks all of them are recorded for a while in between.
            assert!(outcome.uneven < 1.15 || blocks_per_ms == 100, "{blocks_per_ms}: {}", outcome.uneven);
            assert!(recorded > 0.3 || blocks_per_ms > 100, "{blocks_per_ms}: {recorded}");
        }
    }

    #[test]
    fn a_program_with_only_tiny_blocks_is_sampled_too() {
        let _alone = with_loan(0);
        // Counting them takes more than the budget.
        let (before, blocks_per_ms) = (so_far(), 12_000);
        let outcome = thread(&mut Ledger::default(), 1000, |_| blocks_per_ms);
        let samples_ns = outcome.recorded * f64::from(blocks_per_ms) * PAIR_NS;
        assert!(samples_ns > 1e6 * BUDGET / 10.0 && samples_ns < 1e6 * BUDGET / 2.0, "{samples_ns}");
        // And the recording states it.
        let share =
            (so_far().spent_seconds - before.spent_seconds) / (so_far().cpu_seconds - before.cpu_seconds);
        assert!(share > BUDGET && share > outcome.share / 1.1, "{share} of {}", outcome.share);
    }

    #[test]
    fn a_burst_spends_the_savings_and_no_more() {
        let _alone = with_loan(0);
        let mut ledger = Ledger::default();
        thread(&mut ledger, 10_000, |_| 1);
        // Ten seconds have earned 300 ms, of which those of two seconds were kept.
        let outcome = thread(&mut ledger, 400, |_| 2000);
        assert!(outcome.share * 400.0 < 2000.0 * BUDGET + 400.0 * BUDGET + 5.0, "{}", outcome.share);
        assert!(outcome.class > 0);
        let calm = thread(&mut ledger, 2000, |_| 20);
        assert_eq!(calm.class, 0, "every block is recorded again once there is a reserve");
    }

    #[test]
    fn a_short_run_slightly_over_budget_is_recorded_completely() {
        let _alone = with_loan(START_LOAN_NS);
        let mut ledger = Ledger::new();
        // 4.8 percent, for a second.
        let outcome = thread(&mut ledger, 1000, |_| 80);
        assert!(outcome.recorded > 0.99 && outcome.class == 0, "{} {}", outcome.recorded, outcome.class);
        assert!(ledger.lent_ns > 10e6, "{}", ledger.lent_ns);
        // The loan is repaid, though the load stays.
        let outcome = thread(&mut ledger, 60_000, |_| 80);
        assert!(ledger.lent_ns == 0.0 && outcome.recorded < 0.8, "{} {}", ledger.lent_ns, outcome.recorded);
        assert!(outcome.share < BUDGET, "{}", outcome.share);
    }

    #[test]
    fn a_heavy_load_can_borrow_little() {
        let _alone = with_loan(START_LOAN_NS);
        let outcome = thread(&mut Ledger::new(), 300, |_| 2000);
        let spent_ns = outcome.share * 300e6;
        assert!(spent_ns < 1.3 * BURST_AT_ONCE_NS + 300e6 * BUDGET, "{spent_ns}");
        // Neither a burst at the beginning nor a longer one later decides anything.
        let outcome = thread(&mut Ledger::new(), 1000, |now| if now < 1 { 2000 } else { 40 });
        assert!(outcome.recorded > 0.99, "{}", outcome.recorded);
        let outcome = thread(&mut Ledger::new(), 1000, |now| if now / 4 == 50 { 2000 } else { 60 });
        assert!(outcome.recorded > 0.99, "{}", outcome.recorded);
    }

    #[test]
    fn a_burst_does_not_leave_the_rest_of_a_short_run_sampled() {
        let _alone = with_loan(START_LOAN_NS);
        let mut ledger = Ledger::new();
        let burst = thread(&mut ledger, 20, |_| 2000);
        assert!(burst.class > 0, "{} is more than a first burst may take", burst.recorded);
        let rest = thread(&mut ledger, 1000, |_| 80);
        assert!(rest.recorded > 0.6 && rest.class == 0, "{} {}", rest.recorded, rest.class);
        // If nothing is lent any more, it stays sampled.
        LOAN_LEFT_NS.store(0, Relaxed);
        let rest = thread(&mut ledger, 60_000, |_| 80);
        assert!(rest.recorded < 0.7 && rest.share < BUDGET, "{} {}", rest.recorded, rest.share);
    }

    #[test]
    fn a_load_that_comes_and_goes_stays_within_the_budget() {
        let _alone = with_loan(0);
        let outcome = thread(&mut Ledger::default(), 5000, |now| if now / 50 % 2 == 0 { 1500 } else { 10 });
        assert!(outcome.share < BUDGET * 1.1, "{}", outcome.share);
    }

    #[test]
    fn small_blocks_get_a_share_when_large_ones_take_the_whole_budget() {
        let _alone = with_loan(0);
        let mut ledger = Ledger { credit_ns: -1.0, ..Ledger::default() };
        let seen = Activity { cpu_ns: 1e6, blocks: 1200, recorded: 200, large: 200, small_bytes: 100_000 };
        let class = (0..50).map(|_| ledger.settle(&seen, BUDGET, PAIR_NS, 0)).last().unwrap_or(0);
        assert!((5..WIDEST).contains(&class), "{class}");
    }

    #[test]
    fn a_nearly_full_live_table_widens_the_interval() {
        let _alone = with_loan(0);
        let at = |live| least_class(live, 4096);
        assert_eq!([0, 3071, 3072, 3136, 4000, 4096, u64::MAX].map(at), [0, 0, 1, 2, 15, 15, 15]);
        assert_eq!(Ledger::default().settle(&Activity::default(), BUDGET, PAIR_NS, 7), 7);
    }

    #[test]
    fn a_call_interrupted_by_the_scheduler_hardly_counts() {
        let mut cost = Cost::default();
        assert_eq!(cost.mean_ticks(), None);
        cost.add(150_000_000);
        assert!(cost.mean_ticks().is_some_and(|mean| mean < 2000.0), "the first call is not like the others");
        (0..100).for_each(|_| cost.add(500));
        cost.add(10_000_000);
        let mean = cost.mean_ticks().unwrap_or_default();
        assert!((500.0..700.0).contains(&mean), "{mean}");
        // A lasting cost is accepted.
        (0..200).for_each(|_| cost.add(2000));
        assert!(cost.mean_ticks().is_some_and(|mean| mean > 1900.0));
    }

    #[test]
    fn one_call_in_sixteen_is_timed() {
        let mut cost = Cost::default();
        let mut random = 1_u64;
        let timed = (0..100_000)
            .filter(|_| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                cost.is_due(random >> 33)
            })
            .count();
        assert!((5_500..7_000).contains(&timed), "{timed}");
    }
}
