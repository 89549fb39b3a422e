//! The verdict on a test's memory usage, and the message if it exceeds a limit.

use super::limits::Limits;
use super::lines::{self, AllocatingLine, Names};
use memtrack_model::event::{DeviceId, StackId};
use memtrack_model::units::{counted, human_bytes, human_count};
use memtrack_recorder::accounts::{Amount, Books, DeviceBooks, Unattributed};
use std::collections::HashSet;
use std::fmt;
use std::fmt::Write as _;

/// The maximum number of lines of code that are named, and of those whose stack is shown.
const MAX_LINES: usize = 8;
const MAX_STACKS: usize = 3;

/// The limits that a test is checked against.
pub(super) struct Judge<'a> {
    pub(super) limits: &'a Limits,
}

/// The information on memory that a test left.
#[derive(Clone, Copy)]
pub(super) enum Leaks<'a> {
    /// It ran once.
    Once,
    /// It ran twice, and ended differently: how it ended the second time.
    NotComparable(&'a str),
    /// It ran twice: the first run's books after the second, and the second's.
    Twice {
        /// The first run's, minus the frees of the second.
        later: &'a Books,
        /// The second run's.
        second: &'a Books,
    },
}

/// The exceeded limits of a test, as text.
#[derive(Clone, Debug)]
pub(super) struct Over(String);

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Judge<'_> {
    /// Returns whether more is left than allowed, as far as that can be determined before stacks are named.
    pub(super) fn leaks_too_much(&self, left: &[(DeviceId, Amount)]) -> bool {
        let too_much =
            |(device, left): &(DeviceId, Amount)| exceeds(left.bytes, self.limits.of(*device).leaked_bytes);
        left.iter().any(too_much)
    }

    /// Returns whether more is left than allowed, excluding one-time allocations identified by their stacks.
    pub(super) fn leaks(&self, books: &Books) -> bool {
        let mut names = None;
        books.devices().into_iter().any(|(device, books)| {
            let limit = self.limits.of(device).leaked_bytes;
            exceeds(books.left().bytes, limit) && {
                let names = names.get_or_insert_with(Names::new);
                exceeds(sum(&self.left(books, names).1).bytes, limit)
            }
        })
    }

    /// Returns the remaining memory by stack: one-time allocations and ignored ones, and all others.
    fn left(&self, books: &DeviceBooks, names: &mut Names) -> (Vec<Stack>, Vec<Stack>) {
        let left = books.stacks().map(|row| (row.stack, row.left)).filter(|(_, left)| left.blocks > 0);
        left.partition(|(stack, left)| names.is_no_leak(*stack, left.blocks, &self.limits.ignored))
    }

    /// Returns the limits that the test has exceeded; its accounts are closed.
    pub(super) fn judge(
        &self,
        name: &str,
        books: &Books,
        leaks: Leaks<'_>,
        others: &[Unattributed],
    ) -> Option<Over> {
        let all = books.devices();
        let any = all.iter().any(|(device, books)| {
            let limits = self.limits.of(*device);
            exceeds(books.peak().bytes, limits.peak_bytes)
                || exceeds(books.allocated().blocks, limits.count)
                || exceeds(books.left().bytes, limits.leaked_bytes)
        });
        if !any {
            return None;
        }
        let mut names = Names::new();
        let mut text = String::new();
        for (device, books) in all {
            self.judge_device(device, books, leaks, &mut names, &mut text);
        }
        if text.is_empty() {
            return None;
        }
        Some(Over(format!("{name} exceeded its memory limits\n{text}{}", of_others(others))))
    }

    fn judge_device(
        &self,
        device: DeviceId,
        books: &DeviceBooks,
        leaks: Leaks<'_>,
        names: &mut Names,
        text: &mut String,
    ) {
        let limits = self.limits.of(device);
        let place = place(device);
        let by = |amount: fn(&memtrack_recorder::accounts::StackAmounts) -> Amount| {
            let amounts: Vec<(StackId, Amount)> =
                books.stacks().map(|row| (row.stack, amount(&row))).filter(|(_, of)| of.blocks > 0).collect();
            amounts
        };
        if let Some(most) = limits.peak_bytes.filter(|&most| books.peak().bytes > most) {
            let Amount { bytes, blocks } = books.peak();
            line(text, format_args!("\n{place}: a peak of {}", over_bytes(bytes, most)));
            line(text, format_args!("  held at the peak, in {}:", counted(blocks, "block")));
            append_lines(text, &lines::of(&by(|row| row.at_peak), false, names), false);
        }
        if let Some(most) = limits.leaked_bytes.filter(|&most| books.left().bytes > most) {
            self.judge_leaks(device, books, most, leaks, names, text);
        }
        if let Some(most) = limits.count.filter(|&most| books.allocated().blocks > most) {
            let Amount { blocks, bytes } = books.allocated();
            let more = human_count(blocks - most);
            line(
                text,
                format_args!(
                    "\n{place}: {}, {more} more than the limit of {}",
                    counted(blocks, "allocation"),
                    human_count(most)
                ),
            );
            line(text, format_args!("  allocated, {} in all:", human_bytes(bytes)));
            append_lines(text, &lines::of(&by(|row| row.allocated), true, names), true);
        }
    }

    /// Reports leaks. For a test that ran twice, these are the memory that the second run added to that of
    /// the first.
    fn judge_leaks(
        &self,
        device: DeviceId,
        books: &DeviceBooks,
        most: u64,
        leaks: Leaks<'_>,
        names: &mut Names,
        text: &mut String,
    ) {
        let (mut no_leak, mut leaked) = self.left(books, names);
        let mut leaked_bytes = sum(&leaked).bytes;
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
                leaked = self.left(second, names).1;
                leaked_bytes = sum(&leaked).bytes.saturating_sub(freed);
                // Memory that the first run left and the second did not is allowed, wherever it was
                // allocated. The stacks of the two runs differ in how memtrack called the test, so lines are
                // compared.
                let leaking: HashSet<_> = leaked.iter().map(|&(stack, _)| names.line(stack)).collect();
                let left = later.stacks().map(|row| (row.stack, row.left)).filter(|(_, of)| of.blocks > 0);
                no_leak = left.filter(|&(stack, _)| !leaking.contains(&names.line(stack))).collect();
                how =
                    Some("left by the second of two runs: what is made only once is not among it".to_owned());
            }
        }
        if leaked_bytes <= most {
            return;
        }
        line(text, format_args!("\n{}: leaks of {}", place(device), over_bytes(leaked_bytes, most)));
        line(text, format_args!("  not given back, {}:", counted(sum(&leaked).blocks, "block")));
        append_lines(text, &lines::of(&leaked, false, names), false);
        if let Some(how) = how {
            line(text, format_args!("  {how}"));
        }
        line(
            text,
            format_args!(
                "  what stays on purpose, such as a cache: ignore_leaks = \"GLOB\" of a function or file"
            ),
        );
        let kept = sum(&no_leak);
        if kept.blocks > 0 {
            let in_blocks = format_args!("{} in {}", human_bytes(kept.bytes), counted(kept.blocks, "block"));
            line(
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

fn place(device: DeviceId) -> String {
    if device.is_host() { "host heap".to_owned() } else { device.to_string() }
}

fn exceeds(number: u64, most: Option<u64>) -> bool {
    most.is_some_and(|most| number > most)
}

fn over_bytes(bytes: u64, most: u64) -> String {
    format!(
        "{}, {} more than the limit of {}",
        human_bytes(bytes),
        human_bytes(bytes - most),
        human_bytes(most)
    )
}

fn sum(amounts: &[Stack]) -> Amount {
    let add = |sum: Amount, (_, amount): &Stack| Amount {
        bytes: sum.bytes + amount.bytes,
        blocks: sum.blocks + amount.blocks,
    };
    amounts.iter().fold(Amount::default(), add)
}

fn line(text: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// Appends the lines of code, the largest first, with the stack of the first few.
fn append_lines(text: &mut String, lines: &[AllocatingLine], by_count: bool) {
    let amount = |amount: Amount| match by_count {
        true => (human_count(amount.blocks), human_bytes(amount.bytes)),
        false => (human_bytes(amount.bytes), counted(amount.blocks, "block")),
    };
    for (place, row) in lines.iter().take(MAX_LINES).enumerate() {
        let (first, second) = amount(row.amount);
        line(text, format_args!("  {first:>10}  {}  ({second})", row.name));
        if place < MAX_STACKS {
            for frame in &row.stack {
                line(text, format_args!("                {frame}"));
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
        line(text, format_args!("  {first:>10}  {} more  ({second})", counted(rest.len() as u64, "line")));
    }
}

/// Describes allocations that belong to no test.
fn of_others(others: &[Unattributed]) -> String {
    const MAX_THREADS: usize = 3;
    if others.is_empty() {
        return String::new();
    }
    let bytes = others.iter().map(|other| other.allocated.bytes).sum();
    let blocks = others.iter().map(|other| other.allocated.blocks).sum();
    let name = |other: &Unattributed| {
        let name = other.thread.as_deref().unwrap_or("threads that have ended");
        format!("{name} {}", human_bytes(other.allocated.bytes))
    };
    let mut threads: Vec<String> = others.iter().take(MAX_THREADS).map(name).collect();
    if let Some(more) = others.len().checked_sub(MAX_THREADS).filter(|&more| more > 0) {
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
