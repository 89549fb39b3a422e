//! Formats the paragraph as text, in at most eight lines.

use super::{HeldAt, Holder, Kind, OtherDevice, WhoHolds};
use memtrack_model::times::human_time_in_words;
use memtrack_model::units::{human_bytes, wrap};
use std::fmt;

/// The indentation of continuation lines, in characters.
const INDENT: usize = 5;

impl WhoHolds {
    /// Returns the lines of the paragraph, without line terminators.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.format_heading()];
        for (place, holder) in self.holders.iter().enumerate() {
            lines.push(format!("  {}. {}", place + 1, holder.format_holder()));
        }
        lines.extend(self.format_memory_outside_blocks());
        lines.extend(self.format_growth());
        lines.push(format!("  first: {}", self.advice));
        lines
    }

    /// Formats the paragraph for a program's log, with each line starting with `memtrack: `.
    pub fn log_text(&self) -> String {
        self.lines().into_iter().map(|line| format!("memtrack: {line}\n")).collect()
    }

    /// Formats the paragraph, wrapping lines that are longer than `width` characters.
    pub fn to_text(&self, width: Option<usize>) -> String {
        let width = width.unwrap_or(usize::MAX).max(INDENT + 20);
        self.lines().iter().map(|line| wrap(line, width, INDENT) + "\n").collect()
    }

    fn format_heading(&self) -> String {
        let device = match self.device.name.as_str() {
            name @ ("host heap" | "pinned host memory") if name == "host heap" => format!("the {name}"),
            name => name.to_owned(),
        };
        let when = match self.at {
            HeldAt::Now => "now",
            HeldAt::OutOfMemory => "when memory ran out",
            HeldAt::Peak => "at its peak",
            HeldAt::Killed => "when the program was killed",
            HeldAt::Cut => "at the end of the recording",
        };
        let bytes = self.error.as_bytes(self.allocated_bytes);
        let blocks = self.count_error.as_counted(self.count, "block");
        // If the request has just failed, the previous line of the log has already reported it.
        let refused = match self.refused.filter(|_| self.at != HeldAt::Now) {
            None => String::new(),
            Some(refused) => {
                let free = refused.device_free_bytes.map_or(String::new(), |free| {
                    let of = refused
                        .device_total_bytes
                        .map_or(String::new(), |total| format!(" of {}", human_bytes(total)));
                    format!(", {}{of} free", human_bytes(free))
                });
                format!(" ({} requested{free})", human_bytes(refused.requested_bytes))
            }
        };
        let others = match self.others.is_empty() {
            true => String::new(),
            false => {
                let other =
                    |other: &OtherDevice| format!("{} {}", other.name, human_bytes(other.requested_bytes));
                format!("; also {}", self.others.iter().map(other).collect::<Vec<_>>().join(", "))
            }
        };
        format!("who holds {device} {when}{refused}: {bytes} in {blocks}{others}")
    }

    /// Formats the cache and the untracked memory.
    fn format_memory_outside_blocks(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(cached) = self.cached {
            if cached.allocator_bytes > 0 {
                let bytes = human_bytes(cached.allocator_bytes);
                parts.push(match (cached.largest_bytes, cached.free_segment_bytes) {
                    (Some(largest), Some(whole)) if whole > 0 => format!(
                        "cache {bytes}, {} of it in whole segments, the largest piece {}",
                        human_bytes(whole),
                        human_bytes(largest)
                    ),
                    (Some(largest), _) => {
                        format!(
                            "cache {bytes}, all between blocks, the largest piece {}",
                            human_bytes(largest)
                        )
                    }
                    _ => format!("cache {bytes}"),
                });
            }
            if cached.driver_pool_bytes > 0 {
                parts.push(format!("cache of the driver's pools {}", human_bytes(cached.driver_pool_bytes)));
            }
        }
        if let Some(unseen) = self.unseen {
            let (bytes, used) = (human_bytes(unseen.bytes), human_bytes(unseen.used_bytes));
            parts.push(match (unseen.is_resident, unseen.bytes) {
                (true, _) => format!(
                    "not recorded: at least {bytes} of {used} resident (code, stacks, C libraries, memtrack)"
                ),
                (false, 0) => format!("all {used} in use on the device are recorded"),
                (false, _) => format!(
                    "not recorded: {bytes} of {used} in use on the device (contexts, libraries, other processes)"
                ),
            });
        }
        (!parts.is_empty()).then(|| format!("  {}", parts.join("; ")))
    }

    fn format_growth(&self) -> Option<String> {
        let grown = self.grown.as_ref()?;
        let since = format!("  since {}, {} earlier", grown.since, human_time_in_words(grown.seconds));
        Some(match grown.most_line.as_ref().zip(grown.most_bytes) {
            None if self.at == HeldAt::Now => format!("{since}: nothing was allocated that is still held"),
            None => format!("{since}: nothing was allocated that was held then"),
            Some((line, bytes)) => {
                let all = grown.error.as_bytes(grown.allocated_bytes);
                let most = match bytes == grown.allocated_bytes {
                    true => "all".to_owned(),
                    false => grown.most_error.as_bytes(bytes),
                };
                let held = match self.at {
                    HeldAt::Now => "are still held",
                    _ => "were held then",
                };
                format!("{since}: {all} more were allocated and {held}, {most} by {line}")
            }
        })
    }
}

impl Holder {
    fn format_holder(&self) -> String {
        let bytes = self.error.as_bytes(self.allocated_bytes);
        let share = self.error.as_share(self.share.min(1.0));
        // An operator's name already contains the module and the phase.
        let is_operator = matches!(self.kind, Kind::NoStack | Kind::NoTime);
        let mut inside = Vec::new();
        if !is_operator {
            inside.extend(self.module.as_ref().map(|module| format!("module {module}")));
            inside.extend(self.phase.as_ref().map(|phase| format!("phase {phase}")));
        }
        let inside = if inside.is_empty() { String::new() } else { format!(" ({})", inside.join(", ")) };
        let by = if self.kind == Kind::Line { "by " } else { "" };
        format!("{bytes} ({share}) {by}{}{inside}", self.line)
    }
}

impl fmt::Display for WhoHolds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.lines() {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}
