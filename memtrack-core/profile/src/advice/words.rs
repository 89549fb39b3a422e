//! Formats the advice as text.

use super::{Advice, CombinedEffect, Finding, Kind, NearUse};
use crate::category::Category;
use crate::report::text::format_time;
use memtrack_model::units::{capitalised, counted, human_bytes, printable, shorten_middle};
use std::fmt::{self, Write};

/// The number of findings shown by default.
const DEFAULT_ROWS: usize = 10;
/// The default line width, in characters.
const DEFAULT_WIDTH: usize = 120;

impl Advice {
    /// Formats the advice as text with at most `rows` findings. Lines have at most `width` characters; if
    /// `width` is `None`, each finding takes one line.
    pub fn to_text(&self, rows: usize, width: Option<usize>) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, rows, width);
        text
    }

    fn write(&self, out: &mut String, rows: usize, width: Option<usize>) -> fmt::Result {
        writeln!(
            out,
            "{}: the peak is {}, {} after the start",
            printable(&self.device),
            self.peak_error.as_bytes(self.peak_bytes),
            format_time(self.peak_ns)
        )?;
        self.write_largest(out, width)?;
        let (listed, is_only_together) = self.listed_findings(rows);
        let saving = self.findings.iter().filter(|finding| finding.saves_bytes > 0).count();
        let mut hidden = if is_only_together { 0 } else { saving - listed.len() };
        if is_only_together {
            writeln!(
                out,
                "Nothing lowers it by itself, since as much is allocated at another moment. Together these do:"
            )?;
        } else if listed.is_empty() {
            let hint = match self.largest.is_empty() {
                true => "",
                false => " To lower it, let the largest of these hold less at once.",
            };
            writeln!(out, "Nothing was found that would lower it noticeably.{hint}")?;
        } else {
            writeln!(out, "What would lower it:")?;
        }
        let shown = &listed[..rows.min(listed.len())];
        for (number, finding) in (1..).zip(shown) {
            let head = format!("{number:>3}. ");
            let saves = match finding.saves_bytes {
                0 => String::new(),
                bytes => format!("−{}  ", finding.saves_error.as_bytes(bytes)),
            };
            write_wrapped(out, &head, &format!("{saves}{}", self.sentence(finding)), width)?;
        }
        hidden += listed.len() - shown.len();
        if hidden > 0 {
            let save = if hidden == 1 { "saves" } else { "save" };
            let findings = counted(hidden as u64, "finding");
            writeln!(out, "     (and {findings} that {save} less: -n 0 shows all)")?;
        }
        if self.all_findings.findings > 1 && !listed.is_empty() {
            out.push('\n');
            if self.without_more_work.saves_bytes > 0
                && self.without_more_work.findings < self.all_findings.findings
            {
                write_together(out, "Everything that takes no further work", &self.without_more_work)?;
            }
            write_together(out, "All together", &self.all_findings)?;
        }
        if self.unseen_bytes > 0 {
            writeln!(
                out,
                "{} of the peak are memory in which no tensor was seen: its use is unknown.",
                self.unseen_error.as_bytes(self.unseen_bytes)
            )?;
        }
        Ok(())
    }

    /// Formats a finding as a sentence.
    pub fn sentence(&self, finding: &Finding) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_sentence(&mut text, finding);
        printable(&text)
    }

    /// Writes the largest parts of the peak, skipping parts below a hundredth of the peak.
    fn write_largest(&self, out: &mut String, width: Option<usize>) -> fmt::Result {
        let shown = || self.largest.iter().filter(|part| part.share >= 0.01);
        if shown().next().is_none() {
            return Ok(());
        }
        writeln!(out, "Held at the peak by:")?;
        let bytes: Vec<String> = shown().map(|part| part.error.as_bytes(part.bytes)).collect();
        let wide = bytes.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        for (part, bytes) in shown().zip(bytes) {
            let head = format!("  {bytes:>wide$} {:>8}  ", part.error.as_share(part.share));
            let room = width.map_or(usize::MAX, |width| width.saturating_sub(head.chars().count()).max(30));
            writeln!(out, "{head}{}", shorten_middle(&printable(&part.name), room))?;
        }
        Ok(())
    }

    /// Returns the place that the device's memory can be moved to.
    fn offload_target(&self) -> &'static str {
        if self.is_on_host() { "a file" } else { "host memory" }
    }

    fn write_sentence(&self, out: &mut String, finding: &Finding) -> fmt::Result {
        match (finding.kind, finding.category) {
            (Kind::Recompute, _) => return self.write_recompute(out, finding),
            (Kind::ZeroGrad, _) => {
                return write!(
                    out,
                    "{} at the peak, though the step that used them is over: {}; {}",
                    format_counted_subject(finding, "gradients are still there", "gradient is still there"),
                    match self.is_from_sdk {
                        true => "drop the gradients right after the optimizer's step",
                        false =>
                            "call zero_grad(set_to_none=True) right after step(), or drop the gradients there",
                    },
                    self.format_new_peak(finding),
                );
            }
            (Kind::Idle, Category::OptimizerState) => {
                write!(
                    out,
                    "{} at the peak and used only by the optimizer{}: keep it in {} between steps{}",
                    format_counted_subject(
                        finding,
                        "pieces of optimizer state are there",
                        "piece of optimizer state is there"
                    ),
                    format_until_next_use(finding),
                    self.offload_target(),
                    if self.has_several_devices { ", or share it out among devices" } else { "" },
                )?;
            }
            (Kind::Idle, Category::Parameter) => {
                write!(
                    out,
                    "{} at the peak and not in use{}: {}keep them in {} between their uses",
                    format_counted_subject(finding, "parameters are there", "parameter is there"),
                    format_until_next_use(finding),
                    if self.has_several_devices { "share them out among devices (FSDP), or " } else { "" },
                    self.offload_target(),
                )?;
            }
            (Kind::Idle, Category::Gradient) => {
                write!(
                    out,
                    "{} at the peak and wait to be used{}: step each parameter as soon as its gradient is there{}, or move \
                     them to {} until then",
                    format_counted_subject(finding, "gradients are there", "gradient is there"),
                    format_until_next_use(finding),
                    if self.is_from_sdk { "" } else { " (a hook after it is accumulated)" },
                    self.offload_target(),
                )?;
            }
            (Kind::Early, _) => {
                let obtained = finding.obtained_ns.map_or_else(
                    || "were there before the trace".to_owned(),
                    |ns| format!("were obtained {} before the peak", format_time(ns)),
                );
                write!(
                    out,
                    "{} {obtained} and are first used{}: obtain them right before that",
                    format_subject(finding),
                    finding
                        .used_after
                        .as_ref()
                        .map_or_else(String::new, |of| format!(" by {}", format_use_after_peak(of))),
                )?;
            }
            (Kind::Late, _) => {
                let used = finding.used_before.as_ref().map_or_else(
                    || "were never used after they were made".to_owned(),
                    |of| format!("were last used by {}", format_use_before_peak(of)),
                );
                let freed = finding.freed_ns.map_or_else(
                    || "and are still there at the end of the trace".to_owned(),
                    |ns| format!("and freed {} after the peak", format_time(ns)),
                );
                write!(
                    out,
                    "{} {used} {freed}: drop them right after their last use",
                    format_subject(finding)
                )?;
            }
            (Kind::Idle, _) => {
                let used = finding.used_before.as_ref().map_or_else(
                    || "after they were made".to_owned(),
                    |of| format!("between {}", format_use_before_peak(of)),
                );
                let until =
                    finding.used_after.as_ref().map_or_else(String::new, |of| match finding.used_before {
                        Some(_) => format!(" and {}", format_use_after_peak(of)),
                        None => format!(" until {}", format_use_after_peak(of)),
                    });
                write!(
                    out,
                    "{} lie idle {used}{until}: move them to {} in between{}, or recompute them",
                    format_subject(finding),
                    self.offload_target(),
                    format_transfer_rate(finding),
                )?;
            }
        }
        write!(out, "; {}", self.format_new_peak(finding))
    }

    fn write_recompute(&self, out: &mut String, finding: &Finding) -> fmt::Result {
        let took = finding.forward_ns.unwrap_or(0);
        let module = finding.module.as_deref().unwrap_or("A module");
        let bytes = human_bytes(finding.bytes);
        let pieces = counted(finding.pieces, "piece");
        match finding.modules.len() {
            0 | 1 => {
                write!(
                    out,
                    "{module} keeps {bytes} in {pieces} from its forward to its backward pass, and its"
                )?;
            }
            number => write!(
                out,
                "{module} and {} of its type keep {bytes} in {pieces} from their forward to their backward passes, and their",
                counted(number as u64 - 1, "other module")
            )?,
        }
        write!(out, " forward operators take {}", format_time(took))?;
        if took > 0 {
            let per_ms = finding.saves_bytes as f64 / (took as f64 / 1e6);
            write!(out, " ({} saved for each ms)", human_bytes(per_ms as u64))?;
        }
        write!(
            out,
            ": recompute them in the backward pass (torch.utils.checkpoint); {}",
            self.format_new_peak(finding)
        )
    }

    /// Describes how a finding's change affects the peak.
    fn format_new_peak(&self, finding: &Finding) -> String {
        if finding.saves_bytes == 0 {
            return "alone that does not lower the peak, because as much memory is allocated at another moment"
                .to_owned();
        }
        format!("the peak falls to {}", finding.peak_error.as_bytes(finding.peak_bytes))
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(DEFAULT_ROWS, Some(DEFAULT_WIDTH)))
    }
}

/// Formats the subject of a sentence, such as
/// `12.0 MiB in 2 pieces (ACTIVATION) obtained by aten::mm in encoder.0`.
fn format_subject(finding: &Finding) -> String {
    let mut text = finding.error.as_bytes(finding.bytes);
    if finding.pieces > 1 {
        let _ = write!(text, " in {}", counted(finding.pieces, "piece"));
    }
    let _ = write!(text, " ({})", finding.category);
    let by = finding.operator.as_deref().map(|operator| format!("by {operator}"));
    let module = finding.module.as_deref().map(|module| format!("in {module}"));
    let at = finding.line.as_ref().map(|line| match line.line {
        0 => format!("at {} ({})", line.file, line.function),
        number => format!("at {}:{number} ({})", line.file, line.function),
    });
    let origin: Vec<String> = [by, module, at].into_iter().flatten().collect();
    if !origin.is_empty() && finding.obtained_ns.is_some() {
        let _ = write!(text, " obtained {}", origin.join(" "));
    }
    text
}

/// Formats a counted subject with its verb, e.g. `12 gradients (48.0 MiB) are still there`.
fn format_counted_subject(finding: &Finding, many: &str, one: &str) -> String {
    let what = if finding.pieces == 1 { one } else { many };
    let mut words = what.splitn(2, ' ');
    let (first, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let text = format!("{} {first} ({}) {rest}", finding.pieces, finding.error.as_bytes(finding.bytes));
    capitalised(&text)
}

/// Formats a use before the peak, e.g. `aten::add in head (1.20 ms before the peak)`.
fn format_use_before_peak(of: &NearUse) -> String {
    format!("{}{} ({} before the peak)", of.operator, format_module(of), format_time(of.distance_ns))
}

fn format_use_after_peak(of: &NearUse) -> String {
    format!("{}{} ({} after it)", of.operator, format_module(of), format_time(of.distance_ns))
}

fn format_module(of: &NearUse) -> String {
    of.module.as_deref().map_or_else(String::new, |module| format!(" in {module}"))
}

fn format_until_next_use(finding: &Finding) -> String {
    finding
        .used_after
        .as_ref()
        .map_or_else(String::new, |of| format!(", next {} after it", format_time(of.distance_ns)))
}

/// Formats the transfer rate that would be needed to move the memory out and back.
fn format_transfer_rate(finding: &Finding) -> String {
    let (Some(before), Some(after)) = (&finding.used_before, &finding.used_after) else {
        return String::new();
    };
    let seconds = (before.distance_ns.saturating_add(after.distance_ns)) as f64 / 1e9;
    if seconds <= 0.0 {
        return String::new();
    }
    let per_second = 2.0 * finding.bytes as f64 / seconds;
    format!(" (out and back takes {}/s)", human_bytes(per_second as u64))
}

fn write_together(out: &mut String, what: &str, together: &CombinedEffect) -> fmt::Result {
    writeln!(
        out,
        "{what} ({}): −{}, the peak falls to {}.",
        counted(together.findings, "finding"),
        human_bytes(together.saves_bytes),
        human_bytes(together.peak_bytes)
    )
}

/// Writes a paragraph whose first line starts with `head`. The other lines are indented by the width of
/// `head`.
fn write_wrapped(out: &mut String, head: &str, text: &str, width: Option<usize>) -> fmt::Result {
    let indent = head.chars().count();
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(indent).max(30));
    let mut line = String::new();
    let mut is_first = true;
    let mut flush = |line: &mut String| {
        let start = if std::mem::take(&mut is_first) { head.to_owned() } else { " ".repeat(indent) };
        let result = writeln!(out, "{start}{line}");
        line.clear();
        result
    };
    for word in text.split(' ') {
        let word = shorten_middle(word, room);
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            flush(&mut line)?;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    flush(&mut line)
}
