//! The budget for recording, and the sampling interval that follows from it. Each thread keeps a [`Ledger`], which
//! earns a share of the processor time that the thread uses, and pays for the blocks that the thread records and for
//! their frees, whichever thread frees them. While it can pay, every block is recorded; otherwise, small blocks are
//! sampled at an interval that follows the load. The interval depends only on past blocks and past costs, never on the
//! current block, which keeps estimates unbiased.
//!
//! **Why a budget and not a fixed rate?** A rate that suits one program is too expensive for another. Intervals are
//! powers of two, numbered by their class. Each thread chooses its own, and each sample contains the class of its
//! interval, so no table of intervals over time is needed and threads need not agree on a change. A thread alternates
//! between two intervals within milliseconds, because an estimate's variance grows with the mean interval, and the cost
//! of the samples with the mean rate. (On the tiny model of `examples/benches/cost`, 62,000 samples spread evenly over
//! time estimated 99 % of the rows to within 10 % of the true value. When the budget was saved up and then spent at
//! once, 84,000 samples estimated 97 %.)
//!
//! **Why does a block count for 2 KiB more than its size?** By bytes alone, blocks of a few dozen bytes are hardly ever
//! sampled. On the tiny model (1,000 steps), 40 % of the block counts in rows above 1 % were within 10 % of the true
//! value, and the worst row was off by three quarters on average. With the addition, 70 % were, and the worst row was
//! off by a fifth. For byte counts, the addition reduces 84 % to 69 %.

use crate::shared_memory;
use memtrack_model::event::interval_of_class;
use memtrack_model::snapshot::Sampling;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

/// The number of bytes that a small block counts for in addition to its size. By size alone, blocks of a few dozen
/// bytes would hardly ever be sampled next to blocks of a few thousand bytes. Most blocks are tiny, so the number of
/// blocks would be known only roughly.
const BLOCK_BYTES: u64 = 2048;
/// The class with the widest interval.
const MAX_CLASS: u8 = 15;
/// The maximum credit that can be saved for a burst, given as the processor time in which it is earned.
const MAX_SAVED_NS: f64 = 2e9;
/// The credit needed before every block is recorded again, given as the processor time in which it is earned.
const EXACT_RESERVE_NS: f64 = 0.1e9;
/// The window of the load average, in processor time. Older load fades out.
const LOAD_WINDOW_NS: f64 = 0.15e9;
/// The total loan to all threads of a session, in nanoseconds. Threads can spend it before they have earned anything,
/// so that a short run is recorded completely even if that costs a little more than its budget.
const START_LOAN_NS: i64 = 120_000_000;
/// The part of the loan that a thread may spend whatever its load, in nanoseconds. It is there because programs have
/// bursts (those of the `train` example take up to 3.4 ms). Beyond it, the thread can borrow only while it spends less
/// than [`BURST_FACTOR`] times its income, because a heavier load would use up the whole loan at once and hardly
/// improve the recording.
const BURST_NS: f64 = 6e6;
/// The part of [`BURST_NS`] that is available immediately. A load that is heavy from the start is not a burst, and
/// would spend all of [`BURST_NS`] in ten milliseconds (the tiny model of `examples/benches/cost` spends 2.0 ms in its
/// first 4 ms, the `train` example 1.25 ms).
const BURST_AT_ONCE_NS: f64 = 0.9e6;
/// The fraction of the thread's processor time so far that is added to [`BURST_AT_ONCE_NS`], up to [`BURST_NS`].
const BURST_GROWTH: f64 = 0.25;
/// How much a thread may spend in a burst, relative to its income. If one thread allocates all blocks, only its own
/// processor time earns the budget for them. In the training run of `examples/benches/cost` on two cores, recording
/// everything takes 5 % of the process's time, but 6 to 7 % of its main thread's.
const BURST_FACTOR: f64 = 3.0;
/// A sampling thread may borrow again only if recording every block would cost less than this fraction of
/// [`BURST_FACTOR`] times the budget. A thread can borrow again so that one burst, or another program that briefly uses
/// the caches, does not cause the rest of the run to be sampled.
const BURST_EASE: f64 = 0.7;
/// The amount that a thread borrows at a time, in nanoseconds. A thread that samples repays it from its credit.
const LOAN_SLICE_NS: i64 = 500_000;
/// The cost of counting a block and its free, in nanoseconds (measured: 2 in a tight loop, 3 in a program). It is
/// separate from the cost of recording, because rarely recorded events miss the caches and cost several times as much
/// as frequent ones, whereas counting does not.
const COUNTED_NS: f64 = 3.0;
/// The maximum fraction of the budget that is charged for counting, which cannot be avoided. The rest is left for
/// samples, because otherwise a program with only tiny blocks would have none.
const MAX_COUNTING_PART: f64 = 2.0 / 3.0;
/// The share of the maximum credit above which every block is recorded for a while, even if that takes up to
/// [`BURST_EASE`] times [`BURST_FACTOR`] times the budget. At a heavier load, the credit would be used up immediately.
const HIGH_CREDIT_SHARE: f64 = 0.5;
/// The limit on [`Ledger::steer_ns`] in both directions, given as the processor time in which that much is earned.
const MAX_STEER_NS: f64 = 50e6;
/// The cost of a sample, relative to the timed cost of its calls. Timing does not include the work before the clock is
/// first read and after it is last read, and rare calls miss the caches (measured with a profiler: 1.7 to 1.9).
const SAMPLED_COST_FACTOR: f64 = 1.7;
/// The same factor while every block is recorded. Code and tables are then in the caches, and what remains is mostly
/// due to the program's data that recording evicts from them (measured on the training run of `examples/benches/cost`:
/// 3.5 % by timing the calls, 5.1 ± 0.6 % of the process's time).
const EXACT_COST_FACTOR: f64 = 1.5;
/// The target cost of samples, as a fraction of the budget that counting leaves. The rest is for repaying loans, and
/// for a cost that timing does not measure, because recording evicts the program's data from the caches.
const SAMPLE_PART: f64 = 0.6;
/// The factor applied to [`SAMPLE_PART`] for a thread that must repay more than one slice of its loan.
const SAMPLE_PART_IN_DEBT: f64 = 0.5;
/// A thread that samples and has saved [`EXACT_RESERVE_NS`] records every block again only if that costs at most this
/// fraction of the budget.
const EXACT_PART: f64 = 0.85;

/// The part of [`START_LOAN_NS`] that has not been lent yet.
static LOAN_LEFT_NS: AtomicI64 = AtomicI64::new(0);
/// The most recent class that any thread chose. A new thread starts with this class if it cannot borrow.
static LAST_CLASS: AtomicU8 = AtomicU8::new(0);
/// Sums over all threads, for the recording: the processor time, the part of it in which every block was recorded, and
/// the time spent on recording.
static CPU_NS: AtomicU64 = AtomicU64::new(0);
static EXACT_NS: AtomicU64 = AtomicU64::new(0);
static SPENT_NS: AtomicU64 = AtomicU64::new(0);
/// The class with the widest interval used so far.
static WIDEST_CLASS: AtomicU8 = AtomicU8::new(0);

/// The additional loan of a process that runs Python under `memtrack run`, in nanoseconds. When CPython starts, it allocates
/// 57,000 blocks, mostly from new places, whose recording takes 0.11 s and is charged twice as much. The rest suffices for
/// almost a million blocks.
const PYTHON_LOAN_NS: i64 = 480_000_000;

/// Whether the loan may be spent at once, however heavy the load.
static IS_PATIENT: AtomicBool = AtomicBool::new(false);

/// Grants the additional loan, once, and allows that all of it is spent at once. Python programs are often short, and begin with
/// thousands of blocks from places that are new. With the usual loan, nearly all of a run of 0.1 s would be sampled at the
/// widest interval.
#[cfg(target_arch = "x86_64")]
pub(crate) fn grant_python_loan() {
    if !IS_PATIENT.swap(true, Relaxed) {
        LOAN_LEFT_NS.fetch_add(PYTHON_LOAN_NS, Relaxed);
    }
}

/// Resets everything for a new session.
pub(super) fn begin() {
    let more_ns = if IS_PATIENT.load(Relaxed) { PYTHON_LOAN_NS } else { 0 };
    LOAN_LEFT_NS.store(START_LOAN_NS + more_ns, Relaxed);
    LAST_CLASS.store(0, Relaxed);
    WIDEST_CLASS.store(0, Relaxed);
    for sum in [&CPU_NS, &EXACT_NS, &SPENT_NS] {
        sum.store(0, Relaxed);
    }
}

/// Returns the sums over all threads' ledgers so far.
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

/// Returns the number of bytes that a small block counts for in addition to its size if sampling follows a `budget`, or
/// 0 without a budget.
pub fn sample_block_bytes(budget: f64) -> u64 {
    if budget > 0.0 { BLOCK_BYTES } else { 0 }
}

/// Returns the mean gap in bytes between samples of a class, or 0 for class 0, in which every block is recorded.
pub(super) fn interval(class: u8) -> u64 {
    if class == 0 { 0 } else { interval_of_class(class) }
}

/// Returns the lowest class that a limit on memory allows if the live table contains `live` of at most `bound` blocks, or
/// if `live` of at most `bound` pages of shared memory are unread. In the last quarter, each further sixteenth of that
/// quarter doubles the interval, so the table would be full only with terabytes of live memory.
pub(crate) fn min_class(live: u64, bound: u64) -> u8 {
    let free_from = bound - bound / 4;
    if live < free_from {
        return 0;
    }
    let step = (bound / 64).max(1);
    (1 + (live - free_from) / step).min(u64::from(MAX_CLASS)) as u8
}

/// A thread's activity since its ledger was last settled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Activity {
    /// The processor time that the thread used.
    pub(super) cpu_ns: f64,
    /// The number of blocks that it allocated.
    pub(super) blocks: u64,
    /// The number of blocks that were recorded.
    pub(super) recorded: u64,
    /// The number of blocks that were recorded because they are large.
    pub(super) large: u64,
    /// The bytes of the small blocks, plus [`BLOCK_BYTES`] for each.
    pub(super) small_bytes: u64,
}

/// The earnings and costs of one thread.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    class: u8,
    /// The credit, in nanoseconds of processor time.
    credit_ns: f64,
    /// The part of the credit that was lent and must be repaid.
    lent_ns: f64,
    /// The accumulated spending in excess of [`BURST_FACTOR`] times the income.
    excess_ns: f64,
    /// How far the cost of recent samples was below its target: positive if more samples would have been affordable, negative
    /// if they cost too much.
    steer_ns: f64,
    /// The total processor time that the thread used.
    used_ns: f64,
    /// The cost of a block and its free when every block was last recorded, or 0 if that has not happened yet. Sampled
    /// blocks cost more, because they are rarer.
    exact_pair_ns: f64,
    // The recent load: processor time, small and large blocks, and the bytes of small blocks. Older load fades out.
    cpu_ns: f64,
    small: f64,
    large: f64,
    bytes: f64,
}

impl Ledger {
    /// Creates the ledger for a new thread.
    pub(super) fn new() -> Self {
        let credit_ns = borrow_slice();
        let class = if credit_ns > 0.0 { 0 } else { LAST_CLASS.load(Relaxed) };
        Self { class, credit_ns, lent_ns: credit_ns, ..Self::default() }
    }

    /// Returns the current class.
    pub(super) fn class(&self) -> u8 {
        self.class
    }

    /// Returns how many more blocks the credit pays for while every block is recorded at a cost of `pair_ns` each.
    pub(super) fn affordable(&self, pair_ns: f64) -> f64 {
        self.credit_ns / (pair_ns * EXACT_COST_FACTOR)
    }

    /// Settles the costs of an `activity` and returns the class to use from now on. `budget` is the share of processor
    /// time that recording may take, and `pair_ns` is the cost of a recorded block and its free.
    pub(super) fn settle(&mut self, activity: &Activity, budget: f64, pair_ns: f64, min_class: u8) -> u8 {
        let income_ns = budget * activity.cpu_ns;
        let counted_ns = activity.blocks.saturating_sub(activity.recorded) as f64 * COUNTED_NS;
        let pair_costs_ns =
            if self.class == 0 { pair_ns * EXACT_COST_FACTOR } else { pair_ns * SAMPLED_COST_FACTOR };
        let recorded_ns = activity.recorded as f64 * pair_costs_ns;
        let charged_ns = counted_ns.min(income_ns * MAX_COUNTING_PART);
        let spent_ns = recorded_ns + charged_ns;
        let max_ns = budget * MAX_SAVED_NS;
        self.credit_ns = (self.credit_ns + income_ns - spent_ns).clamp(-max_ns, max_ns);
        self.excess_ns = (self.excess_ns + spent_ns - BURST_FACTOR * income_ns).max(0.0);
        self.used_ns += activity.cpu_ns;
        if self.class == 0 {
            self.exact_pair_ns = pair_ns;
            self.steer_ns = 0.0;
        } else {
            let max_ns = budget * MAX_STEER_NS;
            let target_ns = self.sample_part() * (income_ns - charged_ns);
            self.steer_ns = (self.steer_ns + target_ns - recorded_ns).clamp(-max_ns, max_ns);
            let repaid = self.credit_ns.clamp(0.0, self.lent_ns);
            self.credit_ns -= repaid;
            self.lent_ns -= repaid;
        }
        // The recording reports the full cost, not only the charged part.
        add_to_sums(self.class, activity.cpu_ns, recorded_ns + counted_ns);
        let keep = LOAD_WINDOW_NS / (LOAD_WINDOW_NS + activity.cpu_ns);
        self.cpu_ns = self.cpu_ns * keep + activity.cpu_ns;
        self.large = self.large * keep + activity.large as f64;
        self.small = self.small * keep + activity.blocks.saturating_sub(activity.large) as f64;
        self.bytes = self.bytes * keep + activity.small_bytes as f64;
        if self.may_borrow(budget, pair_ns) {
            self.borrow();
        }
        self.class = self.next_class(budget, pair_ns).max(min_class);
        LAST_CLASS.store(self.class, Relaxed);
        WIDEST_CLASS.fetch_max(self.class, Relaxed);
        self.class
    }

    /// Returns whether the thread may borrow more in order to record every block, or to start doing so again.
    fn may_borrow(&self, budget: f64, pair_ns: f64) -> bool {
        match self.class {
            0 if IS_PATIENT.load(Relaxed) => true,
            0 => self.excess_ns < BURST_NS.min(BURST_AT_ONCE_NS + BURST_GROWTH * self.used_ns),
            _ if LOAN_LEFT_NS.load(Relaxed) <= 0 => false,
            // The thread samples only because shared memory was nearly full for a moment.
            _ if IS_PATIENT.load(Relaxed) => true,
            _ => self.excess_ns <= 0.0 && self.is_cheap(budget * BURST_FACTOR * BURST_EASE, pair_ns),
        }
    }

    /// Borrows until the credit is positive or the loan is used up.
    fn borrow(&mut self) {
        while self.credit_ns <= 0.0 {
            let lent = borrow_slice();
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
        let is_credit_high = self.credit_ns >= budget * MAX_SAVED_NS * HIGH_CREDIT_SHARE;
        if self.class == 0 && !in_debt
            || has_reserve && self.is_cheap(budget * EXACT_PART, pair_ns)
            || is_credit_high && self.is_cheap(budget * BURST_FACTOR * BURST_EASE, pair_ns)
        {
            return 0;
        }
        // The intervals of neighbouring classes differ by a factor of two, so alternate between two classes to meet the
        // target cost of samples. Alternate quickly, because estimates are better if the mean interval is even over
        // time.
        let narrowest_class = self.narrowest_class(budget, self.sample_part(), pair_ns);
        if self.steer_ns > 0.0 { narrowest_class.saturating_sub(1).max(1) } else { narrowest_class.max(1) }
    }

    /// Returns the target cost of samples, as a fraction of the budget that counting leaves.
    fn sample_part(&self) -> f64 {
        if self.lent_ns > LOAN_SLICE_NS as f64 { SAMPLE_PART * SAMPLE_PART_IN_DEBT } else { SAMPLE_PART }
    }

    /// Returns whether recording every block at the recent load takes at most `share` of the processor time.
    fn is_cheap(&self, share: f64, pair_ns: f64) -> bool {
        let pair_ns = if self.exact_pair_ns > 0.0 { self.exact_pair_ns.min(pair_ns) } else { pair_ns };
        (self.small + self.large) * pair_ns * EXACT_COST_FACTOR <= share * self.cpu_ns
    }

    /// Returns the class with the narrowest interval whose samples, at the recent load, cost at most `part` of the
    /// budget that counting leaves.
    fn narrowest_class(&self, budget: f64, part: f64, pair_ns: f64) -> u8 {
        let budget_ns = budget * self.cpu_ns;
        let counted_ns = (self.small * COUNTED_NS).min(budget_ns * MAX_COUNTING_PART);
        // Leave a minimum, because otherwise no small block would ever be recorded.
        let room_ns = (part * (budget_ns - counted_ns) - self.large * pair_ns).max(budget_ns / 20.0);
        let sample_ns = pair_ns * SAMPLED_COST_FACTOR;
        let fits = |class: u8| {
            let cost_ns = match class {
                0 => self.small * pair_ns * EXACT_COST_FACTOR,
                class => self.small.min(self.bytes / interval(class) as f64) * sample_ns,
            };
            cost_ns <= room_ns
        };
        (0..MAX_CLASS).find(|&class| fits(class)).unwrap_or(MAX_CLASS)
    }
}

/// Borrows a slice of the loan and returns it in nanoseconds, or returns 0 if nothing is left.
fn borrow_slice() -> f64 {
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
    let exact_ns = if class == 0 { cpu_ns } else { 0.0 };
    let widest = interval(WIDEST_CLASS.load(Relaxed));
    shared_memory::publish_sampling(cpu_ns as u64, exact_ns as u64, spent_ns as u64, widest);
}

/// The mean cost of one kind of call in ticks, estimated from timed calls. It is a moving average in which no call
/// counts for more than four times the mean. Later estimates are therefore not distorted by a call during which the
/// thread was descheduled, or by the first call, which reads the binaries' tables.
#[derive(Debug, Default)]
pub(super) struct Cost {
    mean_ticks: f64,
    timed: u32,
    calls_left: u32,
}

impl Cost {
    /// The weight of a new call. The average covers about sixteen timed calls.
    const NEW_WEIGHT: f64 = 1.0 / 16.0;
    /// The assumed duration of a call before any has been timed.
    const GUESS_TICKS: f64 = 500.0;
    /// The average number of calls for each one that is timed.
    const CALLS_PER_TIMED: u32 = 16;

    /// Returns whether this call should be timed.
    #[inline(always)]
    pub(super) fn is_due(&mut self, random: u64) -> bool {
        match self.calls_left.checked_sub(1) {
            Some(left) => {
                self.calls_left = left;
                false
            }
            None => {
                // Avoid a fixed stride, because programs behave periodically.
                self.calls_left = (random as u32) % (2 * Self::CALLS_PER_TIMED - 1);
                true
            }
        }
    }

    /// Adds a timed call that took `ticks`.
    pub(super) fn add(&mut self, ticks: u64) {
        if self.timed == 0 {
            self.mean_ticks = Self::GUESS_TICKS;
        }
        self.timed = self.timed.saturating_add(1);
        let counted = (ticks as f64).min(4.0 * self.mean_ticks);
        let part = Self::NEW_WEIGHT.max(1.0 / f64::from(self.timed + 1));
        self.mean_ticks += (counted - self.mean_ticks) * part;
    }

    /// Returns the mean in ticks, or `None` before the first timed call.
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

    /// Sets how much can be borrowed, and prevents other tests from borrowing at the same time.
    fn with_loan(start_ns: i64) -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        LOAN_LEFT_NS.store(start_ns, Relaxed);
        alone
    }

    /// The outcome of simulating a thread.
    struct Outcome {
        /// The cost of recording, relative to the thread's time without it.
        share: f64,
        /// The fraction of the blocks that were recorded.
        recorded: f64,
        /// The number of samples in the second half, relative to the number of evenly spaced samples that would give
        /// the same precision.
        unevenness: f64,
        class: u8,
    }

    /// Simulates a thread for `milliseconds`. In each millisecond, it allocates `blocks_per_ms(millisecond)` blocks, in
    /// batches of sixteen.
    fn simulate(ledger: &mut Ledger, milliseconds: u32, blocks_per_ms: impl Fn(u32) -> u32) -> Outcome {
        let (mut spent_ns, mut blocks, mut recorded) = (0.0, 0.0, 0.0);
        let (mut batches_counted, mut intervals, mut samples) = (0.0, 0.0, 0.0);
        let mut class = ledger.class();
        for now in 0..milliseconds {
            let batches = (blocks_per_ms(now) / 16).max(1);
            for _ in 0..batches {
                let picked: f64 = match class {
                    0 => 16.0,
                    class => 16.0 * -(-(SIZE as f64) / interval(class) as f64).exp_m1(),
                };
                let cost_ns = picked * PAIR_NS + (16.0 - picked) * COUNTED_NS;
                // Only whole blocks are recorded; fractions are settled with the next batch.
                let whole = (recorded + picked).floor() - f64::floor(recorded);
                (blocks, recorded, spent_ns) = (blocks + 16.0, recorded + picked, spent_ns + cost_ns);
                let seen = Activity {
                    cpu_ns: 1e6 / f64::from(batches) + cost_ns,
                    blocks: 16,
                    recorded: whole as u64,
                    large: 0,
                    small_bytes: 16 * SIZE,
                };
                if now >= milliseconds / 2 {
                    let interval = interval(class).max(1) as f64;
                    (batches_counted, intervals, samples) =
                        (batches_counted + 1.0, intervals + interval, samples + 1.0 / interval);
                }
                class = ledger.settle(&seen, BUDGET, PAIR_NS, 0);
            }
        }
        let share = spent_ns / (f64::from(milliseconds) * 1e6);
        let unevenness = intervals / batches_counted * (samples / batches_counted);
        Outcome { share, recorded: recorded / blocks, unevenness, class }
    }

    #[test]
    fn every_block_is_recorded_under_a_light_load() {
        let _alone = with_loan(0);
        // Recording everything takes two percent.
        let outcome = simulate(&mut Ledger::default(), 3000, |_| 50);
        assert!(outcome.recorded > 0.95 && outcome.class == 0, "{} {}", outcome.recorded, outcome.class);
    }

    #[test]
    fn a_heavy_load_is_sampled_within_the_budget() {
        let _alone = with_loan(0);
        for blocks_per_ms in [100, 300, 1000, 3000] {
            let outcome = simulate(&mut Ledger::default(), 3000, |_| blocks_per_ms);
            let (share, recorded) = (outcome.share, outcome.recorded);
            assert!(share < BUDGET && share > BUDGET / 3.0, "{blocks_per_ms}: {share}, {recorded}");
            // With few blocks, there are periods in which all of them are recorded.
            assert!(
                outcome.unevenness < 1.15 || blocks_per_ms == 100,
                "{blocks_per_ms}: {}",
                outcome.unevenness
            );
            assert!(recorded > 0.3 || blocks_per_ms > 100, "{blocks_per_ms}: {recorded}");
        }
    }

    #[test]
    fn a_program_with_only_tiny_blocks_is_sampled_too() {
        let _alone = with_loan(0);
        // Counting the blocks takes more than the budget.
        let (before, blocks_per_ms) = (so_far(), 12_000);
        let outcome = simulate(&mut Ledger::default(), 1000, |_| blocks_per_ms);
        let samples_ns = outcome.recorded * f64::from(blocks_per_ms) * PAIR_NS;
        assert!(samples_ns > 1e6 * BUDGET / 10.0 && samples_ns < 1e6 * BUDGET / 2.0, "{samples_ns}");
        // The recording reports the full cost.
        let share =
            (so_far().spent_seconds - before.spent_seconds) / (so_far().cpu_seconds - before.cpu_seconds);
        assert!(share > BUDGET && share > outcome.share / 1.1, "{share} of {}", outcome.share);
    }

    #[test]
    fn a_burst_spends_the_savings_and_no_more() {
        let _alone = with_loan(0);
        let mut ledger = Ledger::default();
        simulate(&mut ledger, 10_000, |_| 1);
        // Ten seconds have earned 300 ms, of which only the earnings of two seconds were saved.
        let outcome = simulate(&mut ledger, 400, |_| 2000);
        assert!(outcome.share * 400.0 < 2000.0 * BUDGET + 400.0 * BUDGET + 5.0, "{}", outcome.share);
        assert!(outcome.class > 0);
        let calm = simulate(&mut ledger, 2000, |_| 20);
        assert_eq!(calm.class, 0, "every block is recorded again once there is a reserve");
    }

    #[test]
    fn a_short_run_slightly_over_budget_is_recorded_completely() {
        let _alone = with_loan(START_LOAN_NS);
        let mut ledger = Ledger::new();
        // For one second, recording everything takes 4.8 percent.
        let outcome = simulate(&mut ledger, 1000, |_| 80);
        assert!(outcome.recorded > 0.99 && outcome.class == 0, "{} {}", outcome.recorded, outcome.class);
        assert!(ledger.lent_ns > 10e6, "{}", ledger.lent_ns);
        // The loan is repaid even though the load stays the same.
        let outcome = simulate(&mut ledger, 60_000, |_| 80);
        assert!(ledger.lent_ns == 0.0 && outcome.recorded < 0.8, "{} {}", ledger.lent_ns, outcome.recorded);
        assert!(outcome.share < BUDGET, "{}", outcome.share);
    }

    #[test]
    fn a_heavy_load_can_borrow_little() {
        let _alone = with_loan(START_LOAN_NS);
        let outcome = simulate(&mut Ledger::new(), 300, |_| 2000);
        let spent_ns = outcome.share * 300e6;
        assert!(spent_ns < 1.3 * BURST_AT_ONCE_NS + 300e6 * BUDGET, "{spent_ns}");
        // Neither a burst at the beginning nor a longer one later causes sampling.
        let outcome = simulate(&mut Ledger::new(), 1000, |now| if now < 1 { 2000 } else { 40 });
        assert!(outcome.recorded > 0.99, "{}", outcome.recorded);
        let outcome = simulate(&mut Ledger::new(), 1000, |now| if now / 4 == 50 { 2000 } else { 60 });
        assert!(outcome.recorded > 0.99, "{}", outcome.recorded);
    }

    #[test]
    fn a_burst_does_not_leave_the_rest_of_a_short_run_sampled() {
        let _alone = with_loan(START_LOAN_NS);
        let mut ledger = Ledger::new();
        let burst = simulate(&mut ledger, 20, |_| 2000);
        assert!(burst.class > 0, "{} is more than a first burst may take", burst.recorded);
        let rest = simulate(&mut ledger, 1000, |_| 80);
        assert!(rest.recorded > 0.6 && rest.class == 0, "{} {}", rest.recorded, rest.class);
        // If nothing more can be borrowed, the thread keeps sampling.
        LOAN_LEFT_NS.store(0, Relaxed);
        let rest = simulate(&mut ledger, 60_000, |_| 80);
        assert!(rest.recorded < 0.7 && rest.share < BUDGET, "{} {}", rest.recorded, rest.share);
    }

    #[test]
    fn a_load_that_comes_and_goes_stays_within_the_budget() {
        let _alone = with_loan(0);
        let outcome = simulate(&mut Ledger::default(), 5000, |now| if now / 50 % 2 == 0 { 1500 } else { 10 });
        assert!(outcome.share < BUDGET * 1.1, "{}", outcome.share);
    }

    #[test]
    fn small_blocks_get_a_share_when_large_ones_take_the_whole_budget() {
        let _alone = with_loan(0);
        let mut ledger = Ledger { credit_ns: -1.0, ..Ledger::default() };
        let seen = Activity { cpu_ns: 1e6, blocks: 1200, recorded: 200, large: 200, small_bytes: 100_000 };
        let class = (0..50).map(|_| ledger.settle(&seen, BUDGET, PAIR_NS, 0)).last().unwrap_or(0);
        assert!((5..MAX_CLASS).contains(&class), "{class}");
    }

    #[test]
    fn a_nearly_full_live_table_widens_the_interval() {
        let _alone = with_loan(0);
        let at = |live| min_class(live, 4096);
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
        // The mean follows a permanent change in cost.
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
