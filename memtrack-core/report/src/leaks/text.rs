//! Leaks as text: the summary first, then each leak with its details.

use super::{Age, Amount, CutBy, DeviceLeaks, Generations, Leak, LeakReport};
use crate::layout::{Layout, MIN_NAME_CHARS, shorten_function};
use crate::top::frames::format_frames;
use crate::top::{By, TopRow};
use memtrack_blocks::estimate::Estimate;
use memtrack_model::times::human_period;
use memtrack_model::units::{counted, human_bytes, human_count, printable, shorten_middle};
use std::fmt::{self, Write};

/// The maximum number of leaks that the summary names.
const MAX_NAMED: usize = 3;
/// The maximum number of characters of each name in the summary.
const MAX_NAME_CHARS: usize = 60;
/// The indentation of a leak's details.
const INDENT: &str = "     ";

impl fmt::Display for LeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(None))
    }
}

impl LeakReport {
    /// Returns the summary, with a line for each device, starting with the device that leaks most.
    pub(super) fn summary_sentences(&self) -> Vec<String> {
        let mut devices: Vec<&DeviceLeaks> = self.devices.iter().collect();
        devices.sort_by_key(|device| std::cmp::Reverse((device.leaked.bytes, device.blind.is_none())));
        let several = devices.len() > 1;
        let line = |device: &&DeviceLeaks| {
            let of = if several { format!("{}: ", device.device.name) } else { String::new() };
            of + &self.format_sentence(device)
        };
        devices.iter().map(line).collect()
    }

    /// Formats a sentence such as `1 line leaks 12.0 MiB: main.rs:88 handle +1.2 MiB in 9 of 9 periods`.
    fn format_sentence(&self, device: &DeviceLeaks) -> String {
        if let Some(why) = &device.blind {
            return format!("cannot determine what leaks: {why}");
        }
        if device.leaks_in_all == 0 && !device.freed_late.is_empty() {
            return self.format_freed_late(device);
        }
        if device.leaks_in_all == 0 {
            let mut alive = match (device.alive.blocks, device.older.blocks) {
                (0, 0) => "and nothing that was allocated is left".to_owned(),
                (0, _) => String::new(),
                _ => format!("{} are merely alive", format_amount(&device.alive)),
            };
            if device.older.blocks > 0 {
                let between = if alive.is_empty() { "" } else { "; " };
                alive = format!("{alive}{between}{}", format_not_judged(&device.older));
            }
            return format!(
                "nothing leaks: no {} grew steadily over {}; {alive}",
                self.group_noun(),
                self.format_periods()
            );
        }
        let named = device.leaks.iter().take(MAX_NAMED).map(|leak| {
            format!(
                "{} {} in {} of {} periods",
                leak.describe_place(MAX_NAME_CHARS),
                format_growth_per_period(leak),
                leak.grew,
                leak.periods
            )
        });
        let mut named: Vec<String> = named.collect();
        if device.leaks_in_all > named.len() {
            named.push("…".into());
        }
        let (leaked, verb) =
            (format_bytes(&device.leaked), if device.leaks_in_all == 1 { "leaks" } else { "leak" });
        let groups = counted(device.leaks_in_all as u64, self.group_noun());
        format!("{groups} {verb} {leaked}: {}", named.join(", "))
    }

    /// Formats sentences such as `1 line grew steadily and was freed only at the end: main.rs:88 handle 12.0 MiB in 9
    /// of 9 periods. …`.
    fn format_freed_late(&self, device: &DeviceLeaks) -> String {
        let all = device.freed_late.len();
        let named = device.freed_late.iter().take(MAX_NAMED).map(|late| {
            let place = printable(&shorten_line(&late.place, MAX_NAME_CHARS));
            format!("{place} {} in {} of {} periods", format_bytes(&late.freed), late.grew, late.periods)
        });
        let mut named: Vec<String> = named.collect();
        if all > named.len() {
            named.push("…".into());
        }
        let (groups, were) = (counted(all as u64, self.group_noun()), if all == 1 { "was" } else { "were" });
        format!(
            "{groups} grew steadily and {were} freed only at the end: {}. No leak if the program collected a result; \
             nothing else leaks",
            named.join(", ")
        )
    }

    /// Returns the noun for a group, in the singular.
    fn group_noun(&self) -> &'static str {
        match self.by {
            By::Python => "Python stack",
            By::Metadata => "metadata text",
            By::Line
                if self.split_foreign_by_stack && self.leaks().any(|leak| leak.row.owned.mine.is_none()) =>
            {
                "group"
            }
            by => by.name(),
        }
    }

    fn leaks(&self) -> impl Iterator<Item = &Leak> {
        self.devices.iter().flat_map(|device| &device.leaks)
    }

    /// Describes the periods, as in `10 periods of 1.20 s`.
    fn format_periods(&self) -> String {
        let long = self.period_seconds.map(human_period);
        match (&self.cut, long) {
            (CutBy::Time, Some(long)) => format!("{} of {long}", counted(self.periods as u64, "period")),
            (CutBy::Time, None) => counted(self.periods as u64, "period"),
            (CutBy::Events, _) => {
                let periods = counted(self.periods as u64, "period");
                format!("{periods} of {}", counted(self.period_events.unwrap_or(0) as u64, "event"))
            }
            (CutBy::Intervals { name, count }, _) => {
                let each = *count as f64 / self.periods.max(1) as f64;
                let periods = counted(self.periods as u64, "period");
                let name = printable(name);
                if *count == self.periods {
                    format!("{periods}, each one {name}")
                } else if each.fract() == 0.0 {
                    format!("{periods} of {each} × {name}")
                } else {
                    format!("{periods} of about {each:.0} × {name}")
                }
            }
            (CutBy::Snapshots, _) => format!("{} snapshots", self.periods + 1),
        }
    }

    /// Formats the report. If the layout has a width, names are shortened to fit.
    pub fn to_text(&self, layout: impl Into<Layout>) -> String {
        let layout = layout.into();
        let mut text = self.answer.join("\n") + "\n";
        let several = self.devices.len() > 1;
        for device in &self.devices {
            let of = if several { format!("{}: ", device.device.name) } else { String::new() };
            if device.leaks_in_all > 0 {
                let periods = self.format_periods();
                let heading = match self.cut {
                    CutBy::Snapshots => format!("new since the first of {periods}, and more in each"),
                    // The program's shutdown freed memory that the steps had left behind, so it was not `never freed`.
                    _ if device.leaks.iter().any(|leak| leak.freed_later.blocks > 0) => {
                        format!("not freed while the steps ran, and more after each of {periods}")
                    }
                    _ => format!("never freed, and more after each of {periods}"),
                };
                // Writing to a string cannot fail.
                let _ = writeln!(text, "\n{of}{heading}");
            }
            for (place, leak) in device.leaks.iter().enumerate() {
                leak.write(place + 1, &self.cut, layout, &mut text);
            }
            if device.leaks_in_all > device.leaks.len() {
                let more = (device.leaks_in_all - device.leaks.len()) as u64;
                let _ = writeln!(text, "\n… and {}", counted(more, "more leak"));
            }
            if let Some(generations) = &device.generations {
                generations.write(&of, layout, &mut text);
            }
            let group = if self.split_foreign_by_stack { "group" } else { self.group_noun() };
            device.push_footer(&of, group, &mut text);
        }
        for note in &self.notes {
            let _ = writeln!(text, "Note: {}", printable(note));
        }
        if !self.complete {
            let _ = writeln!(text, "{}", crate::top::NOT_ENDED_NOTE);
        }
        text
    }
}

impl DeviceLeaks {
    fn push_footer(&self, of: &str, group: &str, text: &mut String) {
        let late = self.freed_late.iter().take(MAX_NAMED).map(|late| {
            format!(
                "{} of {}, which grew in {} of {} periods, {} freed {}, as at a program's end.",
                format_bytes(&late.freed),
                printable(&shorten_line(&late.place, MAX_NAME_CHARS)),
                late.grew,
                late.periods,
                if late.freed.bytes == 1 { "was" } else { "were" },
                late.last_seconds.map_or_else(
                    || "with the last events".to_owned(),
                    |seconds| format!("in the last {}", human_period(seconds))
                )
            )
        });
        let mut lines: Vec<String> = late.collect();
        if self.freed_late.len() > MAX_NAMED {
            let more = counted((self.freed_late.len() - MAX_NAMED) as u64, group);
            lines.push(format!("… and {more} more, freed in the last moments."));
        }
        if self.leaks_in_all > 0 && self.alive.blocks > 0 {
            let groups = counted(self.alive_groups as u64, group);
            lines.push(format!("Merely alive: {} of {groups}.", format_amount(&self.alive)));
        }
        if self.leaks_in_all > 0 && self.older.blocks > 0 {
            lines.push(format!("{}.", format_not_judged(&self.older)));
        }
        if self.suppressed.blocks > 0 {
            lines.push(format!("Left out by patterns: {}.", format_amount(&self.suppressed)));
        }
        if self.detection_limit_bytes > 0 {
            lines.push(format!(
                "Small blocks are sampled: a {group} that left less than {} in such blocks may have no \
                 sample (with 5 % probability).",
                human_bytes(self.detection_limit_bytes)
            ));
        }
        if self.dropped > 0 {
            let events = counted(self.dropped, "older event");
            lines.push(format!("{events} did not fit the ring: earlier leaks are not shown."));
        }
        if !lines.is_empty() {
            text.push('\n');
        }
        for line in lines {
            let _ = writeln!(text, "{of}{line}");
        }
    }
}

/// Describes a group in a few words; a stack is described by its line in the user's code.
pub(super) fn describe_place(row: &TopRow) -> String {
    let owned = &row.owned;
    let is_line = row.name.ends_with(&owned.line());
    if owned.mine.is_some() && !is_line { owned.line() } else { row.name.clone() }
}

impl Leak {
    fn describe_place(&self, room: usize) -> String {
        printable(&shorten_function(&describe_place(&self.row), room))
    }

    fn write(&self, number: usize, cut: &CutBy, layout: Layout, text: &mut String) {
        let room = layout.width.map_or(usize::MAX, |width| width.saturating_sub(INDENT.len()));
        let name = match self.row.owned.mine {
            Some(_) => self.row.owned.to_string(),
            None => self.row.name.clone(),
        };
        let blocks = self.row.count_error.as_counted(self.row.count, "block");
        let left = self.row.allocated_error.as_bytes(self.row.allocated_bytes);
        let mut facts = vec![
            format!(
                "{left} in {blocks}; {} in {} of {} periods",
                format_growth_per_period(self),
                self.grew,
                self.periods
            ),
            match cut {
                CutBy::Snapshots => {
                    format!(
                        "In successive snapshots: {}",
                        format_bytes_by_period(&self.held_bytes, &self.held_errors)
                    )
                }
                _ => format!(
                    "Lived through each: {}",
                    format_bytes_by_period(&self.held_bytes, &self.held_errors)
                ),
            },
        ];
        if self.freed_later.blocks > 0 {
            facts.push(format!("Freed after the last of the steps: {}", format_amount(&self.freed_later)));
        }
        facts.extend(self.age.map(|age| format_age(&age)));
        let _ = writeln!(text, "\n{number:>3}. {}", shorten_middle(&printable(&name), room));
        for fact in facts {
            let _ = writeln!(text, "{INDENT}{fact}");
        }
        for line in format_frames(&self.row.stack, layout.frames, room.saturating_sub(2)) {
            let _ = writeln!(text, "{INDENT}  {line}");
        }
        if self.row.stacks > 1 {
            let more = counted(self.row.stacks as u64 - 1, "other stack");
            let _ = writeln!(text, "{INDENT}  (and {more})");
        }
    }
}

impl Generations {
    fn write(&self, of: &str, layout: Layout, text: &mut String) {
        let name = printable(&self.name);
        let whole = self.marks.saturating_sub(1) as u64;
        let found = match whole {
            0 => "marked only once, so none is complete".to_owned(),
            _ => format!(
                "{} of {} left something, median {}",
                human_count(self.leaving as u64),
                human_count(whole),
                human_bytes(self.median_left_bytes)
            ),
        };
        let _ = writeln!(text, "\n{of}What each {name} left behind: {found}");
        if whole > 0 && self.leaving == 0 && self.rows.iter().all(|row| row.left.bytes == 0) {
            return;
        }
        for row in &self.rows {
            let when = match (row.from_seconds, row.to_seconds) {
                (None, Some(to)) => format!("before the first, up to {}", self.since.moment(to)),
                (Some(from), Some(to)) => format!("{name} {}, {from:.3}–{to:.3} s", row.number),
                (Some(from), None) => format!("after the last, from {}", self.since.moment(from)),
                (None, None) if self.marks == 0 => "all".into(),
                (None, None) if row.number == 0 => "before the first".into(),
                (None, None) if row.number == self.marks => "after the last".into(),
                (None, None) => format!("{name} {}", row.number),
            };
            let left = format_bytes(&row.left);
            let line = format!(
                "  {when}: {left} in {} of {}",
                row.left.blocks_error.as_counted(row.left.blocks, "block"),
                row.allocated.bytes_error.as_bytes(row.allocated.bytes)
            );
            let shares: Vec<(String, String)> =
                row.shares.iter().map(|share| (printable(&share.name), format_bytes(&share.left))).collect();
            let room = layout.width.unwrap_or(usize::MAX).saturating_sub(line.chars().count());
            let shares = format_shares(&shares, row.shares_in_all, room);
            let _ = writeln!(text, "{line}{shares}");
        }
        if self.rows_in_all > self.rows.len() {
            let more = (self.rows_in_all - self.rows.len()) as u64;
            let _ = writeln!(text, "  … and {} more", human_count(more));
        }
    }
}

/// Formats a text such as `: trainer.py:38 loss 4 B, …` in `room` characters. Names are shortened and the last shares
/// are omitted to make it fit, but numbers are never cut.
fn format_shares(shares: &[(String, String)], in_all: usize, room: usize) -> String {
    for shown in (1..=shares.len()).rev() {
        let more = if in_all > shown { ", …" } else { "" };
        let numbers: usize = shares[..shown].iter().map(|(_, bytes)| bytes.chars().count() + 3).sum();
        let Some(names) = room.checked_sub(numbers + more.chars().count()) else { continue };
        let whole: usize =
            shares[..shown].iter().map(|(name, _)| name.chars().count().min(MAX_NAME_CHARS)).sum();
        // If the names do not all fit, they share the room equally.
        let each = if whole <= names { MAX_NAME_CHARS } else { names / shown };
        if each < MIN_NAME_CHARS && whole > names {
            continue;
        }
        let shares =
            shares[..shown].iter().map(|(name, bytes)| format!("{} {bytes}", shorten_line(name, each)));
        return format!(": {}{more}", shares.collect::<Vec<_>>().join(", "));
    }
    if shares.is_empty() { String::new() } else { ": …".into() }
}

/// Shortens a name to `room` characters, keeping the line number of a `file:line function` intact.
fn shorten_line(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    let is_place = |place: &&str| place.rsplit_once(':').is_some_and(|(_, line)| line.parse::<u32>().is_ok());
    match name.split_once(' ').map(|(place, _)| place).filter(is_place) {
        Some(place) => {
            let (file, line) = place.rsplit_once(':').unwrap_or((place, ""));
            let left = room.saturating_sub(place.chars().count() + 1);
            if left >= 4 {
                return format!("{place} {}", shorten_function(&name[place.len() + 1..], left));
            }
            format!("{}:{line}", shorten_middle(file, room.saturating_sub(line.len() + 1)))
        }
        None => shorten_function(name, room),
    }
}

fn format_bytes(amount: &Amount) -> String {
    amount.bytes_error.as_bytes(amount.bytes)
}

fn format_amount(amount: &Amount) -> String {
    format!("{} in {}", format_bytes(amount), amount.blocks_error.as_counted(amount.blocks, "block"))
}

/// Formats the amount of memory that is older than the trace and was not judged because its growth was not recorded.
pub(super) fn format_not_judged(older: &Amount) -> String {
    let (are, were) = if older.blocks == 1 { ("is", "was") } else { ("are", "were") };
    format!(
        "{} {are} older than the trace and {were} not judged: give several snapshots",
        format_amount(older)
    )
}

/// Formats a leak's growth per period, as in `+1.2 MiB`.
fn format_growth_per_period(leak: &Leak) -> String {
    let value = leak.each_bytes.value.max(0.0).round() as u64;
    match leak.each_bytes.as_bytes(value) {
        bound if bound.starts_with('<') => bound,
        bytes => format!("+{bytes}"),
    }
}

/// Formats the bytes for a selection of about ten periods, including the last one.
fn format_bytes_by_period(all: &[u64], errors: &[Estimate]) -> String {
    let every = all.len().div_ceil(10).max(1);
    let last = all.len().saturating_sub(1);
    let shown = all.iter().zip(errors).enumerate().filter(|(at, _)| at % every == last % every);
    shown.map(|(_, (&bytes, error))| error.as_bytes(bytes)).collect::<Vec<_>>().join(", ")
}

fn format_age(age: &Age) -> String {
    let usual = format!(
        "99 % of its {} that were freed lived less than {}",
        counted(age.freed, "block"),
        human_period(age.usual_seconds)
    );
    match age.far_older {
        0 => usual,
        blocks => format!(
            "{usual}; {} ({}) are more than ten times older",
            human_count(blocks),
            human_bytes(age.far_older_bytes)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_of_many_periods_is_always_shown() {
        assert_eq!(
            format_bytes_by_period(&[1, 2, 3], &[1.0, 2.0, 3.0].map(Estimate::exact)),
            "1 B, 2 B, 3 B"
        );
        let many: Vec<u64> = (1..=25).collect();
        let exact: Vec<Estimate> = many.iter().map(|&bytes| Estimate::exact(bytes as f64)).collect();
        assert_eq!(
            format_bytes_by_period(&many, &exact),
            "1 B, 4 B, 7 B, 10 B, 13 B, 16 B, 19 B, 22 B, 25 B"
        );
    }

    #[test]
    fn names_are_cut_and_numbers_are_not() {
        let share = |name: &str, bytes: &str| (name.to_owned(), bytes.to_owned());
        let shares = [
            share("transformers_modeling.py:1234 forward_of_the_attention", "191.2 MiB"),
            share("trainer.py:38 loss", "4 B"),
        ];
        for (room, expected) in [
            (
                200,
                ": transformers_modeling.py:1234 forward_of_the_attention 191.2 MiB, trainer.py:38 loss 4 B",
            ),
            (64, ": transformer…deling.py:1234 191.2 MiB, trainer.py:38 loss 4 B"),
            (45, ": transformer…deling.py:1234 191.2 MiB, …"),
            (12, ": …"),
        ] {
            let shown = format_shares(&shares, 2, room);
            assert!(shown.chars().count() <= room, "{room}: {shown}");
            assert!(shown == ": …" || shown.contains("191.2 MiB"), "{room}: {shown}");
            assert_eq!(
                shown.contains("trainer.py:38 loss 4 B"),
                expected.contains("loss 4 B"),
                "{room}: {shown}"
            );
            assert!(!shown.contains("py") || shown.contains(".py:1234 "), "{room}: {shown}");
        }
        assert_eq!(shorten_line("modeling.py:1234 forward", 20), "modeling.py:1234");
        assert_eq!(shorten_line("modeling.py:1234 forward", 12), "mod….py:1234");
        assert_eq!(format_shares(&[], 0, 80), "");
    }
}
