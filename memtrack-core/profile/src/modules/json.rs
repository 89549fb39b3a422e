//! The module view as JSON.

use super::{ModuleCall, ModuleMemory, ModuleReport, Span, largest_first, total};
use crate::series::Bytes;
use serde_json::{Map, Value, json};

impl ModuleReport {
    /// The report as JSON: bytes, and ns after the trace's first record. Modules that are inside of `depth` others or more are
    /// left out; `deeper_modules` counts them.
    pub fn to_json(&self, depth: u32) -> Value {
        let shown = self.modules.iter().filter(|module| module.depth < depth);
        let modules: Vec<Value> = shown.map(|module| self.module_json(module)).collect();
        json!({
            "device": self.device,
            "deeper_modules": self.modules.len() - modules.len(),
            "modules": modules,
            "repairs": self.repairs,
        })
    }

    fn module_json(&self, module: &ModuleMemory) -> Value {
        json!({
            "module": module.name,
            "class": module.class,
            "called_by": module.parent.map(|parent| &self.modules[parent].name),
            "depth": module.depth,
            "own_parameter_bytes": module.own_parameter_bytes,
            "parameter_bytes": module.parameter_bytes,
            "buffer_bytes": module.buffer_bytes,
            "calls": module.calls.iter().map(call_json).collect::<Vec<_>>(),
        })
    }
}

fn call_json(call: &ModuleCall) -> Value {
    json!({
        "recomputed": call.is_recomputed,
        "input_bytes": call.input_bytes,
        "output_bytes": call.output_bytes,
        "forward": span_json(&call.forward),
        "backward": call.backward.as_ref().map(span_json),
    })
}

fn span_json(span: &Span) -> Value {
    json!({
        "begin_ns": span.begin_ns,
        "end_ns": span.end_ns,
        "peak_ns": span.peak_ns,
        "before": bytes_json(&span.before),
        "peak": bytes_json(&span.peak),
        "after": bytes_json(&span.after),
    })
}

fn bytes_json(bytes: &Bytes) -> Value {
    let categories =
        largest_first(bytes).into_iter().map(|(category, bytes)| (category.name().to_owned(), bytes.into()));
    json!({ "bytes": total(bytes), "categories": Value::Object(categories.collect::<Map<_, _>>()) })
}
