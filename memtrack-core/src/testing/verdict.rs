//! The verdict on a test's memory usage, and the message if the test exceeds a limit.

use super::limits::Limits;
use super::lines::{self, AllocatingLine, StackNames};
use memtrack_model::event::{DeviceId, StackId};
use memtrack_model::units::{counted, human_bytes, human_count};
use memtrack_recorder::accounts::{Amount, Books, DeviceBooks, Unattributed};
use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::fmt::Write as _;
use std::panic::resume_unwind;

/// The maximum number of lines of code to list.
const MAX_LINES: usize = 8;
/// The maximum number of lines for which the stack is printed.
const MAX_STACKS: usize = 3;

/// A check of a test against its limits.
pub(super) struct LimitCheck<'a> {
    pub(super) limits: &'a Limits,
}

/// The runs of a test, which show what memory it leaks.
#[derive(Clone, Copy)]
pub(super) enum Leaks<'a> {
    /// The test ran once.
    Once,
    /// The test ran twice, but the second run ended differently. The value describes how.
    NotComparable(&'a str),
    /// The test ran twice.
    Twice {
        /// The accounts of the first run, after the second run's frees.
        later: &'a Books,
        /// The accounts of the second run.
        second: &'a Books,
    },
}

/// The limits that a test exceeded, as text.
#[derive(Clone, Debug)]
pub(super) struct ExceededLimits(String);

impl fmt::Display for ExceededLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A test's failure, if the test exceeded its limits.
pub(super) struct Failure(pub(super) Option<ExceededLimits>);

impl Failure {
    /// Panics with the message.
    #[track_caller]
    pub(super) fn fail(self) {
        if let Some(exceeded) = self.0 {
            panic!("{exceeded}");
        }
    }

    /// Continues the panic of a test that should panic, unless a limit was exceeded. In that case, prints the message
    /// and returns, and libtest reports that the test did not panic.
    pub(super) fn fail_or_panic(self, panic: Option<Box<dyn Any + Send>>) {
        match (self.0, panic) {
            (Some(exceeded), Some(_)) => {
                eprintln!("{exceeded}\nThe test has panicked as it should. It fails because of its limits.");
            }
            (Some(exceeded), None) => eprintln!("{exceeded}"),
            (None, Some(panic)) => resume_unwind(panic),
            (None, None) => {}
        }
    }
}

impl LimitCheck<'_> {
    /// Returns whether more memory is left than allowed, including one-time allocations, because stacks are not looked
    /// up here.
    pub(super) fn leaks_too_much(&self, left: &[(DeviceId, Amount)]) -> bool {
        let too_much = |(device, left): &(DeviceId, Amount)| {
            exceeds(left.bytes, self.limits.for_device(*device).leaked_bytes)
        };
        left.iter().any(too_much)
    }

    /// Returns whether more memory is left than allowed, excluding one-time allocations, which are identified by their
    /// stacks.
    pub(super) fn leaks(&self, books: &Books) -> bool {
        let mut names = None;
        books.devices().into_iter().any(|(device, books)| {
            let limit = self.limits.for_device(device).leaked_bytes;
            exceeds(books.left().bytes, limit) && {
                let names = names.get_or_insert_with(StackNames::new);
                exceeds(sum_amounts(&self.remaining_memory(books, names).1).bytes, limit)
            }
        })
    }

    /// Returns the remaining memory by stack: first the one-time and ignored allocations, then all others.
    fn remaining_memory(&self, books: &DeviceBooks, names: &mut StackNames) -> (Vec<Stack>, Vec<Stack>) {
        let left = books.stacks().map(|row| (row.stack, row.left)).filter(|(_, left)| left.blocks > 0);
        left.partition(|(stack, left)| names.is_expected(*stack, left.blocks, &self.limits.ignored))
    }

    /// Returns the limits that the test exceeded. Its accounts must be closed.
    pub(super) fn find_exceeded(
        &self,
        name: &str,
        books: &Books,
        leaks: Leaks<'_>,
        unattributed: &[Unattributed],
    ) -> Option<ExceededLimits> {
        let all = books.devices();
        let may_exceed = all.iter().any(|(device, books)| {
            let limits = self.limits.for_device(*device);
            exceeds(books.peak().bytes, limits.peak_bytes)
                || exceeds(books.allocated().blocks, limits.count)
                || exceeds(books.left().bytes, limits.leaked_bytes)
        });
        if !may_exceed {
            return None;
        }
        let mut names = StackNames::new();
        let mut text = String::new();
        for (device, books) in all {
            self.check_device(device, books, leaks, &mut names, &mut text);
        }
        if text.is_empty() {
            return None;
        }
        Some(ExceededLimits(format!(
            "{name} exceeded its memory limits\n{text}{}",
            describe_unattributed(unattributed)
        )))
    }

    fn check_device(
        &self,
        device: DeviceId,
        books: &DeviceBooks,
        leaks: Leaks<'_>,
        names: &mut StackNames,
        text: &mut String,
    ) {
        let limits = self.limits.for_device(device);
        let device_name = device_name(device);
        let by = |amount: fn(&memtrack_recorder::accounts::StackAmounts) -> Amount| {
            let amounts: Vec<(StackId, Amount)> =
                books.stacks().map(|row| (row.stack, amount(&row))).filter(|(_, of)| of.blocks > 0).collect();
            amounts
        };
        if let Some(limit) = limits.peak_bytes.filter(|&limit| books.peak().bytes > limit) {
            let Amount { bytes, blocks } = books.peak();
            push_line(text, format_args!("\n{device_name}: a peak of {}", format_excess(bytes, limit)));
            push_line(text, format_args!("  held at the peak, in {}:", counted(blocks, "block")));
            append_lines(text, &lines::group_by_line(&by(|row| row.at_peak), false, names), false);
        }
        if let Some(limit) = limits.leaked_bytes.filter(|&limit| books.left().bytes > limit) {
            self.check_leaks(device, books, limit, leaks, names, text);
        }
        if let Some(limit) = limits.count.filter(|&limit| books.allocated().blocks > limit) {
            let Amount { blocks, bytes } = books.allocated();
            let more = human_count(blocks - limit);
            push_line(
                text,
                format_args!(
                    "\n{device_name}: {}, {more} more than the limit of {}",
                    counted(blocks, "allocation"),
                    human_count(limit)
                ),
            );
            push_line(text, format_args!("  allocated, {} in all:", human_bytes(bytes)));
            append_lines(text, &lines::group_by_line(&by(|row| row.allocated), true, names), true);
        }
    }

    /// Appends a message about leaks if they exceed the limit. If the test ran twice, its leaks are the memory that the
    /// second run added.
    fn check_leaks(
        &self,
        device: DeviceId,
        books: &DeviceBooks,
        limit: u64,
        leaks: Leaks<'_>,
        names: &mut StackNames,
        text: &mut String,
    ) {
        let (mut expected, mut leaked) = self.remaining_memory(books, names);
        let mut leaked_bytes = sum_amounts(&leaked).bytes;
        let mut how = None;
        match leaks {
            Leaks::Once => {}
            Leaks::NotComparable(ended) => {
                how = Some(format!(
                    "left by one run: a second one, which would show what is made only once, {ended}"
                ));
            }
            Leaks::Twice { later, second } => {
                let empty = DeviceBooks::default();
                let (later, second) =
                    (later.device(device).unwrap_or(&empty), second.device(device).unwrap_or(&empty));
                let freed = books.left().bytes.saturating_sub(later.left().bytes);
                leaked = self.remaining_memory(second, names).1;
                leaked_bytes = sum_amounts(&leaked).bytes.saturating_sub(freed);
                // Memory that only the first run left is allowed, wherever it was allocated. Compare lines rather than
                // stacks, because memtrack's own frames differ between the two runs.
                let leaking: HashSet<_> = leaked.iter().map(|&(stack, _)| names.line(stack)).collect();
                let left = later.stacks().map(|row| (row.stack, row.left)).filter(|(_, of)| of.blocks > 0);
                expected = left.filter(|&(stack, _)| !leaking.contains(&names.line(stack))).collect();
                how =
                    Some("left by the second of two runs: what is made only once is not among it".to_owned());
            }
        }
        if leaked_bytes <= limit {
            return;
        }
        push_line(
            text,
            format_args!("\n{}: leaks of {}", device_name(device), format_excess(leaked_bytes, limit)),
        );
        push_line(text, format_args!("  not given back, {}:", counted(sum_amounts(&leaked).blocks, "block")));
        append_lines(text, &lines::group_by_line(&leaked, false, names), false);
        if let Some(how) = how {
            push_line(text, format_args!("  {how}"));
        }
        push_line(
            text,
            format_args!(
                "  what stays on purpose, such as a cache: ignore_leaks = \"GLOB\" of a function or file"
            ),
        );
        let kept = sum_amounts(&expected);
        if kept.blocks > 0 {
            let in_blocks = format_args!("{} in {}", human_bytes(kept.bytes), counted(kept.blocks, "block"));
            push_line(
                text,
                format_args!(
                    "  no leaks: {in_blocks}, made once for the whole program or thread, or ignored"
                ),
            );
        }
    }
}

/// The bytes and blocks of one stack.
type Stack = (StackId, Amount);

fn device_name(device: DeviceId) -> String {
    if device.is_host() { "host heap".to_owned() } else { device.to_string() }
}

fn exceeds(number: u64, limit: Option<u64>) -> bool {
    limit.is_some_and(|limit| number > limit)
}

fn format_excess(bytes: u64, limit: u64) -> String {
    format!(
        "{}, {} more than the limit of {}",
        human_bytes(bytes),
        human_bytes(bytes - limit),
        human_bytes(limit)
    )
}

fn sum_amounts(amounts: &[Stack]) -> Amount {
    let add = |sum: Amount, (_, amount): &Stack| Amount {
        bytes: sum.bytes + amount.bytes,
        blocks: sum.blocks + amount.blocks,
    };
    amounts.iter().fold(Amount::default(), add)
}

fn push_line(text: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// Appends the lines of code, largest first, and the stacks of the first few.
fn append_lines(text: &mut String, lines: &[AllocatingLine], by_count: bool) {
    let amount = |amount: Amount| match by_count {
        true => (human_count(amount.blocks), human_bytes(amount.bytes)),
        false => (human_bytes(amount.bytes), counted(amount.blocks, "block")),
    };
    for (index, row) in lines.iter().take(MAX_LINES).enumerate() {
        let (first, second) = amount(row.amount);
        push_line(text, format_args!("  {first:>10}  {}  ({second})", row.name));
        if index < MAX_STACKS {
            for frame in &row.stack {
                push_line(text, format_args!("                {frame}"));
            }
        }
    }
    let rest = lines.get(MAX_LINES..).unwrap_or_default();
    if !rest.is_empty() {
        let of_rest = rest.iter().fold(Amount::default(), |sum, row| Amount {
            bytes: sum.bytes + row.amount.bytes,
            blocks: sum.blocks + row.amount.blocks,
        });
        let (first, second) = amount(of_rest);
        push_line(
            text,
            format_args!("  {first:>10}  {} more  ({second})", counted(rest.len() as u64, "line")),
        );
    }
}

/// Describes allocations that belong to no test.
fn describe_unattributed(unattributed: &[Unattributed]) -> String {
    const MAX_THREADS: usize = 3;
    if unattributed.is_empty() {
        return String::new();
    }
    let bytes = unattributed.iter().map(|row| row.allocated.bytes).sum();
    let blocks = unattributed.iter().map(|row| row.allocated.blocks).sum();
    let name = |row: &Unattributed| {
        let name = row.thread.as_deref().unwrap_or("threads that have ended");
        format!("{name} {}", human_bytes(row.allocated.bytes))
    };
    let mut threads: Vec<String> = unattributed.iter().take(MAX_THREADS).map(name).collect();
    if let Some(more) = unattributed.len().checked_sub(MAX_THREADS).filter(|&more| more > 0) {
        threads.push(format!("{more} more"));
    }
    format!(
        "\n{} in {}, allocated by other threads while this test ran, belong to no test ({}).\nA thread or task of the \
         test counts when it enters the test's memtrack_core::scope::current().\n",
        human_bytes(bytes),
        counted(blocks, "block"),
        threads.join(", ")
    )
}
