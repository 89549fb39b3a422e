//! Computes the inputs and outputs of each module call.

use super::calls::{CallId, Calls};
use crate::analysis::{Profile, Role};
use crate::category::Category;
use crate::places::{Places, StepPart};
use foldhash::{HashMap, HashSet};
use memtrack_model::optrace::{DeviceIndex, RecordKind};

/// The number of input and output bytes of each call.
pub(super) struct Traffic {
    pub(super) input_bytes: Vec<u64>,
    pub(super) output_bytes: Vec<u64>,
}

impl Traffic {
    /// Computes the inputs and outputs. If an operator of the forward pass refers to a storage, the storage
    /// is an input of each enclosing call that has not yet allocated or written it, and an output of each
    /// call that allocated or wrote it and has already ended.
    pub(super) fn of(profile: &Profile<'_>, device: DeviceIndex, places: &Places, calls: &Calls) -> Self {
        let trace = profile.trace();
        let none = || vec![0_u64; calls.all().len()];
        let mut traffic = Self { input_bytes: none(), output_bytes: none() };
        // For each storage, the innermost calls that allocated it or wrote to it.
        let mut makers: HashMap<u32, Vec<CallId>> = HashMap::default();
        for change in profile.changes_on(device) {
            if let (Some(storage), Some(call)) =
                (change.storage, change.allocated_by.and_then(|record| calls.enclosing(record)))
            {
                makers.entry(storage).or_insert_with(|| vec![call]);
            }
        }
        let mut counted_inputs: HashSet<(CallId, u32)> = HashSet::default();
        let mut counted_outputs: HashSet<(CallId, u32)> = HashSet::default();
        for (number, record) in (0..).zip(&trace.records) {
            if !matches!(record.what, RecordKind::Op(_)) {
                continue;
            }
            let around = calls.enclosing(number);
            let is_forward = matches!(places.get(number).part, StepPart::Forward | StepPart::Other);
            for (role, storage) in profile.references(number) {
                let Some(key) = storage else { continue };
                let Some(storage) = profile.storages()[key as usize] else { continue };
                if storage.device != device || !is_passed_by_caller(profile.category(key, 0)) || !is_forward {
                    continue;
                }
                let bytes = storage.bytes.unwrap_or(0);
                let made = makers.get(&key).map_or(&[][..], |calls| calls);
                let is_made_in = |call: CallId| {
                    made.iter().any(|&maker| calls.ancestors(Some(maker)).any(|outer| outer == call))
                };
                for call in calls.ancestors(around) {
                    if !is_made_in(call) && counted_inputs.insert((call, key)) {
                        let sum = &mut traffic.input_bytes[call as usize];
                        *sum = sum.saturating_add(bytes);
                    }
                }
                for &maker in made {
                    for call in calls.ancestors(Some(maker)) {
                        let has_ended = calls.all()[call as usize].end_ns <= record.time_ns;
                        if has_ended
                            && !calls.ancestors(around).any(|outer| outer == call)
                            && counted_outputs.insert((call, key))
                        {
                            let sum = &mut traffic.output_bytes[call as usize];
                            *sum = sum.saturating_add(bytes);
                        }
                    }
                }
                if let Some(call) = around.filter(|_| role == Role::Argument(Some(true))) {
                    let made = makers.entry(key).or_default();
                    if !made.contains(&call) {
                        made.push(call);
                    }
                }
            }
        }
        traffic
    }
}

/// Returns whether memory of this category is passed to a module by its caller, as opposed to being held by
/// the module.
fn is_passed_by_caller(category: Option<Category>) -> bool {
    use Category::{Buffer, Gradient, OptimizerState, OptimizerTemporary, Parameter};
    !matches!(category, Some(Parameter | Buffer | Gradient | OptimizerState | OptimizerTemporary))
}
