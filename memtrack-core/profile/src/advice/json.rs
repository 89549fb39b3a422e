//! The advice as JSON.

use super::{Advice, Finding, NearUse, Together};
use serde_json::{Value, json};

impl Advice {
    /// The advice as JSON: exact bytes, and ns. At most `rows` findings are listed; `others` sums up the rest.
    pub fn to_json(&self, rows: usize) -> Value {
        let (shown, rest) = self.findings.split_at(rows.min(self.findings.len()));
        json!({
            "device": self.device,
            "peak_bytes": self.peak_bytes,
            "peak_ns": self.peak_ns,
            "findings": shown.iter().map(|finding| self.finding_json(finding)).collect::<Vec<_>>(),
            "others": {
                "findings": rest.len(),
                "bytes": rest.iter().fold(0_u64, |sum, finding| sum.saturating_add(finding.bytes)),
            },
            "together": { "without_more_work": together_json(&self.free), "all": together_json(&self.all) },
            "unseen_bytes": self.unseen_bytes,
            "repairs": self.repairs,
        })
    }

    fn finding_json(&self, finding: &Finding) -> Value {
        json!({
            "kind": finding.kind.name(),
            "sentence": self.sentence(finding),
            "saves_bytes": finding.saves_bytes,
            "new_peak_bytes": finding.peak_bytes,
            "pieces": finding.pieces,
            "bytes": finding.bytes,
            "category": finding.category.name(),
            "module": finding.module,
            "modules": finding.modules,
            "operator": finding.operator,
            "line": finding.line.as_ref().map(|line| {
                json!({ "file": line.file, "line": line.line, "function": line.function })
            }),
            "obtained_ns_before_the_peak": finding.obtained_ns,
            "last_used": finding.used_before.as_ref().map(|of| near_json(of, "ns_before_the_peak")),
            "next_used": finding.used_after.as_ref().map(|of| near_json(of, "ns_after_the_peak")),
            "freed_ns_after_the_peak": finding.freed_ns,
            "forward_ns": finding.forward_ns,
        })
    }
}

fn near_json(of: &NearUse, distance: &str) -> Value {
    json!({ "operator": of.operator, "module": of.module, distance: of.distance_ns })
}

fn together_json(together: &Together) -> Value {
    json!({
        "findings": together.findings,
        "saves_bytes": together.saves_bytes,
        "new_peak_bytes": together.peak_bytes,
    })
}
