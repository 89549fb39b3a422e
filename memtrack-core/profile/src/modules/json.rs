//! The module report as JSON.

use super::{ModuleCall, ModuleMemory, ModuleReport, Span, total_bytes};
use crate::answer::{ByCategory, RepairCounts, bytes_by_category, count_repairs};
use crate::series::Bytes;
use memtrack_blocks::estimate::Estimate;
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer};
use serde::Serialize;
use serde_json::Value;

/// A device's memory by module.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ModulesAnswer {
    /// The device whose memory is reported.
    pub device: DeviceAnswer,
    /// Whether the byte counts are estimates because small blocks were sampled.
    pub estimated: bool,
    /// The number of modules that are nested too deep for `--depth` to show.
    pub deeper_modules: usize,
    /// The modules, each listed after the module that called it first.
    pub modules: Vec<ModuleAnswer>,
    /// The number of repairs made to the trace, by kind. Kinds without repairs are left out.
    pub repairs: RepairCounts,
}

/// A module with its memory and its calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ModuleAnswer {
    /// The module's path in the model if the trace contains it, otherwise its type and a number.
    pub module: String,
    /// The module's type.
    pub class: String,
    /// The module that made the first call to this one, or null if no module called it.
    pub called_by: Option<String>,
    /// The nesting depth, i.e. the number of enclosing modules.
    pub depth: u32,
    /// The size of the module's own parameters on the device.
    pub own_parameter_bytes: u64,
    /// The size on the device of the parameters of this module and all modules inside it.
    pub parameter_bytes: u64,
    /// The size on the device of the buffers of this module and all modules inside it.
    pub buffer_bytes: u64,
    /// The calls to the module in chronological order.
    pub calls: Vec<CallAnswer>,
}

/// A call to a module.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CallAnswer {
    /// Whether the backward pass made this call in order to recompute activations.
    pub recomputed: bool,
    /// The size of the memory that existed before the call and that the call's operators read. Parameters,
    /// buffers, gradients and optimizer memory are excluded. Always 0 for recomputations.
    pub input_bytes: u64,
    /// The size of the memory that the call's operators allocated or wrote and that later operators of the
    /// forward pass use. Always 0 for recomputations.
    pub output_bytes: u64,
    /// The device's memory during the call itself, from its start to its end.
    pub forward: SpanAnswer,
    /// The device's memory during the backward pass of this call, or null if the trace does not contain that
    /// pass.
    pub backward: Option<SpanAnswer>,
}

/// The device's memory during a time interval. Times are in nanoseconds since the trace's first record.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SpanAnswer {
    /// The start of the interval.
    pub begin_ns: u64,
    /// The end of the interval.
    pub end_ns: u64,
    /// The time at which the most memory was allocated, between right before the start and the end of the
    /// interval.
    pub peak_ns: u64,
    /// The memory allocated right before the start of the interval.
    pub before: AllocatedAnswer,
    /// The memory allocated at the interval's peak.
    pub peak: AllocatedAnswer,
    /// The memory allocated at the end of the interval.
    pub after: AllocatedAnswer,
}

/// The device's allocated memory at a single point in time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AllocatedAnswer {
    /// The total allocated bytes of all categories.
    pub allocated_bytes: i64,
    /// The margin of error of the total, or null if the total is exact. The total is inexact if small blocks
    /// were sampled.
    pub allocated_bytes_error: Option<ErrorAnswer>,
    /// The allocated bytes by category. Empty categories are left out.
    pub category_bytes: ByCategory,
}

impl ModuleReport {
    /// Returns the report in the form printed by `memtrack modules --json`. Modules nested `depth` or more
    /// levels deep are omitted, but `deeper_modules` counts them.
    pub fn answer(&self, depth: u32) -> ModulesAnswer {
        let shown = self.modules.iter().filter(|module| module.depth < depth);
        let modules: Vec<ModuleAnswer> = shown.map(|module| self.module_to_answer(module)).collect();
        ModulesAnswer {
            device: DeviceAnswer::from_trace_name(&self.device),
            estimated: self.is_estimate,
            deeper_modules: self.modules.len() - modules.len(),
            modules,
            repairs: count_repairs(&self.repairs),
        }
    }

    /// Returns the result of [`Self::answer`] as JSON.
    pub fn to_json(&self, depth: u32) -> Value {
        serde_json::to_value(self.answer(depth)).unwrap_or_default()
    }

    fn module_to_answer(&self, module: &ModuleMemory) -> ModuleAnswer {
        ModuleAnswer {
            module: module.name.clone(),
            class: module.class.clone(),
            called_by: module.parent.map(|parent| self.modules[parent].name.clone()),
            depth: module.depth,
            own_parameter_bytes: module.own_parameter_bytes,
            parameter_bytes: module.parameter_bytes,
            buffer_bytes: module.buffer_bytes,
            calls: module.calls.iter().map(call_to_answer).collect(),
        }
    }
}

fn call_to_answer(call: &ModuleCall) -> CallAnswer {
    CallAnswer {
        recomputed: call.is_recomputed,
        input_bytes: call.input_bytes,
        output_bytes: call.output_bytes,
        forward: span_to_answer(&call.forward),
        backward: call.backward.as_ref().map(span_to_answer),
    }
}

fn span_to_answer(span: &Span) -> SpanAnswer {
    SpanAnswer {
        begin_ns: span.begin_ns,
        end_ns: span.end_ns,
        peak_ns: span.peak_ns,
        before: allocated_to_answer(&span.before, &span.errors[0]),
        peak: allocated_to_answer(&span.peak, &span.errors[1]),
        after: allocated_to_answer(&span.after, &span.errors[2]),
    }
}

fn allocated_to_answer(bytes: &Bytes, error: &Estimate) -> AllocatedAnswer {
    AllocatedAnswer {
        allocated_bytes: total_bytes(bytes),
        allocated_bytes_error: error.answer(),
        category_bytes: bytes_by_category(bytes),
    }
}
