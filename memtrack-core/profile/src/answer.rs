//! The parts common to all JSON answers about operator traces: bytes by category, and repair counts.

use crate::category::Category;
use crate::repairs::Repairs;
use std::collections::BTreeMap;

/// The number of bytes in each non-empty category, keyed by the category's name.
pub type ByCategory = BTreeMap<&'static str, i64>;

/// The number of repairs of each kind, keyed by the kind's name.
pub type RepairCounts = BTreeMap<&'static str, u64>;

/// Returns the bytes of each non-empty category.
pub(crate) fn bytes_by_category(bytes: &crate::series::Bytes) -> ByCategory {
    let categories = Category::ALL.iter().zip(bytes).filter(|(_, bytes)| **bytes != 0);
    categories.map(|(category, &bytes)| (category.name(), bytes)).collect()
}

/// Returns the number of repairs of each kind, skipping kinds that did not occur.
pub(crate) fn count_repairs(repairs: &Repairs) -> RepairCounts {
    repairs.nonzero().map(|(repair, count)| (repair.name(), count)).collect()
}
