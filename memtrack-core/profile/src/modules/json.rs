//! The module report as JSON.

use super::{ModuleCall, ModuleMemory, ModuleReport, Span, total};
use crate::answer::{ByCategory, RepairCounts, by_category, repair_counts};
use crate::series::Bytes;
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer};
use memtrack_report::analysis::estimate::Estimate;
use serde::Serialize;
use serde_json::Value;

/// The memory of a device, by module.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ModulesAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// Whether the sums are estimates because small blocks were sampled.
    pub estimated: bool,
    /// The number of modules that are nested too deep for `--depth` to show.
    pub deeper_modules: usize,
    /// The modules, each after its first caller.
    pub modules: Vec<ModuleAnswer>,
    /// The number of repairs of the trace, by kind.
    pub repairs: RepairCounts,
}

/// A module, with its memory and its calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ModuleAnswer {
    /// The module's path in the model if the trace contains it; otherwise its type and a number.
    pub module: String,
    /// The module's type.
    pub class: String,
    /// The module that made the first call.
    pub called_by: Option<String>,
    /// The nesting depth: the number of enclosing modules.
    pub depth: u32,
    /// Bytes of the module's own parameters.
    pub own_parameter_bytes: u64,
    /// Bytes of the parameters of this module and all modules inside it.
    pub parameter_bytes: u64,
    /// Bytes of the buffers of this module and all modules inside it.
    pub buffer_bytes: u64,
    /// The calls, in chronological order.
    pub calls: Vec<CallAnswer>,
}

/// A call of a module.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CallAnswer {
    /// Whether the backward pass made this call, to recompute activations.
    pub recomputed: bool,
    /// Bytes that existed before the call and that its operators read, excluding parameters, buffers,
    /// gradients and optimizer memory.
    pub input_bytes: u64,
    /// Bytes that operators in the call allocated or wrote and that later operators use.
    pub output_bytes: u64,
    /// The forward pass.
    pub forward: SpanAnswer,
    /// The backward pass; null if the trace does not contain it.
    pub backward: Option<SpanAnswer>,
}

/// A time interval. Times are counted from the trace's first record.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SpanAnswer {
    /// The start of the interval.
    pub begin_ns: u64,
    /// The end of the interval.
    pub end_ns: u64,
    /// The time of the peak.
    pub peak_ns: u64,
    /// The allocated memory right before the start.
    pub before: AllocatedAnswer,
    /// The allocated memory at the peak.
    pub peak: AllocatedAnswer,
    /// The allocated memory at the end.
    pub after: AllocatedAnswer,
}

/// The allocated memory of the device at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AllocatedAnswer {
    /// The sum of all categories.
    pub allocated_bytes: i64,
    /// The error of the sum if small blocks were sampled; null if the sum is exact.
    pub allocated_bytes_error: Option<ErrorAnswer>,
    /// The allocated bytes by category.
    pub category_bytes: ByCategory,
}

impl ModuleReport {
    /// Returns the report as `memtrack modules --json` prints it. Modules that are nested `depth` levels deep
    /// or deeper are omitted; `deeper_modules` counts them.
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

    /// Returns the result of [`Self::answer`] as JSON.
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
            calls: module.calls.iter().map(call_answer).collect(),
        }
    }
}

fn call_answer(call: &ModuleCall) -> CallAnswer {
    CallAnswer {
        recomputed: call.is_recomputed,
        input_bytes: call.input_bytes,
        output_bytes: call.output_bytes,
        forward: span_answer(&call.forward),
        backward: call.backward.as_ref().map(span_answer),
    }
}

fn span_answer(span: &Span) -> SpanAnswer {
    SpanAnswer {
        begin_ns: span.begin_ns,
        end_ns: span.end_ns,
        peak_ns: span.peak_ns,
        before: allocated_answer(&span.before, &span.errors[0]),
        peak: allocated_answer(&span.peak, &span.errors[1]),
        after: allocated_answer(&span.after, &span.errors[2]),
    }
}

fn allocated_answer(bytes: &Bytes, error: &Estimate) -> AllocatedAnswer {
    AllocatedAnswer {
        allocated_bytes: total(bytes),
        allocated_bytes_error: error.answer(),
        category_bytes: by_category(bytes),
    }
}
