//! The module view as JSON.

use super::{ModuleCall, ModuleMemory, ModuleReport, Span, total};
use crate::answer::{ByCategory, RepairCounts, by_category, repair_counts};
use crate::series::Bytes;
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer};
use memtrack_report::analysis::estimate::Estimate;
use serde::Serialize;
use serde_json::Value;

/// Memory module by module.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ModulesAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// Whether small blocks were sampled, so that sums are estimates.
    pub estimated: bool,
    /// Modules that are inside of others than `--depth` shows.
    pub deeper_modules: usize,
    /// The modules, each after the one that called it first.
    pub modules: Vec<ModuleAnswer>,
    /// What had to be put right in the trace, and how often.
    pub repairs: RepairCounts,
}

/// A module's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ModuleAnswer {
    /// Its path in the model where the trace says it, else its type and a number.
    pub module: String,
    /// Its type.
    pub class: String,
    /// The module that called it first.
    pub called_by: Option<String>,
    /// How many modules it is inside of.
    pub depth: u32,
    /// Bytes of its own parameters.
    pub own_parameter_bytes: u64,
    /// Bytes of its parameters and those of all modules that it calls.
    pub parameter_bytes: u64,
    /// Bytes of its buffers and those of all modules that it calls.
    pub buffer_bytes: u64,
    /// Its calls, in the order of time.
    pub calls: Vec<CallAnswer>,
}

/// A module's call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CallAnswer {
    /// Whether it was called in the backward pass, to make activations again.
    pub recomputed: bool,
    /// What its operators read that was there before, parameters and the like aside.
    pub input_bytes: u64,
    /// What its operators made or wrote that operators after it use.
    pub output_bytes: u64,
    /// The forward pass.
    pub forward: SpanAnswer,
    /// The backward pass; null where the trace does not tell.
    pub backward: Option<SpanAnswer>,
}

/// A part of the time. Times are counted from the trace's first record.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SpanAnswer {
    /// When it began.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// When most was allocated.
    pub peak_ns: u64,
    /// What was allocated right before it.
    pub before: AllocatedAnswer,
    /// What was allocated when most was.
    pub peak: AllocatedAnswer,
    /// What was allocated at its end.
    pub after: AllocatedAnswer,
}

/// What is allocated on the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AllocatedAnswer {
    /// All of it.
    pub allocated_bytes: i64,
    /// How far off it may be where small blocks were sampled; null: it is exact.
    pub allocated_bytes_error: Option<ErrorAnswer>,
    /// The same by category.
    pub category_bytes: ByCategory,
}

impl ModuleReport {
    /// Returns the report as `memtrack modules --json` prints it. Modules inside `depth` others or more are
    /// left out; `deeper_modules` counts them.
    pub fn answer(&self, depth: u32) -> ModulesAnswer {
        let shown = self.modules.iter().filter(|module| module.depth < depth);
        let modules: Vec<ModuleAnswer> = shown.map(|module| self.module_answer(module)).collect();
        ModulesAnswer {
            device: DeviceAnswer::named(&self.device),
            estimated: self.is_estimate,
            deeper_modules: self.modules.len() - modules.len(),
            modules,
            repairs: repair_counts(&self.repairs),
        }
    }

    /// Returns the same as JSON.
    pub fn to_json(&self, depth: u32) -> Value {
        serde_json::to_value(self.answer(depth)).unwrap_or_default()
    }

    fn module_answer(&self, module: &ModuleMemory) -> ModuleAnswer {
        ModuleAnswer {
            module: module.name.clone(),
            class: module.class.clone(),
            called_by: module.parent.map(|parent| self.modules[parent].name.clone()),
            depth: module.depth,
            own_parameter_bytes: module.own_parameter_bytes,
            parameter_bytes: module.parameter_bytes,
            buffer_bytes: module.buffer_bytes,
            calls: module.calls.iter().map(call).collect(),
        }
    }
}

fn call(call: &ModuleCall) -> CallAnswer {
    CallAnswer {
        recomputed: call.is_recomputed,
        input_bytes: call.input_bytes,
        output_bytes: call.output_bytes,
        forward: span(&call.forward),
        backward: call.backward.as_ref().map(span),
    }
}

fn span(span: &Span) -> SpanAnswer {
    SpanAnswer {
        begin_ns: span.begin_ns,
        end_ns: span.end_ns,
        peak_ns: span.peak_ns,
        before: allocated(&span.before, &span.errors[0]),
        peak: allocated(&span.peak, &span.errors[1]),
        after: allocated(&span.after, &span.errors[2]),
    }
}

fn allocated(bytes: &Bytes, error: &Estimate) -> AllocatedAnswer {
    AllocatedAnswer {
        allocated_bytes: total(bytes),
        allocated_bytes_error: error.answer(),
        category_bytes: by_category(bytes),
    }
}
