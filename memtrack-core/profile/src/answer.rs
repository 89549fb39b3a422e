//! What the answers about operator traces share: bytes by category, and what is outside of a name.

use crate::category::Category;
use crate::repairs::Repairs;
use std::collections::BTreeMap;

/// Bytes by the name of a category, without those that have none.
pub type ByCategory = BTreeMap<&'static str, i64>;

/// How often each repair was made, by its name.
pub type RepairCounts = BTreeMap<&'static str, u64>;

/// The categories that have bytes.
pub(crate) fn by_category(bytes: &crate::series::Bytes) -> ByCategory {
    let categories = Category::ALL.iter().zip(bytes).filter(|(_, bytes)| **bytes != 0);
    categories.map(|(category, &bytes)| (category.name(), bytes)).collect()
}

/// The repairs that were made.
pub(crate) fn repair_counts(repairs: &Repairs) -> RepairCounts {
    repairs.made().map(|(repair, count)| (repair.name(), count)).collect()
}
