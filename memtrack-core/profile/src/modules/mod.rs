//! Computes memory per module: the bytes that are allocated on a device before each module's forward and
//! backward pass, at their peak, and after them, by category. This is the equivalent of PyTorch's MemTracker,
//! but computed from an operator trace.

pub(crate) mod calls;
mod natural;
mod text;
mod traffic;

use crate::analysis::{Action, Profile, Role};
use crate::curve::{Curve, State};
use crate::places::{ModuleId, Places};
use crate::repairs::Repairs;
use crate::series::{Bytes, Moment, serialize_bytes, walk};
use calls::{Calls, MAX_DEPTH};
use foldhash::HashSet;
use memtrack_blocks::estimate::{Estimate, Sum};
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::optrace::{DeviceIndex, RecordKind};
use natural::compare_naturally;
use serde::Serialize;
use traffic::Traffic;

pub use text::DEPTH;

/// A device's memory by module.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ModuleReport {
    /// The device whose memory is reported.
    pub device: DeviceAnswer,
    /// Whether the byte counts are estimates because small blocks were sampled.
    #[serde(rename = "estimated")]
    pub is_estimate: bool,
    /// The number of modules that are nested too deep for `--depth` to show.
    pub deeper_modules: usize,
    /// The modules, each listed after the module that called it first. Modules with the same caller are in
    /// the natural order of their paths (`layers.2` before `layers.10`) or, if the trace has no paths, in the
    /// order of their first calls.
    pub modules: Vec<ModuleMemory>,
    /// The number of repairs made to the trace, by kind. Kinds without repairs are left out.
    pub repairs: Repairs,
}

/// A module with its memory and its calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ModuleMemory {
    /// The module's path in the model if the trace contains it, otherwise its type and a number.
    #[serde(rename = "module")]
    pub name: String,
    /// The module's type.
    pub class: String,
    /// The module that made the first call to this one, or null if no module called it.
    pub called_by: Option<String>,
    /// The nesting depth, i.e. the number of enclosing modules.
    pub depth: u32,
    /// The size of the module's own parameters on the device.
    pub own_parameter_bytes: u64,
    /// The size on the device of the parameters of this module and all modules inside it, each counted once.
    pub parameter_bytes: u64,
    /// The size on the device of the buffers of this module and all modules inside it, each counted once.
    pub buffer_bytes: u64,
    /// The calls to the module in chronological order.
    pub calls: Vec<ModuleCall>,
}

/// A call to a module.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ModuleCall {
    /// Whether the backward pass made this call in order to recompute activations that were not kept.
    #[serde(rename = "recomputed")]
    pub is_recomputed: bool,
    /// The size of the memory that existed before the call and that the call's operators read. Parameters,
    /// buffers, gradients and optimizer memory are excluded. Always 0 for recomputations.
    pub input_bytes: u64,
    /// The size of the memory that the call's operators allocated or wrote and that later operators of the
    /// forward pass use. Always 0 for recomputations.
    pub output_bytes: u64,
    /// The device's memory during the call itself, from its start to its end.
    pub forward: Span,
    /// The device's memory during the backward pass of this call. It lasts from the start of the first autograd node that
    /// belongs to the call or to a call inside it until the end of the last such node. Null if the trace has no such nodes.
    pub backward: Option<Span>,
}

/// The device's memory during a time interval. Times are in nanoseconds since the trace's first record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Span {
    /// The start of the interval.
    pub begin_ns: u64,
    /// The end of the interval.
    pub end_ns: u64,
    /// The time at which the most memory was allocated, between right before the start and the end of the
    /// interval.
    pub peak_ns: u64,
    /// The memory allocated right before the start of the interval.
    pub before: Allocated,
    /// The memory allocated at the interval's peak.
    pub peak: Allocated,
    /// The memory allocated at the end of the interval.
    pub after: Allocated,
}

/// The device's allocated memory at a single point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Allocated {
    /// The total allocated bytes of all categories.
    pub allocated_bytes: i64,
    /// The margin of error of the total, or null if the total is exact. The total is inexact if small blocks
    /// were sampled.
    pub allocated_bytes_error: Estimate,
    /// The allocated bytes by category. Empty categories are left out.
    #[serde(rename = "category_bytes", serialize_with = "serialize_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::series::BytesAnswer"))]
    pub by_category: Bytes,
}

impl Allocated {
    /// Returns the total as text, with its error.
    fn as_bytes(&self) -> String {
        self.allocated_bytes_error.as_bytes(u64::try_from(self.allocated_bytes).unwrap_or(0))
    }
}

impl Span {
    /// Returns the bytes allocated at the end minus the bytes allocated before the start, and the error of the difference.
    /// It is negative if more was freed than allocated.
    pub fn left_bytes(&self) -> (i64, Estimate) {
        let (before, after) = (&self.before, &self.after);
        let left = after.allocated_bytes.saturating_sub(before.allocated_bytes);
        let (error, error_before) = (after.allocated_bytes_error, before.allocated_bytes_error);
        if error.is_exact() && error_before.is_exact() {
            return (left, Estimate::exact(left as f64));
        }
        (left, error.minus(&error_before))
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
        let node = |id: ModuleId| &places.modules[id as usize];
        let module = |&id: &ModuleId| ModuleMemory {
            name: node(id).name.clone(),
            called_by: node(id).parent.map(|parent| node(parent).name.clone()),
            depth: node(id).depth,
            own_parameter_bytes: own.parameters[id as usize],
            parameter_bytes: own.with_inner_parameters[id as usize],
            buffer_bytes: own.with_inner_buffers[id as usize],
            ..ModuleMemory::default()
        };
        let mut modules: Vec<ModuleMemory> = order.iter().map(module).collect();
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
        Self {
            device: DeviceAnswer::from_trace_name(profile.device_name(device)),
            is_estimate: profile.attribution().is_some_and(|attribution| attribution.is_estimate(device)),
            deeper_modules: 0,
            modules,
            repairs,
        }
    }

    /// Returns the report without the modules that are nested `depth` or more levels deep, which are only counted.
    #[must_use]
    pub fn listed(&self, depth: u32) -> Self {
        let mut listed = self.clone();
        listed.modules.retain(|module| module.depth < depth);
        listed.deeper_modules += self.modules.len() - listed.modules.len();
        listed
    }
}

/// Returns the forward and backward spans of each call.
fn call_spans(
    profile: &Profile<'_>,
    device: DeviceIndex,
    curve: &Curve,
    calls: &Calls,
) -> Vec<(Span, Option<Span>)> {
    let first_ns = profile.begin_ns();
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
    let mut fill = |state: State, moment: &Moment| {
        let allocated_bytes = moment.total();
        let exact = || Estimate::exact(allocated_bytes as f64);
        let allocated_bytes_error = errors.get(state).copied().unwrap_or_else(exact);
        let by_category = moment.bytes;
        while let Some((_, number)) = requested_states.next_if(|&(of, _)| of == state) {
            let span = &mut spans[number / 3];
            *[&mut span.before, &mut span.peak, &mut span.after][number % 3] =
                Allocated { allocated_bytes, allocated_bytes_error, by_category };
        }
    };
    fill(0, &Moment::default());
    let mut state = 0;
    walk(profile, device, |moment| {
        state += 1;
        fill(state, moment);
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
    let mut changes = profile.changes_on(device).peekable();
    walk(profile, device, |moment| {
        while let Some(change) = changes.next_if(|change| change.time_ns <= moment.time_ns) {
            let (size_bytes, weight) = profile.weigh(change.allocated_by.or(change.record), change.bytes);
            match change.action {
                Action::Preexisting | Action::Create => sum.add(size_bytes, weight),
                Action::Destroy => sum.remove(size_bytes, weight),
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
    let mut counted: HashSet<(ModuleId, u32)> = HashSet::default();
    for (number, record) in (0..).zip(&profile.trace().records) {
        let (RecordKind::Module(_), Some(id)) = (&record.what, places.called_module(number)) else {
            continue;
        };
        for (role, storage) in profile.references(number) {
            let is_parameter = role == Role::Parameter;
            let Some(place) = storage.filter(|_| is_parameter || role == Role::Buffer) else { continue };
            let Some(storage) = profile.storages()[place as usize] else { continue };
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
