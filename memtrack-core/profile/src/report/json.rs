//! The report as JSON.

use super::{CategoryReport, Held, PhaseRow, Row};
use crate::category::Category;
use crate::series::Bytes;
use serde_json::{Map, Value, json};

impl CategoryReport {
    /// The report as JSON: bytes, ns, and names as in the text. At most `rows` modules and operators are listed for each
    /// moment; `others` sums up the rest.
    pub fn to_json(&self, rows: usize) -> Value {
        json!({
            "device": self.device,
            "exactly_as_pytorch": self.is_compat,
            "changes": self.changes,
            "lasts_ns": self.lasts_ns,
            "moments": self.held.iter().map(|held| held_json(held, rows)).collect::<Vec<_>>(),
            "phases": self.phases.iter().map(phase_json).collect::<Vec<_>>(),
            "repairs": self.repairs,
        })
    }
}

fn held_json(held: &Held, rows: usize) -> Value {
    json!({
        "moment": held.moment,
        "after_ns": held.after_ns,
        "allocated_bytes": held.bytes,
        "categories": held.categories.iter().map(|row| {
            json!({ "category": row.name, "bytes": row.bytes, "pieces": row.pieces })
        }).collect::<Vec<_>>(),
        "modules": rows_json(&held.modules, "module", rows),
        "operators": rows_json(&held.operators, "operator", rows),
    })
}

fn rows_json(all: &[Row], name: &str, rows: usize) -> Value {
    let (shown, rest) = all.split_at(rows.min(all.len()));
    let listed: Vec<Value> = shown
        .iter()
        .map(|row| {
            json!({
                name: row.name, "bytes": row.bytes, "pieces": row.pieces, "categories": by_category(&row.by_category)
            })
        })
        .collect();
    let others = json!({
        "rows": rest.len(),
        "bytes": rest.iter().map(|row| row.bytes).sum::<u64>(),
        "pieces": rest.iter().map(|row| row.pieces).sum::<u64>(),
    });
    json!({ "rows": listed, "others": others })
}

fn phase_json(row: &PhaseRow) -> Value {
    json!({
        "phase": row.when.name(),
        "obtained_bytes": row.obtained_bytes,
        "freed_bytes": row.freed_bytes,
        "left_bytes": row.left_bytes(),
        "left": by_category(&row.left),
        "highest_bytes": row.highest_bytes,
    })
}

/// The categories that have bytes.
fn by_category(bytes: &Bytes) -> Value {
    let categories = Category::ALL.iter().zip(bytes).filter(|(_, bytes)| **bytes != 0);
    Value::Object(
        categories
            .map(|(category, &bytes)| (category.name().to_owned(), bytes.into()))
            .collect::<Map<_, _>>(),
    )
}
