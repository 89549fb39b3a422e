//! Parts that all answers about operator traces share: bytes by category, and counts of repairs.

use crate::category::Category;
use crate::repairs::Repairs;
use std::collections::BTreeMap;

/// The bytes of each category by its name, without empty categories.
pub type ByCategory = BTreeMap<&'static str, i64>;

/// The number of repairs of each kind, by name.
pub type RepairCounts = BTreeMap<&'static str, u64>;

/// Returns the categories that have bytes.
pub(crate) fn by_category(bytes: &crate::series::Bytes) -> ByCategory {
    let categories = Category::ALL.iter().zip(bytes).filter(|(_, bytes)| **bytes != 0);
    categories.map(|(category, &bytes)| (category.name(), bytes)).collect()
}

/// Returns the repairs that were made.
pub(crate) fn repair_counts(repairs: &Repairs) -> RepairCounts {
    repairs.made().map(|(repair, count)| (repair.name(), count)).collect()
}
