//! The parts that all JSON answers about operator traces share: bytes by category, and counts of repairs.

use crate::category::Category;
use crate::repairs::Repairs;
use std::collections::BTreeMap;

/// The bytes of each non-empty category, by the category's name.
pub type ByCategory = BTreeMap<&'static str, i64>;

/// The number of repairs of each kind, by name.
pub type RepairCounts = BTreeMap<&'static str, u64>;

/// Returns the bytes of each category that is not empty.
pub(crate) fn by_category(bytes: &crate::series::Bytes) -> ByCategory {
    let categories = Category::ALL.iter().zip(bytes).filter(|(_, bytes)| **bytes != 0);
    categories.map(|(category, &bytes)| (category.name(), bytes)).collect()
}

/// Returns the number of repairs of each kind that was made.
pub(crate) fn repair_counts(repairs: &Repairs) -> RepairCounts {
    repairs.nonzero().map(|(repair, count)| (repair.name(), count)).collect()
}
