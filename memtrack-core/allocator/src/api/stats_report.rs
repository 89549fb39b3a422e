//! Statistics in PyTorch's forms: as dictionaries, either nested or flat with dotted keys, and as a table
//! (`torch.cuda.memory_summary`) that matches PyTorch's character for character.

use crate::state::stats::{DeviceStats, Stat, StatArray};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Adds the numbers of a nested dictionary, whose keys are appended to `prefix`.
fn flatten(into: &mut BTreeMap<String, i64>, prefix: String, value: &Value) {
    match value {
        Value::Object(inner) => {
            for (key, value) in inner {
                let dot = if prefix.is_empty() { "" } else { "." };
                flatten(into, format!("{prefix}{dot}{key}"), value);
            }
        }
        number => {
            into.insert(prefix, number.as_i64().unwrap_or_default());
        }
    }
}

fn stat_to_json(stat: &Stat) -> Value {
    let Stat { current, peak, allocated, freed } = stat;
    json!({ "allocated": allocated, "current": current, "freed": freed, "peak": peak })
}

fn array_to_json(array: &StatArray) -> Value {
    json!({
        "all": stat_to_json(&array.all),
        "large_pool": stat_to_json(&array.large_pool),
        "small_pool": stat_to_json(&array.small_pool),
    })
}

impl DeviceStats {
    /// Returns the dictionary of `torch.cuda.memory_stats`, with every number under a dotted key, sorted by key.
    pub fn flat(&self) -> BTreeMap<String, i64> {
        let mut flat = BTreeMap::new();
        flatten(&mut flat, String::new(), &self.nested());
        flat
    }

    /// Returns the dictionary of `torch.cuda.memory_stats_as_nested_dict`. Pool ids, which are tuples in Python, are
    /// formatted as `a_b`.
    pub fn nested(&self) -> Value {
        let mut nested = Map::new();
        for (name, array) in self.arrays() {
            nested.insert(name.to_owned(), array_to_json(array));
        }
        nested.insert("oversize_allocations".to_owned(), stat_to_json(&self.oversize_allocations));
        nested.insert("oversize_segments".to_owned(), stat_to_json(&self.oversize_segments));
        for (name, value) in self.counters() {
            nested.insert(name.to_owned(), json!(value));
        }
        let pools = self.reserved_bytes_by_private_pools.iter();
        let pools: Map<String, Value> = pools
            .map(|((first, second), array)| (format!("{first}_{second}"), array_to_json(array)))
            .collect();
        nested.insert("reserved_bytes_by_private_pools".to_owned(), pools.into());
        nested.into()
    }
}

/// The format of the numbers in a row of the table.
#[derive(Clone, Copy)]
struct Scale {
    units: &'static [&'static str],
    /// The size of the next unit in terms of the current one.
    divisor: i64,
    /// A number is divided while it is at least `keep` times the divisor.
    keep: i64,
    /// The width of a number.
    width: usize,
}

const BYTE_SCALE: Scale =
    Scale { units: &["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"], divisor: 1024, keep: 768, width: 6 };
const COUNT_SCALE: Scale = Scale { units: &["  ", "K ", "M "], divisor: 1000, keep: 750, width: 7 };

impl Scale {
    /// Formats `value` in the unit that `reference` selects.
    fn format_cell(self, value: i64, reference: i64) -> String {
        let (mut value, mut reference, mut unit) = (value, reference as f64, 0);
        while reference >= (self.keep * self.divisor) as f64 && unit + 1 < self.units.len() {
            value = value.div_euclid(self.divisor);
            reference /= self.divisor as f64;
            unit += 1;
        }
        format!("{value:>width$} {}", self.units[unit], width = self.width)
    }
}

fn stat_columns(stat: &Stat) -> [i64; 4] {
    [stat.current, stat.peak, stat.allocated, stat.freed]
}

fn push_rule(text: &mut String, letter: &str) {
    let _ = writeln!(text, "|{}|", letter.repeat(75));
}

fn push_row(text: &mut String, label: &str, stat: &Stat, reference: &Stat, scale: Scale) {
    let numbers = stat_columns(stat).into_iter().zip(stat_columns(reference));
    let cells: Vec<String> = numbers.map(|(value, reference)| scale.format_cell(value, reference)).collect();
    let _ = writeln!(text, "| {label:<21} | {} |", cells.join(" | "));
}

fn push_group(text: &mut String, label: &str, array: &StatArray, scale: Scale, abbreviated: bool) {
    push_rule(text, "-");
    push_row(text, label, &array.all, &array.all, scale);
    if !abbreviated {
        push_row(text, "      from large pool", &array.large_pool, &array.all, scale);
        push_row(text, "      from small pool", &array.small_pool, &array.all, scale);
    }
}

/// Formats a device's statistics as a table; `abbreviated` omits the rows for the small and large pools.
pub fn memory_summary(stats: &DeviceStats, device: u16, abbreviated: bool) -> String {
    let mut text = String::with_capacity(4096);
    push_rule(&mut text, "=");
    let _ = writeln!(text, "|{:18}PyTorch CUDA memory summary, device ID {device:<17} |", "");
    push_rule(&mut text, "-");
    let _ = writeln!(
        text,
        "|{:12}CUDA OOMs: {:<12} | {:7}cudaMalloc retries: {:<8}  |",
        "", stats.num_ooms, "", stats.num_alloc_retries
    );
    push_rule(&mut text, "=");
    text += "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n";
    for (label, array, scale) in [
        ("Allocated memory", &stats.allocated_bytes, BYTE_SCALE),
        ("Active memory", &stats.active_bytes, BYTE_SCALE),
        ("Requested memory", &stats.requested_bytes, BYTE_SCALE),
        ("GPU reserved memory", &stats.reserved_bytes, BYTE_SCALE),
        ("Non-releasable memory", &stats.inactive_split_bytes, BYTE_SCALE),
        ("Allocations", &stats.allocation, COUNT_SCALE),
        ("Active allocs", &stats.active, COUNT_SCALE),
        ("GPU reserved segments", &stats.segment, COUNT_SCALE),
        ("Non-releasable allocs", &stats.inactive_split, COUNT_SCALE),
    ] {
        push_group(&mut text, label, array, scale, abbreviated);
    }
    for (label, stat) in [
        ("Oversize allocations", &stats.oversize_allocations),
        ("Oversize GPU segments", &stats.oversize_segments),
    ] {
        push_rule(&mut text, "-");
        push_row(&mut text, label, stat, stat, COUNT_SCALE);
    }
    push_rule(&mut text, "=");
    text
}
