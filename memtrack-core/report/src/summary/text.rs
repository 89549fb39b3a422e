//! Formats a summary as text, with up to three hints.

use super::DeviceSummary;
use crate::top::TopRow;
use crate::top::folded_notes;
use crate::top::frames::format_frame;
use crate::top::stacks::requester;
use memtrack_blocks::held::{HeldMemory, pool_name};
use memtrack_blocks::net::HeldAtEnd;
use memtrack_frames::attribution::NO_STACK;
use memtrack_frames::ownership::short;
use memtrack_model::Frame;
use memtrack_model::units::{
    capitalised, counted, human_bytes, human_count, human_share, printable, shorten_middle,
};
use std::fmt;

/// Descriptions of the fragmentation, each with the exclusive upper bound of the shares to which it applies.
const FRAGMENTATION_LEVELS: [(f64, &str); 3] = [
    (0.05, "little: free memory is not stuck between blocks"),
    (0.20, "some: a large request may need new segments although memory is free"),
    (f64::INFINITY, "much: requests may fail although enough memory is free; try expandable segments"),
];

/// The minimum number of allocated but not resident bytes to report. Every heap has some such memory, so smaller
/// amounts are not worth a line.
const MIN_UNTOUCHED_BYTES: u64 = 64 << 20;

/// The maximum number of private pools to list.
const MAX_POOLS: usize = 5;

/// The maximum number of characters in the name of the function that allocated memory.
const MAX_ORIGIN_CHARS: usize = 60;

/// The subject of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HintSubject {
    /// Memory ran out at the event with this number in the device's trace.
    OutOfMemory(usize),
    /// The largest group at the peak.
    Peak,
    /// Memory that is free in parts of segments and so cannot be released.
    Fragmented,
    /// Completely free segments.
    Cached,
    /// Memory that was allocated within the trace and is live at its end.
    Retained,
    /// Bytes that rounding added.
    Rounding,
    /// Blocks that were freed but are still in use by a stream.
    Pending,
}

impl DeviceSummary {
    /// Returns at most three hints, the most important one first.
    pub fn look_first(&self) -> Vec<String> {
        self.look_first_at().into_iter().map(|(_, text)| text).collect()
    }

    /// Returns the lines of the text, each with a title, which is empty for continuation lines.
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        // Pushing cannot fail.
        let _ = self.write_lines(&mut |title, text| {
            lines.push((title.to_owned(), text));
            Ok(())
        });
        lines
    }

    /// Returns the hints of [`Self::look_first`], each with its subject.
    pub fn look_first_at(&self) -> Vec<(HintSubject, String)> {
        let held = &self.held;
        // Hints are ordered with out of memory first, and then by bytes as a share of the device's peak.
        let reserved = if self.has_reserved_bytes { self.reserved_peak.bytes } else { 0 };
        let total = reserved.max(self.peak_bytes()).max(1) as f64;
        let mut hints: Vec<(f64, HintSubject, String)> = Vec::new();
        if let Some(oom) = self.ooms.last() {
            hints.push((
                f64::INFINITY,
                HintSubject::OutOfMemory(oom.event),
                format!(
                    "memory ran out at event {}: {} requested, {} live; to list it: memtrack top FILE --at \
                     oom",
                    oom.event,
                    human_bytes(oom.requested_bytes),
                    oom.live.bytes_error.as_bytes(oom.live.bytes)
                ),
            ));
        }
        if let Some(row) = self.peak.live.rows.first() {
            let error = &row.allocated_error;
            let (bytes, share) = (error.as_bytes(row.allocated_bytes), error.as_share(row.share));
            let text = format!("the largest group at the peak, {bytes} ({share}), {}", describe_origin(row));
            hints.push((row.allocated_bytes as f64 / total, HintSubject::Peak, text));
        }
        if held.inactive_split > 0 && self.has_reserved_bytes {
            let bytes = human_bytes(held.inactive_split);
            let text = format!(
                "{bytes} are free but stuck in split segments, in {}; the largest of them has {}",
                counted(held.inactive_split_blocks, "piece"),
                human_bytes(held.largest_inactive_split)
            );
            hints.push((held.inactive_split as f64 / total, HintSubject::Fragmented, text));
        }
        if held.free_segment_bytes > 0 && self.has_reserved_bytes {
            let bytes = human_bytes(held.free_segment_bytes);
            let segments = counted(held.free_segments, "whole segment");
            let text = format!("{bytes} in {segments} are cached and could be released");
            hints.push((held.free_segment_bytes as f64 / total, HintSubject::Cached, text));
        }
        if let Some(largest) = self.largest_retained.as_ref().filter(|_| self.retained.bytes > 0) {
            let text = format!(
                "{} allocated in the trace are live at its end; the largest group, {}, {}",
                self.retained.bytes_error.as_bytes(self.retained.bytes),
                largest.allocated_error.as_bytes(largest.allocated_bytes),
                describe_origin(largest)
            );
            // Retained memory is usually intended, so the hint is ranked by only half of its bytes.
            hints.push((self.retained.bytes as f64 / total / 2.0, HintSubject::Retained, text));
        }
        if let Some(rounding) = held.rounding().filter(|&bytes| bytes > 0 && self.has_reserved_bytes) {
            let text = format!("{} were added by rounding", human_bytes(rounding));
            hints.push((rounding as f64 / total, HintSubject::Rounding, text));
        }
        if held.pending > 0 {
            let text = format!("{} wait for other streams before they are free", human_bytes(held.pending));
            hints.push((held.pending as f64 / total, HintSubject::Pending, text));
        }
        hints.sort_by(|a, b| b.0.total_cmp(&a.0));
        hints.into_iter().take(3).map(|(_, about, text)| (about, text)).collect()
    }
}

/// Describes the origin of a group, worded for the end of a sentence, and returns the corresponding frame: the line in
/// the user's code or, failing that, the function that requested the memory.
pub fn origin_of(row: &TopRow) -> (String, Option<&Frame>) {
    let requester = || requester(&row.stack).map(|line| &line.frame);
    (describe_origin(row), row.owned.mine.as_ref().or_else(requester))
}

/// Describes the origin of a group, worded for the end of a sentence.
fn describe_origin(row: &TopRow) -> String {
    let TopRow { name, stack, owned, .. } = row;
    if owned.mine.is_some() {
        // The bytes are those of the line, including all functions that it called.
        let more = match (&owned.called, row.called_in_all.unwrap_or_default()) {
            (Some(_), called @ 2..) => format!(", {} more", called - 1),
            _ => String::new(),
        };
        return format!(
            "is from {}{more}",
            shorten_middle(&printable(&owned.to_string()), 2 * MAX_ORIGIN_CHARS)
        );
    }
    if let Some(called) = &owned.called {
        let function = shorten_middle(&printable(&short(called)), 2 * MAX_ORIGIN_CHARS);
        return format!("is from {function}, outside your code");
    }
    match requester(stack) {
        Some(line) => format!("is from {}", format_frame(&line.frame, MAX_ORIGIN_CHARS)),
        None if name == NO_STACK => "has no recorded stack".to_owned(),
        None => format!("was {}", printable(name.trim_matches(['(', ')']))),
    }
}

/// A function that writes a line and its title.
type WriteLine<'a> = dyn FnMut(&str, String) -> fmt::Result + 'a;

impl fmt::Display for DeviceSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", capitalised(&self.device_name))?;
        self.write_lines(&mut |title, text| writeln!(f, "  {title:<14} {text}"))
    }
}

impl DeviceSummary {
    fn write_lines(&self, line: &mut WriteLine<'_>) -> fmt::Result {
        if !self.has_held_bytes {
            let text = "unknown, as are reserved bytes and fragmentation: the file has no segments";
            line("Allocated", text.to_owned())?;
            self.write_peak(line)?
        } else if !self.has_reserved_bytes {
            self.write_heap(line)?
        } else {
            self.write_segments(line)?
        }
        let bytes = human_bytes;
        for oom in &self.ooms {
            let free = oom
                .device_free_bytes
                .map(|free| format!("{} free on the device, ", bytes(free)))
                .unwrap_or_default();
            line(
                "Out of memory",
                format!(
                    "event {}: {} requested, {free}{} live in {}",
                    oom.event,
                    bytes(oom.requested_bytes),
                    oom.live.bytes_error.as_bytes(oom.live.bytes),
                    oom.live.blocks_error.as_counted(oom.live.blocks, "block")
                ),
            )?;
            if oom.device_had_room() {
                let text = "the device had enough free memory: look for a limit of the process, such as \
                            torch.cuda.set_per_process_memory_fraction";
                line("", text.to_owned())?;
            }
        }
        if self.oom_count > self.ooms.len() as u64 {
            line("", format!("{} in all", counted(self.oom_count, "time")))?;
        }
        for (title, text) in super::driver_moments::driver_lines(&self.driver) {
            line(title, text)?;
        }
        let mut trace = counted(self.events, "event");
        if self.dropped > 0 {
            let older = counted(self.dropped, "older one");
            trace += &match self.earlier_parts {
                0 => format!("; {older} did not fit the ring"),
                parts => {
                    let were = if self.dropped == 1 { "was" } else { "were" };
                    format!("; {older} {were} in {} of the recording that are gone", counted(parts, "part"))
                }
            };
        }
        line("Trace", trace)?;
        let older = self.older;
        if let Some(why) = &self.recording_was_off {
            line("", why.clone())?;
        } else if older.blocks > 0 {
            // A recording states whether its ring dropped events; PyTorch's files do not.
            let why = match (self.is_recording, self.dropped) {
                (true, 0) => "older than the recording",
                (true, _) => "lost by the ring, or older",
                (false, _) => "lost by PyTorch's ring (max_entries), or older than its recording",
            };
            line(
                "",
                format!(
                    "{} ({}) allocated before the first event: {why}; {} freed in it",
                    older.blocks_error.as_counted(older.blocks, "block"),
                    older.bytes_error.as_bytes(older.bytes),
                    human_count(self.frees_without_allocation)
                ),
            )?;
        }
        if let Some(why) = &self.missing_stacks {
            line("No stack", why.clone())?;
        }
        for (place, folded) in folded_notes(self.folded_scopes, &self.folded).into_iter().enumerate() {
            line(if place == 0 { "Folded" } else { "" }, folded)?;
        }
        if self.kind.is_host() && (self.held.estimated || self.peak.highest.estimated) {
            let text = "small blocks were sampled: ± and < hold with 95 % confidence";
            line("", text.to_owned())?;
        }
        if !self.complete {
            line(
                "Not ended",
                "the program was killed or still runs, or the file is truncated; later events are missing"
                    .to_owned(),
            )?;
        }
        for contradiction in self.contradictions() {
            line("Contradiction", contradiction)?;
        }
        for (place, hint) in self.look_first().into_iter().enumerate() {
            line(if place == 0 { "Look first at" } else { "" }, format!("{}. {hint}", place + 1))?;
        }
        Ok(())
    }

    /// Writes the memory that a heap holds. A heap has no segments and no known rounding.
    fn write_heap(&self, line: &mut WriteLine<'_>) -> fmt::Result {
        match self.counted {
            Some(HeldAtEnd { bytes, blocks, .. }) => {
                let at_least = self.lower_bound_prefix();
                let (bytes, blocks) = (human_bytes(bytes), counted(blocks, "block"));
                let how = "all allocations less all frees, counted";
                line("Allocated", format!("{at_least}{bytes} in {blocks}: {how}"))?;
            }
            None => self.write_held(line)?,
        }
        if let (None, Some(net)) = (self.counted, self.net) {
            let (sign, bytes) = (if net.bytes < 0 { "-" } else { "" }, human_bytes(net.bytes.unsigned_abs()));
            let count = format!("{sign}{bytes} as all allocations less all frees");
            line("", format!("{count}: the allocations of some freed blocks are not in the recording"))?;
        }
        if self.held.pending_blocks > 0 {
            let (bytes, blocks) =
                (human_bytes(self.held.pending), counted(self.held.pending_blocks, "block"));
            line("", format!("{bytes} in {blocks} pending free"))?;
        }
        if let Some(resident) = self.resident_bytes {
            let bytes = human_bytes(resident);
            line("Resident", format!("{bytes} at the end: the whole process, including code and stacks"))?;
            let untouched = self.min_allocated_bytes().saturating_sub(resident);
            if untouched >= MIN_UNTOUCHED_BYTES {
                let bytes = human_bytes(untouched);
                line(
                    "",
                    format!(
                        "at least {bytes} of what is allocated is not resident: never written, or swapped out"
                    ),
                )?;
            }
        }
        self.write_peak(line)
    }

    /// Returns a lower bound on the bytes that the heap holds at the end.
    fn min_allocated_bytes(&self) -> u64 {
        match self.counted {
            Some(HeldAtEnd { bytes, .. }) => bytes,
            None if self.live.estimated => self.live.bytes_error.low as u64,
            None => self.held.allocated,
        }
    }

    /// Writes the line about the live blocks that were recorded.
    fn write_held(&self, line: &mut WriteLine<'_>) -> fmt::Result {
        let held = &self.held;
        let (bytes, blocks) = (self.live.bytes_error, self.live.blocks_error);
        let blocks = blocks.as_counted(held.blocks, "block");
        line("Allocated", format!("{} in {blocks}", bytes.as_bytes(held.allocated)))
    }

    /// Writes the lines about private pools.
    fn write_private_pools(&self, line: &mut WriteLine<'_>) -> fmt::Result {
        let pools = &self.private_pools;
        let sum = |bytes: fn(&HeldMemory) -> u64, of: &[((u64, u64), HeldMemory)]| {
            human_bytes(of.iter().fold(0, |sum, (_, held)| sum.saturating_add(bytes(held))))
        };
        if pools.is_empty() {
            return Ok(());
        }
        let (reserved, free) = (sum(|held| held.reserved, pools), sum(|held| held.inactive, pools));
        let count = counted(pools.len() as u64, "pool");
        let text =
            format!("{reserved} reserved in {count}, {free} of it free for requests of the same pool only");
        line("Private pools", text)?;
        for (pool, held) in pools.iter().take(MAX_POOLS) {
            let whose = if pool.1 == 0 { ", of a graph capture" } else { "" };
            let (reserved, allocated) = (human_bytes(held.reserved), human_bytes(held.allocated));
            let (segments, blocks) = (counted(held.segments, "segment"), counted(held.blocks, "block"));
            let name = pool_name(*pool);
            line("", format!("{name}{whose}: {reserved} in {segments}, {allocated} allocated in {blocks}"))?;
        }
        match pools.get(MAX_POOLS..) {
            Some(rest) if !rest.is_empty() => {
                let (count, reserved) =
                    (counted(rest.len() as u64, "more pool"), sum(|held| held.reserved, rest));
                line("", format!("… and {count}, {reserved}"))
            }
            _ => Ok(()),
        }
    }

    fn write_peak(&self, line: &mut WriteLine<'_>) -> fmt::Result {
        let when = self.peak.highest.format_when();
        let bytes = self.peak_error().as_bytes(self.peak_bytes());
        // Without a trace, only the memory at the end is known.
        let peak = match self.recording_was_off {
            Some(_) => format!("at least {bytes} requested, which are live at the end; there is no trace"),
            None => format!("{bytes} requested, {when}"),
        };
        line("Peak", peak)?;
        match self.peak.categories_text() {
            Some(categories) => line("", format!("made of {categories}")),
            None => Ok(()),
        }
    }

    /// Returns the prefix for numbers that may be higher because the recording is incomplete.
    fn lower_bound_prefix(&self) -> &'static str {
        if self.complete { "" } else { "at least " }
    }

    /// Writes the lines about a device's segments.
    fn write_segments(&self, line: &mut WriteLine<'_>) -> fmt::Result {
        let (held, at_least) = (&self.held, self.lower_bound_prefix());
        let (bytes, count) = (human_bytes, human_count);
        let blocks = |number| counted(number, "block");
        line(
            "Allocated",
            match held.requested() {
                Some(requested) => {
                    format!(
                        "{at_least}{} in {}; {} requested",
                        bytes(held.allocated),
                        blocks(held.blocks),
                        bytes(requested)
                    )
                }
                None => format!("{at_least}{} in {}", bytes(held.allocated), blocks(held.blocks)),
            },
        )?;
        let pending = match held.pending_blocks {
            0 => "no frees pending".to_owned(),
            number => format!("{} in {} pending free", bytes(held.pending), blocks(number)),
        };
        line("Active", format!("{}; {pending}", bytes(held.active())))?;
        let expandable = match held.expandable {
            0 => String::new(),
            number => format!(", {} of them parts of expandable ones", count(number)),
        };
        line(
            "Reserved",
            format!(
                "{at_least}{} in {}{expandable}",
                bytes(held.reserved),
                counted(held.segments, "segment")
            ),
        )?;
        line(
            "Inactive",
            format!("{}; the largest free block is {}", bytes(held.inactive), bytes(held.largest_inactive)),
        )?;
        let (_, words) = FRAGMENTATION_LEVELS
            .iter()
            .find(|(below, _)| held.fragmentation() < *below)
            .unwrap_or(&FRAGMENTATION_LEVELS[2]);
        line("Fragmentation", format!("{}, {words}", human_share(held.fragmentation())))?;
        line(
            "Free",
            match held.rounding() {
                Some(rounding) => {
                    format!("{} inside blocks (rounding), {} outside", bytes(rounding), bytes(held.inactive))
                }
                None => format!("{} outside blocks", bytes(held.inactive)),
            },
        )?;
        self.write_private_pools(line)?;
        self.write_peak(line)?;
        let most = bytes(self.reserved_peak.bytes);
        match self.complete {
            true => line("", format!("{most} reserved at most")),
            false => line("", format!("at least {most} reserved at its highest")),
        }
    }
}
