//! Formats the advice as text.

use super::{Advice, CombinedEffect, Finding, Kind};
use crate::category::Category;
use memtrack_model::times::human_moment;
use memtrack_model::units::{capitalised, counted, human_bytes, printable, shorten_middle, wrap};
use std::fmt::{self, Write};

/// The number of findings shown by default.
const DEFAULT_ROWS: usize = 10;
/// The default line width, in characters.
const DEFAULT_WIDTH: usize = 120;
/// The number of characters of names and sentences that are kept in each line, however narrow the lines are.
const MIN_ROOM: usize = 30;

impl Advice {
    /// Formats the advice as text with at most `rows` findings. Lines have at most `width` characters; if
    /// `width` is `None`, each finding takes one line.
    pub fn to_text(&self, rows: usize, width: Option<usize>) -> String {
        let (listed, helps_only_together) = self.listable(rows);
        let shown = &self.findings[..listed.min(rows)];
        let mut lines = vec![format!(
            "{}: the peak is {}, {} after the start",
            printable(&self.device.name),
            self.peak_bytes_error.as_bytes(self.peak_bytes),
            human_moment(self.peak_ns)
        )];
        lines.extend(self.format_largest(width));
        lines.push(if helps_only_together {
            "Nothing lowers it by itself, since as much is allocated at another moment. Together these do:"
                .into()
        } else if listed > 0 {
            "What would lower it:".into()
        } else {
            let hint = match self.largest.is_empty() {
                true => "",
                false => " To lower it, let the largest of these hold less at once.",
            };
            format!("Nothing was found that would lower it noticeably.{hint}")
        });
        lines.extend((1..).zip(shown).map(|(number, finding)| format_finding(number, finding, width)));
        let saving = self.findings.iter().filter(|finding| finding.saves_bytes > 0).count();
        let hidden = if helps_only_together { listed } else { saving } - shown.len();
        if hidden > 0 {
            let save = if hidden == 1 { "saves" } else { "save" };
            let findings = counted(hidden as u64, "finding");
            lines.push(format!("     (and {findings} that {save} less: -n 0 shows all)"));
        }
        let (free, all) = (&self.together.without_more_work, &self.together.all);
        if all.findings > 1 && listed > 0 {
            lines.push(String::new());
            if free.saves_bytes > 0 && free.findings < all.findings {
                lines.push(format_effect("Everything that takes no further work", free));
            }
            lines.push(format_effect("All together", all));
        }
        if self.unseen_bytes > 0 {
            lines.push(format!(
                "{} of the peak are memory in which no tensor was seen: its use is unknown.",
                self.unseen_bytes_error.as_bytes(self.unseen_bytes)
            ));
        }
        lines.join("\n") + "\n"
    }

    /// Formats the largest parts of the peak, skipping parts below a hundredth of the peak.
    fn format_largest(&self, width: Option<usize>) -> Vec<String> {
        let mut lines = Vec::new();
        let shown = || self.largest.iter().filter(|part| part.share >= 0.01);
        let bytes: Vec<String> =
            shown().map(|part| part.requested_bytes_error.as_bytes(part.requested_bytes)).collect();
        let wide = bytes.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        for (part, bytes) in shown().zip(bytes) {
            let head = format!("  {bytes:>wide$} {:>8}  ", part.requested_bytes_error.as_share(part.share));
            let room =
                width.map_or(usize::MAX, |width| width.saturating_sub(head.chars().count()).max(MIN_ROOM));
            lines.push(format!("{head}{}", shorten_middle(&printable(&part.name), room)));
        }
        if !lines.is_empty() {
            lines.insert(0, "Held at the peak by:".to_owned());
        }
        lines
    }

    pub(super) fn format_sentence(&self, finding: &Finding) -> String {
        let change = match (finding.kind, finding.category) {
            (Kind::Recompute, _) => format_recomputation(finding),
            (Kind::ZeroGrad, _) => format!(
                "{} at the peak, though the step that used them is over: {}",
                format_counted_subject(finding, "gradients are still there", "gradient is still there"),
                match self.is_from_sdk {
                    true => "drop the gradients right after the optimizer's step",
                    false =>
                        "call zero_grad(set_to_none=True) right after step(), or drop the gradients there",
                },
            ),
            (Kind::Early, _) => format_early(finding),
            (Kind::Late, _) => format_late(finding),
            (Kind::Idle, category) => self.format_idle(finding, category),
        };
        let new_peak = match finding.saves_bytes {
            0 => "alone that does not lower the peak, because as much memory is allocated at another moment"
                .to_owned(),
            _ => {
                format!("the peak falls to {}", finding.new_peak_bytes_error.as_bytes(finding.new_peak_bytes))
            }
        };
        printable(&format!("{change}; {new_peak}"))
    }

    fn format_idle(&self, finding: &Finding, category: Category) -> String {
        let target = if self.is_on_host() { "a file" } else { "host memory" };
        let until_next_use = finding
            .next_used
            .as_ref()
            .map_or_else(String::new, |of| format!(", next {} after it", human_moment(of.ns_after_the_peak)));
        match category {
            Category::OptimizerState => format!(
                "{} at the peak and used only by the optimizer{until_next_use}: keep it in {target} between steps{}",
                format_counted_subject(
                    finding,
                    "pieces of optimizer state are there",
                    "piece of optimizer state is there"
                ),
                if self.has_several_devices { ", or share it out among devices" } else { "" },
            ),
            Category::Parameter => format!(
                "{} at the peak and not in use{until_next_use}: {}keep them in {target} between their uses",
                format_counted_subject(finding, "parameters are there", "parameter is there"),
                if self.has_several_devices { "share them out among devices (FSDP), or " } else { "" },
            ),
            Category::Gradient => format!(
                "{} at the peak and wait to be used{until_next_use}: step each parameter as soon as its gradient is \
                 there{}, or move them to {target} until then",
                format_counted_subject(finding, "gradients are there", "gradient is there"),
                if self.is_from_sdk { "" } else { " (a hook after it is accumulated)" },
            ),
            _ => format!(
                "{} lie idle {}{}: move them to {target} in between{}, or recompute them",
                format_subject(finding),
                format_last_use(finding, "between").unwrap_or_else(|| "after they were made".to_owned()),
                format_next_use(finding, if finding.last_used.is_some() { "and" } else { "until" }),
                format_transfer_rate(finding),
            ),
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(DEFAULT_ROWS, Some(DEFAULT_WIDTH)))
    }
}

/// Formats a finding with its number, its saving and its sentence.
fn format_finding(number: usize, finding: &Finding, width: Option<usize>) -> String {
    let head = format!("{number:>3}. ");
    let saves = match finding.saves_bytes {
        0 => String::new(),
        bytes => format!("−{}  ", finding.saves_bytes_error.as_bytes(bytes)),
    };
    let indent = head.chars().count();
    let width = width.map_or(usize::MAX, |width| width.max(indent + MIN_ROOM));
    let words = finding.sentence.split(' ').map(|word| shorten_middle(word, width - indent));
    wrap(&format!("{head}{saves}{}", words.collect::<Vec<_>>().join(" ")), width, indent)
}

fn format_early(finding: &Finding) -> String {
    let obtained = finding.obtained_ns_before_the_peak.map_or_else(
        || "were there before the trace".to_owned(),
        |ns| format!("were obtained {} before the peak", human_moment(ns)),
    );
    let used = format_next_use(finding, "by");
    format!("{} {obtained} and are first used{used}: obtain them right before that", format_subject(finding))
}

fn format_late(finding: &Finding) -> String {
    let used = format_last_use(finding, "were last used by")
        .unwrap_or_else(|| "were never used after they were made".to_owned());
    let freed = finding.freed_ns_after_the_peak.map_or_else(
        || "and are still there at the end of the trace".to_owned(),
        |ns| format!("and freed {} after the peak", human_moment(ns)),
    );
    format!("{} {used} {freed}: drop them right after their last use", format_subject(finding))
}

fn format_recomputation(finding: &Finding) -> String {
    let took = finding.forward_ns.unwrap_or(0);
    let module = finding.module.as_deref().unwrap_or("A module");
    let bytes = human_bytes(finding.allocated_bytes);
    let pieces = counted(finding.count, "piece");
    let keeps = match finding.modules.len() {
        0 | 1 => {
            format!("{module} keeps {bytes} in {pieces} from its forward to its backward pass, and its")
        }
        number => format!(
            "{module} and {} of its type keep {bytes} in {pieces} from their forward to their backward passes, and their",
            counted(number as u64 - 1, "other module")
        ),
    };
    let rate = match took {
        0 => String::new(),
        _ => {
            let per_ms = finding.saves_bytes as f64 / (took as f64 / 1e6);
            format!(" ({} saved for each ms)", human_bytes(per_ms as u64))
        }
    };
    format!(
        "{keeps} forward operators take {}{rate}: recompute them in the backward pass (torch.utils.checkpoint)",
        human_moment(took)
    )
}

/// Formats the subject of a sentence, such as
/// `12.0 MiB in 2 pieces (ACTIVATION) obtained by aten::mm in encoder.0`.
fn format_subject(finding: &Finding) -> String {
    let mut text = finding.allocated_bytes_error.as_bytes(finding.allocated_bytes);
    if finding.count > 1 {
        let _ = write!(text, " in {}", counted(finding.count, "piece"));
    }
    let _ = write!(text, " ({})", finding.category);
    let by = finding.operator.as_deref().map(|operator| format!("by {operator}"));
    let module = finding.module.as_deref().map(|module| format!("in {module}"));
    let at = finding.line.as_ref().map(|line| format!("at {} ({})", line.place(), line.function));
    let origin: Vec<String> = [by, module, at].into_iter().flatten().collect();
    if !origin.is_empty() && finding.obtained_ns_before_the_peak.is_some() {
        let _ = write!(text, " obtained {}", origin.join(" "));
    }
    text
}

/// Formats a counted subject with its verb, e.g. `12 gradients (48.0 MiB) are still there`.
fn format_counted_subject(finding: &Finding, many: &str, one: &str) -> String {
    let what = if finding.count == 1 { one } else { many };
    let (first, rest) = what.split_once(' ').unwrap_or((what, ""));
    let bytes = finding.allocated_bytes_error.as_bytes(finding.allocated_bytes);
    capitalised(&format!("{} {first} ({bytes}) {rest}", finding.count))
}

/// Formats the last use before the peak after some words, e.g. `between aten::add in head (1.20 ms before the peak)`.
fn format_last_use(finding: &Finding, words: &str) -> Option<String> {
    let of = finding.last_used.as_ref()?;
    let operator = format_operator(&of.operator, of.module.as_deref());
    Some(format!("{words} {operator} ({} before the peak)", human_moment(of.ns_before_the_peak)))
}

/// Formats the next use after the peak, if there is one, after a space and a word.
fn format_next_use(finding: &Finding, word: &str) -> String {
    finding.next_used.as_ref().map_or_else(String::new, |of| {
        let operator = format_operator(&of.operator, of.module.as_deref());
        format!(" {word} {operator} ({} after it)", human_moment(of.ns_after_the_peak))
    })
}

fn format_operator(operator: &str, module: Option<&str>) -> String {
    module.map_or_else(|| operator.to_owned(), |module| format!("{operator} in {module}"))
}

/// Formats the transfer rate that would be needed to move the memory out and back.
fn format_transfer_rate(finding: &Finding) -> String {
    let (Some(before), Some(after)) = (&finding.last_used, &finding.next_used) else {
        return String::new();
    };
    let seconds = (before.ns_before_the_peak.saturating_add(after.ns_after_the_peak)) as f64 / 1e9;
    if seconds <= 0.0 {
        return String::new();
    }
    let per_second = 2.0 * finding.allocated_bytes as f64 / seconds;
    format!(" (out and back takes {}/s)", human_bytes(per_second as u64))
}

fn format_effect(what: &str, effect: &CombinedEffect) -> String {
    format!(
        "{what} ({}): −{}, the peak falls to {}.",
        counted(effect.findings, "finding"),
        human_bytes(effect.saves_bytes),
        human_bytes(effect.new_peak_bytes)
    )
}
