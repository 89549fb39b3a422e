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
    /// The number of modules that are nested deeper than `--depth` shows.
    pub deeper_modules: usize,
    /// The modules, each after the one that called it first.
    pub modules: Vec<ModuleAnswer>,
    /// Repairs of the trace, with their number.
    pub repairs: RepairCounts,
}

/// A module's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ModuleAnswer {
    /// The module's path in the model where the trace contains it, else its type and a number.
    pub module: String,
    /// Its type.
    pub class: String,
    /// The module that called it first.
    pub called_by: Option<String>,
    /// The number of modules around this one.
    pub depth: u32,
    /// Bytes of its own parameters.
    pub own_parameter_bytes: u64,
    /// Bytes of its parameters and those of all modules that it calls.
    pub parameter_bytes: u64,
    /// Bytes of its buffers and those of all modules that it calls.
    pub buffer_bytes: u64,
    /// Its calls, in order of time.
    pub calls: Vec<CallAnswer>,
}

/// A module's call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CallAnswer {
    /// Whether the module was called in the backward pass, to compute activations again.
    pub recomputed: bool,
    /// Bytes that its operators read and that existed before, without parameters and the like.
    pub input_bytes: u64,
    /// Bytes that its operators made or wrote and that later operators use.
    pub output_bytes: u64,
    /// The forward pass.
    pub forward: SpanAnswer,
    /// The backward pass; null where the trace does not show it.
    pub backward: Option<SpanAnswer>,
}

/// An interval of time. Times are counted from the trace's first record.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SpanAnswer {
    /// The time of its begin.
    pub begin_ns: u64,
    /// The time of its end.
    pub end_ns: u64,
    /// The time at which the most bytes were allocated.
    pub peak_ns: u64,
    /// The allocated memory right before it.
    pub before: AllocatedAnswer,
    /// The allocated memory at that time.
    pub peak: AllocatedAnswer,
    /// The allocated memory at its end.
    pub after: AllocatedAnswer,
}

/// Allocated memory of the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AllocatedAnswer {
    /// The sum of all categories.
    pub allocated_bytes: i64,
    /// The error of the sum where small blocks were sampled; null: the sum is exact.
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
            device: DeviceAnswer::from_trace_name(&self.device),
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
