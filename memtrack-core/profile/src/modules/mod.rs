//! Computes memory per module: the bytes that are allocated on a device before each module's forward and
//! backward pass, at their peak, and after them, by category. This is the equivalent of PyTorch's MemTracker,
//! but computed from an operator trace.

pub(crate) mod calls;
mod json;
mod natural;
mod text;
mod traffic;

use crate::analysis::{Action, Profile};
use crate::category::Category;
use crate::curve::{Curve, State};
use crate::places::{ModuleId, Places};
use crate::repairs::Repairs;
use crate::series::{Bytes, walk};
use calls::{Calls, MAX_DEPTH};
use foldhash::fast::RandomState;
use memtrack_blocks::estimate::{Estimate, Sum};
use memtrack_model::optrace::{DeviceIndex, RecordKind};
use natural::compare_naturally;
use std::collections::HashSet;
use traffic::Traffic;

pub use json::{AllocatedAnswer, CallAnswer, ModuleAnswer, ModulesAnswer, SpanAnswer};
pub use text::DEPTH;

/// A device's memory by module.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModuleReport {
    /// The device's name in the trace.
    pub device: String,
    /// The modules, each listed after the module that called it first. Modules with the same caller are in
    /// the natural order of their paths (`layers.2` before `layers.10`) or, if the trace has no paths, in the
    /// order of their first calls.
    pub modules: Vec<ModuleMemory>,
    /// Whether the numbers are estimates because small blocks were sampled.
    pub is_estimate: bool,
    /// The repairs made to the trace.
    pub repairs: Repairs,
}

/// A module with its memory and its calls.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ModuleMemory {
    /// The module's path in the model if the trace contains it, otherwise its type and a number.
    pub name: String,
    /// The module's type.
    pub class: String,
    /// The module that called this one first, as an index into [`ModuleReport::modules`].
    pub parent: Option<usize>,
    /// The nesting depth, i.e. the number of enclosing modules.
    pub depth: u32,
    /// The size of the module's own parameters on the device.
    pub own_parameter_bytes: u64,
    /// The size on the device of the parameters of this module and all modules inside it, each counted once.
    pub parameter_bytes: u64,
    /// The size on the device of the buffers of this module and all modules inside it, each counted once.
    pub buffer_bytes: u64,
    /// The calls in chronological order.
    pub calls: Vec<ModuleCall>,
}

/// A call to a module.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModuleCall {
    /// Whether the backward pass made this call in order to recompute activations that were not kept.
    pub is_recomputed: bool,
    /// The size of the memory on the device that existed before the call and that the call's operators read.
    /// Parameters, buffers, gradients and optimizer memory are excluded. Always 0 for recomputations.
    pub input_bytes: u64,
    /// The size of the memory on the device that the call's operators allocated or wrote and that later
    /// operators of the forward pass use. Always 0 for recomputations.
    pub output_bytes: u64,
    /// The call itself, from start to end.
    pub forward: Span,
    /// The backward pass of this call. It lasts from the start of the first autograd node that belongs to the
    /// call or to a call inside it until the end of the last such node. `None` if the trace has no such
    /// nodes.
    pub backward: Option<Span>,
}

/// A time interval and the memory before it, at its peak and after it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Span {
    /// The start, in ns since the trace's first record.
    pub begin_ns: u64,
    /// The end, in ns since the trace's first record.
    pub end_ns: u64,
    /// The bytes allocated right before the start, by category.
    pub before: Bytes,
    /// The bytes allocated at the peak, by category. The peak is the maximum from right before the start to
    /// the end.
    pub peak: Bytes,
    /// The time of the peak, in ns since the trace's first record.
    pub peak_ns: u64,
    /// The bytes allocated at the end, by category.
    pub after: Bytes,
    /// The errors of the sums over `before`, `peak` and `after`, if small blocks were sampled.
    pub errors: [Estimate; 3],
}

/// Returns the sum over all categories.
pub(crate) fn total_bytes(bytes: &Bytes) -> i64 {
    bytes.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes))
}

impl Span {
    /// Returns the bytes allocated at the peak.
    pub fn peak_bytes(&self) -> u64 {
        u64::try_from(total_bytes(&self.peak)).unwrap_or(0)
    }

    /// Returns the error of [`Self::left_bytes`].
    pub fn left_error(&self) -> Estimate {
        let [before, _, after] = self.errors;
        if before.is_exact() && after.is_exact() {
            return Estimate::exact(self.left_bytes() as f64);
        }
        after.minus(&before)
    }

    /// Returns the bytes allocated at the end minus the bytes allocated before the start. The result is
    /// negative if more was freed than allocated.
    pub fn left_bytes(&self) -> i64 {
        total_bytes(&self.after).saturating_sub(total_bytes(&self.before))
    }
}

impl ModuleMemory {
    /// Returns the span with the highest peak among the module's calls, or the first such span if several are
    /// equal.
    fn highest_span(&self, span_of: impl Fn(&ModuleCall) -> Option<Span>) -> Option<Span> {
        let spans = self.calls.iter().filter_map(span_of);
        spans.reduce(|highest, span| if span.peak_bytes() > highest.peak_bytes() { span } else { highest })
    }
}

impl ModuleReport {
    /// Creates the report for one device. `repairs` is passed through to the report.
    pub fn of(profile: &Profile<'_>, device: DeviceIndex, repairs: Repairs) -> Self {
        let places = Places::of(profile.trace());
        let calls = Calls::of(profile, &places);
        let curve = Curve::of(profile, device);
        let traffic = Traffic::of(profile, device, &places, &calls);
        let spans = call_spans(profile, device, &curve, &calls);
        let own = sum_module_bytes(profile, device, &places);
        let (order, index_of) = list_in_tree_order(&places);
        let mut modules: Vec<ModuleMemory> = order
            .iter()
            .map(|&id| {
                let node = &places.modules[id as usize];
                ModuleMemory {
                    name: node.name.clone(),
                    parent: node.parent.map(|parent| index_of[parent as usize]),
                    depth: node.depth,
                    own_parameter_bytes: own.parameters[id as usize],
                    parameter_bytes: own.with_inner_parameters[id as usize],
                    buffer_bytes: own.with_inner_buffers[id as usize],
                    ..ModuleMemory::default()
                }
            })
            .collect();
        for (number, (call, (forward, backward))) in calls.all().iter().zip(spans).enumerate() {
            let module = &mut modules[index_of[call.module as usize]];
            if let RecordKind::Module(record) = &profile.trace().records[call.record as usize].what {
                module.class = profile.trace().strings.get(record.class).into_owned();
            }
            module.calls.push(ModuleCall {
                is_recomputed: call.is_recomputed,
                input_bytes: traffic.input_bytes[number],
                output_bytes: traffic.output_bytes[number],
                forward,
                backward,
            });
        }
        let is_estimate = profile.attribution().is_some_and(|attribution| attribution.is_estimate(device));
        Self { device: profile.device_name(device).to_owned(), modules, is_estimate, repairs }
    }
}

/// Returns the forward and backward spans of each call.
fn call_spans(
    profile: &Profile<'_>,
    device: DeviceIndex,
    curve: &Curve,
    calls: &Calls,
) -> Vec<(Span, Option<Span>)> {
    let first_ns = profile.trace().records.first().map_or(0, |record| record.time_ns);
    let since = |time_ns: i64| u64::try_from(time_ns.saturating_sub(first_ns)).unwrap_or(0);
    // The spans, and three states for each span: before it, at its peak and after it. Each state comes with three times the
    // span's index, plus 0, 1 or 2.
    let mut spans: Vec<Span> = Vec::new();
    let mut requested_states: Vec<(State, usize)> = Vec::new();
    let mut span = |begin_ns: i64, end_ns: i64| {
        let (before, after) = (curve.state_before(begin_ns), curve.state_after(end_ns));
        let (peak, _) = curve.find_highest(before, after);
        let number = 3 * spans.len();
        requested_states.extend([(before, number), (peak, number + 1), (after, number + 2)]);
        // If the peak was reached before the span, the start of the span counts as the time of the peak.
        let peak_ns = curve.begin_ns(peak).unwrap_or(begin_ns).max(begin_ns);
        spans.push(Span {
            begin_ns: since(begin_ns),
            end_ns: since(end_ns),
            peak_ns: since(peak_ns),
            ..Span::default()
        });
        spans.len() - 1
    };
    let places: Vec<(usize, Option<usize>)> = calls
        .all()
        .iter()
        .map(|call| {
            let forward = span(call.begin_ns, call.end_ns);
            (forward, call.backward_ns.map(|(begin_ns, end_ns)| span(begin_ns, end_ns)))
        })
        .collect();
    requested_states.sort_unstable();
    let errors = state_errors(profile, device);
    let mut requested_states = requested_states.into_iter().peekable();
    let mut fill = |state: State, bytes: &Bytes| {
        while let Some((_, number)) = requested_states.next_if(|&(of, _)| of == state) {
            let span = &mut spans[number / 3];
            *[&mut span.before, &mut span.peak, &mut span.after][number % 3] = *bytes;
            span.errors[number % 3] =
                errors.get(state).copied().unwrap_or_else(|| Estimate::exact(total_bytes(bytes) as f64));
        }
    };
    fill(0, &Bytes::default());
    let mut state = 0;
    walk(profile, device, |moment| {
        state += 1;
        fill(state, &moment.bytes);
    });
    places
        .into_iter()
        .map(|(forward, backward)| (spans[forward], backward.map(|place| spans[place])))
        .collect()
}

/// Returns the error of the total in each state of the device's [`Curve`], or an empty vector if the totals
/// are exact.
fn state_errors(profile: &Profile<'_>, device: DeviceIndex) -> Vec<Estimate> {
    let Some(attribution) = profile.attribution().filter(|of| of.is_estimate(device)) else {
        return Vec::new();
    };
    let mut sum = Sum::default();
    let mut errors = vec![attribution.bytes(device, &sum)];
    let mut changes = profile.changes().iter().filter(|change| change.device == device).peekable();
    walk(profile, device, |moment| {
        while let Some(change) = changes.next_if(|change| change.time_ns <= moment.time_ns) {
            let sample = change.allocated_by.or(change.record).and_then(|record| attribution.sample(record));
            let (size_bytes, weight) =
                sample.map_or((change.bytes, 1.0), |sample| (sample.size_bytes, sample.blocks));
            match change.action {
                Action::Preexisting | Action::Create => sum.add(size_bytes as f64, weight),
                Action::Destroy => sum.remove(size_bytes as f64, weight),
                Action::IncrementVersion => {}
            }
        }
        errors.push(attribution.bytes(device, &sum));
    });
    errors
}

/// The bytes of each module's parameters and buffers.
struct ModuleBytes {
    parameters: Vec<u64>,
    with_inner_parameters: Vec<u64>,
    with_inner_buffers: Vec<u64>,
}

fn sum_module_bytes(profile: &Profile<'_>, device: DeviceIndex, places: &Places) -> ModuleBytes {
    let none = || vec![0_u64; places.modules.len()];
    let mut own =
        ModuleBytes { parameters: none(), with_inner_parameters: none(), with_inner_buffers: none() };
    // The storages already counted for each module, because modules can share parameters.
    let mut counted: HashSet<(ModuleId, u32), RandomState> = HashSet::default();
    for (number, record) in (0..).zip(&profile.trace().records) {
        let (RecordKind::Module(module), Some(id)) = (&record.what, places.called_module(number)) else {
            continue;
        };
        let mut references = profile.references(number).into_iter().map(|(_, storage)| storage);
        // The references list the parameters, each followed by its gradient if it has one, and then the
        // buffers.
        let mut registered: Vec<(Option<u32>, bool)> = Vec::new();
        for param in &module.params {
            registered.push((references.next().flatten(), true));
            if param.grad.is_some() {
                references.next();
            }
        }
        registered.extend(references.map(|buffer| (buffer, false)));
        for (storage, is_parameter) in registered {
            let Some((place, storage)) =
                storage.and_then(|place| Some((place, profile.storages()[place as usize]?)))
            else {
                continue;
            };
            let bytes = storage.bytes.filter(|_| storage.device == device).unwrap_or(0);
            let ancestors =
                std::iter::successors(Some(id), |&of| places.modules[of as usize].parent).take(MAX_DEPTH);
            for of in ancestors {
                if counted.insert((of, place)) {
                    let sums = if is_parameter {
                        &mut own.with_inner_parameters
                    } else {
                        &mut own.with_inner_buffers
                    };
                    sums[of as usize] = sums[of as usize].saturating_add(bytes);
                    if is_parameter && of == id {
                        own.parameters[of as usize] = own.parameters[of as usize].saturating_add(bytes);
                    }
                }
            }
        }
    }
    own
}

/// Returns the modules in the order in which the report lists them, and each module's index in that order.
fn list_in_tree_order(places: &Places) -> (Vec<ModuleId>, Vec<usize>) {
    let count = places.modules.len();
    let mut children: Vec<Vec<ModuleId>> = vec![Vec::new(); count + 1];
    for (id, node) in (0..).zip(&places.modules) {
        children[node.parent.map_or(count, |parent| parent as usize)].push(id);
    }
    let name = |id: &ModuleId| &*places.modules[*id as usize].name;
    for siblings in &mut children {
        if siblings.iter().all(|&id| places.modules[id as usize].is_path) {
            siblings.sort_by(|a, b| compare_naturally(name(a), name(b)));
        }
    }
    let (mut order, mut index_of) = (Vec::with_capacity(count), vec![0; count]);
    let mut left: Vec<ModuleId> = children[count].iter().rev().copied().collect();
    while let Some(id) = left.pop() {
        index_of[id as usize] = order.len();
        order.push(id);
        left.extend(children[id as usize].iter().rev());
    }
    (order, index_of)
}

/// Returns the categories that contain any bytes, largest first.
fn categories_largest_first(bytes: &Bytes) -> Vec<(Category, u64)> {
    let mut categories: Vec<(Category, u64)> = Category::ALL
        .into_iter()
        .zip(bytes)
        .filter_map(|(category, &bytes)| {
            Some((category, u64::try_from(bytes).ok().filter(|&bytes| bytes > 0)?))
        })
        .collect();
    categories.sort_by_key(|&(category, bytes)| (std::cmp::Reverse(bytes), category));
    categories
}
