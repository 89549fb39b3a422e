//! Formats the module report as a text tree.

use super::{ModuleCall, ModuleMemory, ModuleReport, Span};
use crate::category::Category;
use crate::series::Bytes;
use memtrack_model::units::{counted, human_bytes, printable, shorten_middle};
use std::cmp::Reverse;
use std::fmt::{self, Write};

/// The number of module levels shown by default.
pub const DEPTH: u32 = 3;
/// The default line width, in characters.
const DEFAULT_WIDTH: usize = 120;
/// The width of a row in characters, not counting the name and the categories.
const NUMBERS_WIDTH: usize = 63;

impl ModuleReport {
    /// Formats the report as text. For each module nested less than `depth` levels deep, the text shows the
    /// call with the highest peak in the forward pass and the call with the highest peak in the backward
    /// pass. Lines have at most `width` characters; if `width` is `None`, they are as long as needed.
    pub fn to_text(&self, depth: u32, width: Option<usize>) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.listed(depth).write(&mut text, depth, width);
        text
    }

    fn write(&self, out: &mut String, depth: u32, width: Option<usize>) -> fmt::Result {
        let shown: Vec<(&ModuleMemory, String)> =
            self.modules.iter().map(|module| (module, tree_label(module))).collect();
        let all = self.modules.len() + self.deeper_modules;
        writeln!(out, "{}: {}", printable(&self.device.name), counted(all as u64, "module"))?;
        if all == 0 {
            return writeln!(
                out,
                "The trace has no modules: record it with with_stack=True, or with modules' scopes."
            );
        }
        let (first, last) = if self.is_estimate { (17, 18) } else { (10, 11) };
        let numbers = NUMBERS_WIDTH + 2 * (first - 10) + (last - 11);
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(numbers + 30).max(20));
        let wide =
            shown.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0).clamp(6, room.max(6));
        writeln!(
            out,
            "{:<wide$} {:>10} {:>5} {:<9} {:>first$} {:>first$} {:>last$}  the peak by category",
            "module", "parameters", "calls", "pass", "before", "peak", "leaves"
        )?;
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(wide + numbers));
        for (module, label) in &shown {
            let passes = passes_of(module);
            for (place, (pass, calls, span)) in passes.iter().enumerate() {
                let (label, parameters) = if place == 0 {
                    (shorten_middle(label, wide), human_bytes(module.parameter_bytes))
                } else {
                    (String::new(), String::new())
                };
                writeln!(
                    out,
                    "{label:<wide$} {parameters:>10} {calls:>5} {pass:<9} {:>first$} {:>first$} {:>last$}  {}",
                    span.before.as_bytes(),
                    span.peak.as_bytes(),
                    format_left(span),
                    format_categories(span, room),
                )?;
            }
        }
        if self.deeper_modules > 0 {
            let deeper = counted(self.deeper_modules as u64, "module");
            writeln!(out, "({deeper} deeper: --depth {})", depth + 1)?;
        }
        Ok(())
    }
}

/// Returns a module's indented name in the tree, which is its path without the parent module's path.
fn tree_label(module: &ModuleMemory) -> String {
    let around = module.called_by.as_deref().unwrap_or_default();
    let inner = module.name.strip_prefix(around).and_then(|rest| rest.strip_prefix('.'));
    let name = inner.unwrap_or(&module.name);
    let is_numbered = module
        .name
        .strip_prefix(&*module.class)
        .and_then(|rest| rest.strip_prefix('_'))
        .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    // Modules of a Rust program have names but no types.
    let class =
        if is_numbered || name == module.class { String::new() } else { format!(" {}", module.class) };
    printable(&format!("{:indent$}{name}{class}", "", indent = 2 * module.depth.min(40) as usize))
}

impl fmt::Display for ModuleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(DEPTH, Some(DEFAULT_WIDTH)))
    }
}

/// Returns the passes of a module that appear in the trace, each with the number of calls that have this pass
/// and the span with the highest peak.
fn passes_of(module: &ModuleMemory) -> Vec<(&'static str, usize, Span)> {
    type SpanOf = fn(&ModuleCall) -> Option<Span>;
    let passes: [(&str, SpanOf); 3] = [
        ("forward", |call| (!call.is_recomputed).then_some(call.forward)),
        ("recompute", |call| call.is_recomputed.then_some(call.forward)),
        ("backward", |call| call.backward),
    ];
    let of = |(name, span_of): (&'static str, SpanOf)| {
        let spans = || module.calls.iter().filter_map(span_of);
        // If several spans are equal, the first one is shown.
        let peak = |span: &Span| span.peak.allocated_bytes.max(0);
        let highest = |a: Span, b: Span| if peak(&b) > peak(&a) { b } else { a };
        spans().reduce(highest).map(|span| (name, spans().count(), span))
    };
    passes.into_iter().filter_map(of).collect()
}

/// Formats the bytes that a span left allocated. If they are an estimate whose range includes zero, returns
/// only ± the largest possible value.
fn format_left(span: &Span) -> String {
    let (left, error) = span.left_bytes();
    match left {
        bytes if error.is_exact() => format_signed(bytes),
        _ if error.low <= 0.0 && error.high >= 0.0 => {
            format!("±{}", human_bytes(error.high.max(-error.low).ceil() as u64))
        }
        bytes if bytes >= 0 => format!("+{}", error.as_bytes(bytes.unsigned_abs())),
        bytes => format!("−{}", error.times(-1.0).as_bytes(bytes.unsigned_abs())),
    }
}

fn format_signed(bytes: i64) -> String {
    let sign = match bytes {
        0 => "",
        1.. => "+",
        _ => "−",
    };
    format!("{sign}{}", human_bytes(bytes.unsigned_abs()))
}

/// Formats the categories at a peak, largest first. Categories that do not fit into `room` are left out.
fn format_categories(span: &Span, room: usize) -> String {
    let mut text = String::new();
    let all = categories_largest_first(&span.peak.by_category);
    for (place, (category, bytes)) in all.iter().enumerate() {
        let separator = if place > 0 { ", " } else { "" };
        // For estimates, only the error of the total is known, so no numbers are shown for categories.
        let part = match span.peak.allocated_bytes_error.is_exact() {
            true => format!("{separator}{category} {}", human_bytes(*bytes)),
            false => format!("{separator}{category}"),
        };
        let is_last = place + 1 == all.len();
        let needed = text.chars().count() + part.chars().count() + if is_last { 0 } else { 3 };
        if place > 0 && needed > room {
            text.push_str(", …");
            break;
        }
        text.push_str(&part);
    }
    text
}

/// Returns the categories that contain any bytes, largest first.
fn categories_largest_first(bytes: &Bytes) -> Vec<(Category, u64)> {
    let mut categories: Vec<(Category, u64)> = Category::ALL
        .into_iter()
        .zip(bytes)
        .filter_map(|(category, &bytes)| {
            Some((category, u64::try_from(bytes).ok().filter(|&bytes| bytes > 0)?))
        })
        .collect();
    categories.sort_by_key(|&(category, bytes)| (Reverse(bytes), category));
    categories
}
