//! Module calls and their times in the forward and backward passes.

use crate::analysis::Profile;
use crate::places::{ModuleId, Places, StepPart};
use foldhash::HashMap;
use memtrack_model::Phase;
use memtrack_model::optrace::{Op, OpKind, OperatorTrace, RecordId, RecordKind, TracePhase};

/// The index of a call in [`Calls::all`].
pub(crate) type CallId = u32;

/// A call to a module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) record: RecordId,
    pub(crate) module: ModuleId,
    /// The enclosing call.
    pub(crate) parent: Option<CallId>,
    pub(crate) begin_ns: i64,
    pub(crate) end_ns: i64,
    /// Whether the backward pass made this call in order to recompute activations.
    pub(crate) is_recomputed: bool,
    /// The start and end, in ns, of the part of the backward pass that belongs to this call.
    pub(crate) backward_ns: Option<(i64, i64)>,
}

/// The maximum number of enclosing modules that a call is counted toward.
pub(crate) const MAX_DEPTH: usize = 64;

/// All module calls in a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    calls: Vec<Call>,
    /// For each record, the innermost enclosing call. Autograd nodes and the records inside them are assigned
    /// to the call whose backward pass they belong to.
    by_record: Vec<Option<CallId>>,
    /// For each record, whether it is inside an autograd node but not inside a call made by that node.
    is_in_backward_node: Vec<bool>,
}

impl Calls {
    pub(crate) fn of(profile: &Profile<'_>, places: &Places) -> Self {
        let trace = profile.trace();
        let ends = record_end_times(trace);
        let mut calls = Self::default();
        let mut by_sequence: HashMap<i64, CallId> = HashMap::default();
        // The call whose backward pass allocated the memory, by address and device.
        let mut allocating_calls: HashMap<(u64, u16), CallId> = HashMap::default();
        for (number, record) in (0..).zip(&trace.records) {
            let mut call = record.parent.and_then(|parent| calls.by_record[parent as usize]);
            let mut is_in_backward_node =
                record.parent.is_some_and(|parent| calls.is_in_backward_node[parent as usize]);
            let part = places.get(number).part;
            match &record.what {
                RecordKind::Module(_) => {
                    let id = calls.calls.len() as CallId;
                    calls.calls.push(Call {
                        record: number,
                        module: places.called_module(number).unwrap_or_default(),
                        // In an autograd node, `call` is the call whose backward pass the node belongs to. It does not
                        // enclose the calls that the node makes to recompute activations.
                        parent: call.filter(|_| !is_in_backward_node),
                        begin_ns: record.time_ns,
                        end_ns: ends[number as usize],
                        is_recomputed: part == StepPart::Backward,
                        backward_ns: None,
                    });
                    call = Some(id);
                    is_in_backward_node = false;
                }
                RecordKind::Op(op) if is_backward(op, record.phase) => {
                    is_in_backward_node = true;
                    let found = op.sequence.and_then(|sequence| by_sequence.get(&sequence).copied());
                    let found = found.or_else(|| find_accumulating_call(trace, number, &allocating_calls));
                    if let Some(found) = found {
                        calls.extend_backward(found, record.time_ns, ends[number as usize]);
                        call = Some(found);
                    }
                }
                RecordKind::Op(Op { kind: OpKind::Op, sequence: Some(sequence), .. })
                    if !is_in_backward_node =>
                {
                    // An autograd node belongs to the last operator with the same sequence number, so later operators
                    // replace earlier ones.
                    match call {
                        Some(call) => by_sequence.insert(*sequence, call),
                        None => by_sequence.remove(sequence),
                    };
                }
                RecordKind::Memory(memory) if !memory.is_free => {
                    let key = (memory.address, memory.device.0);
                    match call.filter(|_| is_in_backward_node) {
                        Some(call) => allocating_calls.insert(key, call),
                        None => allocating_calls.remove(&key),
                    };
                }
                _ => {}
            }
            calls.by_record.push(call);
            calls.is_in_backward_node.push(is_in_backward_node);
        }
        calls
    }

    pub(crate) fn all(&self) -> &[Call] {
        &self.calls
    }

    /// Returns the innermost call that encloses a record, or the call whose backward pass contains the
    /// record.
    pub(crate) fn enclosing(&self, record: RecordId) -> Option<CallId> {
        self.by_record.get(record as usize).copied().flatten()
    }

    /// Returns a call followed by its enclosing calls, from the inside out.
    pub(crate) fn ancestors(&self, call: Option<CallId>) -> impl Iterator<Item = CallId> + '_ {
        std::iter::successors(call, |&call| self.calls[call as usize].parent).take(MAX_DEPTH)
    }

    fn extend_backward(&mut self, call: CallId, begin_ns: i64, end_ns: i64) {
        let mut next = Some(call);
        for _ in 0..MAX_DEPTH {
            let Some(call) = next else { return };
            let call = &mut self.calls[call as usize];
            let (first, last) = call.backward_ns.unwrap_or((begin_ns, end_ns));
            call.backward_ns = Some((first.min(begin_ns), last.max(end_ns)));
            next = call.parent;
        }
    }
}

fn is_backward(op: &Op, phase: TracePhase) -> bool {
    op.kind == OpKind::Backward || phase == TracePhase::Of(Phase::Backward)
}

/// Returns the call whose backward pass computed the gradient that an AccumulateGrad node adds to a
/// parameter. The gradient is the first argument either of this record or of the record directly inside it.
fn find_accumulating_call(
    trace: &OperatorTrace,
    number: RecordId,
    allocating_calls: &HashMap<(u64, u16), CallId>,
) -> Option<CallId> {
    let argument = |number: RecordId| {
        let RecordKind::Op(op) = &trace.records.get(number as usize)?.what else { return None };
        let is_accumulation = trace.strings.bytes(op.name).ends_with(b"AccumulateGrad");
        let tensor = &trace.tensors[*op.args.first()?.tensors().first()? as usize];
        Some((tensor.storage?, tensor.device.0)).filter(|_| is_accumulation)
    };
    // The autograd engine's record comes first, and the node's own record is inside it.
    let inner = number + 1;
    let is_inside = trace.records.get(inner as usize).is_some_and(|record| record.parent == Some(number));
    let key = argument(number).or_else(|| argument(inner).filter(|_| is_inside))?;
    allocating_calls.get(&key).copied()
}

/// Returns the end time of each record, in ns. A record without an end in the trace ends with the last record
/// inside it.
pub(crate) fn record_end_times(trace: &OperatorTrace) -> Vec<i64> {
    let mut ends: Vec<i64> = trace
        .records
        .iter()
        .map(|record| record.end_ns.unwrap_or(record.time_ns).max(record.time_ns))
        .collect();
    for number in (0..trace.records.len()).rev() {
        if let Some(parent) = trace.records[number].parent
            && trace.records[parent as usize].end_ns.is_none()
        {
            ends[parent as usize] = ends[parent as usize].max(ends[number]);
        }
    }
    ends
}
