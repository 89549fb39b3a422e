//! Statistics in the form of PyTorch's dictionaries: either nested, or flat with dotted keys.

use crate::state::stats::{DeviceStats, Stat, StatArray};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Returns a statistic's four numbers with their names, sorted by name.
fn stat_numbers(stat: &Stat) -> [(&'static str, i64); 4] {
    [("allocated", stat.allocated), ("current", stat.current), ("freed", stat.freed), ("peak", stat.peak)]
}

/// Returns an array's three statistics with their names, sorted by name.
fn array_kinds(array: &StatArray) -> [(&'static str, &Stat); 3] {
    [("all", &array.all), ("large_pool", &array.large_pool), ("small_pool", &array.small_pool)]
}

fn flatten(into: &mut BTreeMap<String, i64>, name: &str, array: &StatArray) {
    for (kind, stat) in array_kinds(array) {
        flatten_stat(into, &format!("{name}.{kind}"), stat);
    }
}

fn flatten_stat(into: &mut BTreeMap<String, i64>, name: &str, stat: &Stat) {
    into.extend(stat_numbers(stat).map(|(number, value)| (format!("{name}.{number}"), value)));
}

fn stat_to_json(stat: &Stat) -> Value {
    Value::Object(
        stat_numbers(stat).into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect(),
    )
}

fn array_to_json(array: &StatArray) -> Value {
    Value::Object(
        array_kinds(array).into_iter().map(|(name, stat)| (name.to_owned(), stat_to_json(stat))).collect(),
    )
}

impl DeviceStats {
    /// Returns the dictionary of `torch.cuda.memory_stats`, with every number under a dotted key, sorted by key.
    pub fn flat(&self) -> BTreeMap<String, i64> {
        let mut flat = BTreeMap::new();
        for (name, array) in self.arrays() {
            flatten(&mut flat, name, array);
        }
        for ((first, second), array) in &self.reserved_bytes_by_private_pools {
            flatten(&mut flat, &format!("reserved_bytes_by_private_pools.{first}_{second}"), array);
        }
        flatten_stat(&mut flat, "oversize_allocations", &self.oversize_allocations);
        flatten_stat(&mut flat, "oversize_segments", &self.oversize_segments);
        flat.extend(self.counters().map(|(name, value)| (name.to_owned(), value)));
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
