//! Tests each rule with an example that no other rule decides.

use super::{BlockCategories, CategoryReading, Rule};
use crate::Category;
use crate::report::ReportMoment;
use memtrack_formats::{LoadOptions, SnapshotFiles};
use memtrack_frames::attribution::EventNames;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};
use memtrack_model::snapshot::{DeviceStatistics, FrameId, Scope, ScopeKind, Snapshot};
use memtrack_model::{Frame, NameFrames};
use serde_json::{Value, json};
use std::rc::Rc;

/// The frames of the snapshot, indexed by key.
struct SnapshotFrames(Vec<Frame>);

impl SnapshotFrames {
    fn of(snapshot: &Snapshot) -> Self {
        let text = |id| snapshot.strings.get(id).into_owned();
        let frame = |frame| Frame {
            function: text(snapshot.frames.name(frame)),
            file: Some(text(snapshot.frames.filename(frame))),
            line: Some(7),
            binary: None,
        };
        Self((0..snapshot.frames.len() as u32).map(FrameId).map(frame).collect())
    }
}

impl NameFrames for SnapshotFrames {
    fn frames(&mut self, key: u64) -> Rc<[Frame]> {
        [self.0[key as usize].clone()].into()
    }
}

type Stack = &'static [&'static str];

// Stacks with the innermost frame first. Each frame is written as `function @ file`.
const OUTSIDE: Stack = &["<module> @ /app/train.py"];
const FORWARD: Stack =
    &["forward @ /app/model.py", "_call_impl @ /v/torch/nn/modules/module.py", "<module> @ /app/train.py"];
const EXP_EMPTY: Stack = &[
    "at::_ops::empty_strided::call(c10::ArrayRef<long>)",
    "at::_ops::exp::call(at::Tensor const&)",
    "forward @ /app/model.py",
    "_call_impl @ /v/torch/nn/modules/module.py",
    "<module> @ /app/train.py",
];
const EXP: Stack = &[
    "at::_ops::exp::call(at::Tensor const&)",
    "forward @ /app/model.py",
    "_call_impl @ /v/torch/nn/modules/module.py",
    "<module> @ /app/train.py",
];
const NODE: Stack = &[
    "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)",
    "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)",
    "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
    "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)",
];
const ENGINE: Stack = &[
    "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
    "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)",
];
const ACCUMULATE: Stack = &[
    "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)",
    "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
];
const REDUCER: Stack = &["c10d::Reducer::initialize_buckets(std::vector<unsigned long>)"];
const GATHER: Stack = &[
    "_all_gather_flat_param @ /v/torch/distributed/fsdp/_flat_param.py",
    "forward @ /app/model.py",
    "<module> @ /app/train.py",
];
const SEED: Stack = &[
    "_make_grads @ /v/torch/autograd/__init__.py",
    "backward @ /v/torch/_tensor.py",
    "<module> @ /app/train.py",
];
const RECOMPUTE: Stack = &[
    "forward @ /app/model.py",
    "_call_impl @ /v/torch/nn/modules/module.py",
    "recompute_fn @ /v/torch/utils/checkpoint.py",
    "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
];
const GRAPH: Stack = &[
    "torch::autograd::generated::ExpBackward0::release_variables()",
    "torch::autograd::deleteNode(torch::autograd::Node*)",
    "<module> @ /app/train.py",
];
const INIT_GROUP: Stack =
    &["_init_group @ /v/torch/optim/adam.py", "step @ /v/torch/optim/adam.py", "<module> @ /app/train.py"];
const STEP: Stack = &["step @ /v/torch/optim/adam.py", "<module> @ /app/train.py"];
const ZERO_GRAD: Stack = &["zero_grad @ /v/torch/optim/optimizer.py", "<module> @ /app/train.py"];
const MOVE: Stack = &["_apply @ /v/torch/nn/modules/module.py", "<module> @ /app/train.py"];
const LOAD: Stack = &["load @ /v/torch/serialization.py", "<module> @ /app/train.py"];
const BUILD: Stack = &["__init__ @ /v/torch/nn/modules/linear.py", "<module> @ /app/train.py"];
const BUILD_OPTIMIZER: Stack = &["__init__ @ /app/my_optimizer.py", "<module> @ /app/train.py"];
const BUILD_OBJECT: Stack = &["__init__ @ /app/layers.py", "<module> @ /app/train.py"];
const LOADER: Stack = &["__next__ @ /v/torch/utils/data/dataloader.py", "<module> @ /app/train.py"];
const FUNCTIONAL: Stack = &["cross_entropy @ /v/torch/nn/functional.py", "<module> @ /app/train.py"];
const RANDN: Stack = &["at::_ops::randn::call(c10::ArrayRef<long>)", "<module> @ /app/train.py"];
const PLAIN: Stack = &["loss @ /app/train.py", "<module> @ /app/train.py"];
const NONE: Stack = &[];
// Stacks as written by a profiler, where the name contains everything and there is no file.
const P_FORWARD: Stack = &["nn.Module: Linear_0 @ none", "train.py(1): <module> @ none"];
const P_BACKWARD: Stack = &[
    "<built-in method run_backward of torch._C._EngineBase object at 0x0> @ none",
    "torch/autograd/graph.py(1100): _engine_run_backward @ none",
    "train.py(1): <module> @ none",
];
const P_STEP: Stack = &["torch/optim/sgd.py(106): step @ none", "train.py(1): <module> @ none"];

/// The address of the block under test.
const TARGET: u64 = 0x1000;
/// The addresses of other blocks.
const A: u64 = 0x2000;
const B: u64 = 0x3000;
const C: u64 = 0x4000;
const SIZE: u64 = 512;

/// A single-device snapshot under construction.
#[derive(Default)]
struct Trace {
    events: Vec<Value>,
    blocks: Vec<Value>,
}

impl Trace {
    fn event(mut self, action: &str, address: u64, size: u64, stack: Stack) -> Self {
        let time = self.events.len();
        self.events.push(json!({
            "action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames(stack),
        }));
        self
    }

    fn alloc(self, address: u64, stack: Stack) -> Self {
        self.event("alloc", address, SIZE, stack)
    }

    /// Adds an allocation with a unique size.
    fn alloc_unique_size(self, address: u64, stack: Stack) -> Self {
        self.event("alloc", address, 512 * address, stack)
    }

    fn free(self, address: u64, stack: Stack) -> Self {
        self.event("free_requested", address, SIZE, stack).event("free_completed", address, SIZE, stack)
    }

    /// Adds a write in place. A profiler's snapshot represents it as a free followed by an allocation.
    fn write(self, address: u64, stack: Stack) -> Self {
        self.free(address, stack).alloc(address, stack)
    }

    /// Adds a block that is older than the first event and still live at the end.
    fn old(mut self, address: u64, stack: Stack) -> Self {
        self.blocks.push(json!({
            "address": address, "size": SIZE, "requested_size": SIZE, "state": "active_allocated",
            "frames": frames(stack),
        }));
        self
    }

    fn snapshot(self) -> Snapshot {
        let segment = json!({
            "device": 0, "address": 0, "total_size": 1 << 20, "stream": 0, "segment_type": "large", "allocated_size": 0,
            "active_size": 0, "blocks": self.blocks,
        });
        let text = json!({"segments": [segment], "device_traces": [self.events]}).to_string();
        Snapshot::open_stream(text.as_bytes(), LoadOptions::default()).unwrap().snapshot
    }
}

fn frames(stack: Stack) -> Vec<Value> {
    let frame = |text: &&str| {
        let (name, file) = text.split_once(" @ ").unwrap_or((text, "??"));
        json!({"name": name, "filename": file, "line": 7})
    };
    stack.iter().map(frame).collect()
}

/// Returns a memtrack recording in which the block at [`TARGET`] is allocated in a scope of this kind. The
/// block outlives the scope if `outlives` is true.
fn recording_with_block(kind: ScopeKind, outlives: bool) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for kind in [kind, if kind == ScopeKind::Module { ScopeKind::Optimizer } else { ScopeKind::Module }] {
        snapshot.scopes.rows.push(Scope { parent: ScopeId::NONE, kind, name: "it".into() });
    }
    let mut event = |action, address, scope| {
        let ticks = snapshot.events.len() as u64;
        let device = DeviceId(0);
        snapshot.events.push(&Event {
            ticks,
            address,
            size_bytes: SIZE,
            scope: ScopeId(scope),
            device,
            action,
            stream: StreamId(0),
            stack: StackId::NONE,
            thread: ThreadId(0),
            flags: EventFlags::default(),
        });
    };
    event(Action::Alloc, TARGET, 1);
    if !outlives {
        event(Action::Free, TARGET, 1);
    }
    event(Action::Alloc, A, 2);
    snapshot
}

/// Returns a snapshot in which `rule` decides the category of the block at [`TARGET`].
fn example_of(rule: Rule) -> Snapshot {
    let trace = Trace::default();
    let trace = match rule {
        Rule::Given => {
            let mut trace = trace.alloc(TARGET, FORWARD);
            trace.events[0]["category"] = json!("gradient");
            trace
        }
        Rule::SameCall => trace.alloc(TARGET, EXP_EMPTY).alloc(A, EXP).free(TARGET, EXP).alloc(B, FORWARD),
        Rule::AccumulateGrad => trace.alloc(TARGET, ACCUMULATE),
        Rule::ReducedGradient => trace.alloc(TARGET, REDUCER),
        Rule::GatheredParameter => trace.alloc(TARGET, GATHER),
        Rule::BackwardSeed => trace.alloc(TARGET, SEED),
        Rule::StateInit => trace.alloc(TARGET, INIT_GROUP).alloc(A, FORWARD),
        Rule::ReplacedInStep => {
            trace.alloc(A, MOVE).alloc(B, FORWARD).alloc(TARGET, STEP).free(A, STEP).alloc(C, FORWARD)
        }
        Rule::ReplacedGuess => trace.alloc(B, FORWARD).alloc(TARGET, STEP).free(A, STEP).alloc(C, FORWARD),
        Rule::KeptByStep => trace.alloc(TARGET, STEP).alloc(A, FORWARD),
        Rule::FreedInStep => trace.alloc(TARGET, STEP).alloc(A, STEP).free(TARGET, STEP).alloc(B, FORWARD),
        Rule::Recomputed => trace.alloc(TARGET, RECOMPUTE).free(TARGET, ENGINE),
        Rule::GradientKept => trace.alloc(TARGET, NODE).alloc(A, STEP).free(TARGET, OUTSIDE),
        // Every free has the stack of its allocation.
        Rule::GradientBySize => trace
            .alloc(A, MOVE)
            .alloc_unique_size(B, FORWARD)
            .alloc(TARGET, NODE)
            .alloc_unique_size(C, ENGINE)
            .free(TARGET, NODE)
            .alloc(B, FORWARD),
        Rule::Backward => trace.alloc(TARGET, NODE).alloc(A, ENGINE).free(TARGET, ENGINE).alloc(B, FORWARD),
        Rule::NoFramesKept => trace.alloc(A, FORWARD).alloc(TARGET, NONE).alloc(B, STEP),
        Rule::NoFramesInBackward => {
            trace.alloc(A, FORWARD).alloc(TARGET, NONE).free(TARGET, NONE).alloc(B, STEP)
        }
        Rule::ModuleMoved => trace.alloc(TARGET, MOVE).alloc(A, FORWARD),
        Rule::WeightsLoaded => trace.alloc(TARGET, LOAD).alloc(A, FORWARD),
        Rule::ModuleBuilt => trace.alloc(TARGET, BUILD).alloc(A, FORWARD),
        Rule::OptimizerBuilt => trace.alloc(TARGET, BUILD_OPTIMIZER).alloc(A, FORWARD),
        Rule::ObjectBuilt => trace.alloc(TARGET, BUILD_OBJECT).alloc(A, FORWARD),
        Rule::InputLoaded => trace.alloc(TARGET, LOADER).alloc(A, FORWARD),
        Rule::ScopeOptimizerKept => return recording_with_block(ScopeKind::Optimizer, true),
        Rule::ScopeOptimizer => return recording_with_block(ScopeKind::Optimizer, false),
        Rule::ScopeBackwardKept => return recording_with_block(ScopeKind::Backward, true),
        Rule::ScopeBackward => return recording_with_block(ScopeKind::Backward, false),
        Rule::ScopeTemporary => return recording_with_block(ScopeKind::Operator, false),
        Rule::ScopeForward => return recording_with_block(ScopeKind::Module, true),
        Rule::HeldByGraph => trace.alloc(TARGET, FORWARD).alloc(A, FORWARD).free(TARGET, GRAPH),
        Rule::SavedForBackward => trace.alloc(TARGET, FORWARD).alloc(A, NODE).free(TARGET, ENGINE),
        Rule::Forward => trace.alloc(TARGET, FORWARD).alloc(A, FORWARD).free(TARGET, FORWARD),
        Rule::Functional => trace.alloc(TARGET, FUNCTIONAL),
        Rule::InputMade => trace.alloc(TARGET, RANDN).alloc(A, FORWARD),
        Rule::HeldForBackward => {
            trace.alloc(A, FORWARD).alloc(TARGET, PLAIN).alloc(B, NODE).free(TARGET, ENGINE)
        }
        Rule::BeforeBackward => trace.alloc(TARGET, PLAIN).alloc(A, PLAIN).free(TARGET, PLAIN).alloc(B, NODE),
        Rule::FreedByZeroGrad => trace.free(TARGET, ZERO_GRAD),
        Rule::OldFreedInBackward => trace.alloc(A, NODE).free(TARGET, ENGINE),
        Rule::OldFreedInStep => trace.alloc(A, STEP).free(TARGET, STEP),
        Rule::WrittenInBackward => trace.alloc(A, P_BACKWARD).write(TARGET, NONE).alloc(B, P_BACKWARD),
        Rule::WrittenInForward => trace.alloc(A, P_FORWARD).write(TARGET, NONE).alloc(B, P_FORWARD),
        Rule::WrittenInStep => trace.alloc_unique_size(A, P_BACKWARD).alloc(B, P_STEP).write(TARGET, NONE),
        Rule::SizeOfGradient => trace.old(TARGET, NONE).alloc(A, ACCUMULATE).alloc(B, STEP),
        // The parameter is live at the end, but the state is not.
        Rule::SizeOfGradientAgain => {
            trace.old(B, NONE).alloc(A, ACCUMULATE).alloc_unique_size(C, STEP).free(TARGET, STEP)
        }
        Rule::EarlySizeOfGradient => {
            trace.alloc(TARGET, PLAIN).alloc_unique_size(A, FORWARD).alloc(B, ACCUMULATE)
        }
        Rule::EarlySizeAgain => {
            trace.alloc(A, PLAIN).alloc(TARGET, PLAIN).alloc_unique_size(B, FORWARD).alloc(C, ACCUMULATE)
        }
        Rule::FrozenParameter => trace
            .old(TARGET, NONE)
            .alloc_unique_size(A, ACCUMULATE)
            .alloc_unique_size(B, FORWARD)
            .alloc_unique_size(C, ACCUMULATE),
        Rule::OldAndUntouched => {
            trace.alloc_unique_size(A, FORWARD).free(TARGET, OUTSIDE).alloc_unique_size(B, ACCUMULATE)
        }
        Rule::OldInInference => trace.old(TARGET, NONE).alloc(A, FORWARD),
    };
    trace.snapshot()
}

/// Returns the decision for the last block at the given address.
fn decision_at(
    snapshot: &Snapshot,
    address: u64,
    is_enabled: impl Fn(Rule) -> bool,
) -> Option<(Category, Rule)> {
    let device = snapshot.device_ids()[0];
    let blocks = BlockCategories::infer_with(snapshot, &mut SnapshotFrames::of(snapshot), device, is_enabled);
    let mut of = blocks.lifetimes.iter().zip(&blocks.decisions).filter(|(lifetime, _)| {
        let row = lifetime.from.or(lifetime.to);
        let block = lifetime.block.map(|block| snapshot.blocks[block as usize].address);
        row.map(|row| snapshot.events.address[row]).or(block) == Some(address)
    });
    of.next_back().and_then(|(_, read)| *read)
}

fn decision_by_all_rules(trace: Trace, address: u64) -> Option<(Category, Rule)> {
    decision_at(&trace.snapshot(), address, |_| true)
}

#[test]
fn each_rule_decides_its_example_and_no_other_rule_does() {
    for &rule in Rule::ALL {
        let snapshot = example_of(rule);
        let (category, by) = decision_at(&snapshot, TARGET, |_| true)
            .unwrap_or_else(|| panic!("{}: nothing decides", rule.name()));
        assert_eq!(by, rule, "decides the example of {}", rule.name());
        if rule.category() != Category::Unknown {
            assert_eq!(category, rule.category(), "{}", rule.name());
        }
        let without = decision_at(&snapshot, TARGET, |other| other != rule);
        assert_ne!(without.map(|(_, by)| by), Some(rule), "{} is left out", rule.name());
    }
}

/// Adds two steps whose gradients share no size with any other block.
fn add_two_steps(trace: Trace) -> Trace {
    trace
        .alloc_unique_size(A, FORWARD)
        .alloc_unique_size(B, ACCUMULATE)
        .alloc_unique_size(C, FORWARD)
        .alloc_unique_size(0x5000, ACCUMULATE)
}

#[test]
fn weights_unchanged_by_several_steps_are_not_inputs() {
    let copied: Stack = &["at::_ops::_to_copy::call(at::Tensor const&)", "<module> @ /app/train.py"];
    let quantized: Stack = &[
        "at::_ops::empty_strided::call(c10::ArrayRef<long>)",
        "quantize_4bit @ /v/bitsandbytes/functional.py",
        "_quantize @ /v/bitsandbytes/nn/modules.py",
        "<module> @ /app/train.py",
    ];
    let cast: Stack = &[
        "at::_ops::_to_copy::call(at::Tensor const&)",
        "prepare_model_for_kbit_training @ /v/peft/utils/other.py",
        "<module> @ /app/train.py",
    ];
    let weights = Some((Category::Parameter, Rule::WeightsLoaded));
    for (stack, decision) in [(copied, None), (quantized, weights), (cast, weights)] {
        assert_eq!(
            decision_by_all_rules(add_two_steps(Trace::default().alloc(TARGET, stack)), TARGET),
            decision
        );
    }
    // With only a single step, or if the stack shows that the values have just been created, the block is
    // input data.
    let input = Some((Category::Input, Rule::InputMade));
    let one_step =
        Trace::default().alloc(TARGET, RANDN).alloc_unique_size(A, FORWARD).alloc_unique_size(B, ACCUMULATE);
    assert_eq!(decision_by_all_rules(one_step, TARGET), input);
    assert_eq!(decision_by_all_rules(add_two_steps(Trace::default().alloc(TARGET, RANDN)), TARGET), input);
}

#[test]
fn single_step_does_not_distinguish_frozen_weights_from_input_data() {
    let trace =
        Trace::default().old(TARGET, NONE).alloc_unique_size(A, FORWARD).alloc_unique_size(B, ACCUMULATE);
    assert_eq!(decision_by_all_rules(trace, TARGET), None);
}

#[test]
fn frozen_weights_of_size_of_gradient_are_not_optimizer_state() {
    // There is one gradient of this size, but many more blocks of that size than an optimizer keeps per
    // parameter.
    let old = (0x10..0x40).fold(Trace::default(), |trace, number| trace.old(number << 16, NONE));
    let trace = old
        .alloc(TARGET, ACCUMULATE)
        .alloc_unique_size(A, STEP)
        .alloc_unique_size(B, FORWARD)
        .alloc_unique_size(C, ACCUMULATE);
    let snapshot = trace.snapshot();
    let rules: Vec<_> =
        (0x10..0x40).map(|number| decision_at(&snapshot, number << 16, |_| true).unwrap().1).collect();
    let count = |rule| rules.iter().filter(|&&other| other == rule).count();
    assert_eq!(count(Rule::SizeOfGradient), 1);
    assert!(count(Rule::SizeOfGradientAgain) <= 4 && count(Rule::FrozenParameter) >= 40, "{rules:?}");
}

#[test]
fn operator_frees_temporaries_and_returns_results() {
    let mut snapshot = Snapshot::default();
    let scope = |parent: u32, kind, name: &str| Scope { parent: ScopeId(parent), kind, name: name.into() };
    // The scopes are a model, an operator inside the model, an operator outside it, and the backward pass.
    snapshot.scopes.rows.extend([
        scope(0, ScopeKind::Root, "net"),
        scope(1, ScopeKind::Operator, "attention"),
        scope(0, ScopeKind::Operator, "crowding"),
        scope(0, ScopeKind::Backward, "backward"),
    ]);
    let events = [
        (Action::Alloc, TARGET, 3),
        (Action::Alloc, A, 3),
        (Action::Free, TARGET, 3),
        (Action::Alloc, B, 2),
        (Action::Alloc, C, 2),
        (Action::Free, B, 2),
        (Action::Alloc, 0x5000, 4),
        (Action::Free, C, 2),
        (Action::Free, A, 3),
    ];
    for (ticks, (action, address, scope)) in (0..).zip(events) {
        let device = DeviceId(0);
        snapshot.events.push(&Event {
            ticks,
            address,
            size_bytes: SIZE,
            scope: ScopeId(scope),
            device,
            action,
            ..Event::BLANK
        });
    }
    let of = |address| decision_at(&snapshot, address, |_| true).map(|(category, _)| category);
    assert_eq!((of(TARGET), of(A)), (Some(Category::Temporary), None));
    assert_eq!((of(B), of(C)), (Some(Category::Temporary), Some(Category::Activation)));
}

#[test]
fn names_and_sentences_of_rules_are_distinct() {
    for (place, rule) in Rule::ALL.iter().enumerate() {
        assert!(Rule::ALL[..place].iter().all(|other| other.name() != rule.name()), "{}", rule.name());
        assert!(rule.when().ends_with('.') && rule.when().len() > 20, "{}", rule.name());
    }
}

#[test]
fn replacement_of_parameter_is_parameter() {
    let trace =
        Trace::default().alloc(A, MOVE).alloc(B, FORWARD).alloc(TARGET, STEP).free(A, STEP).alloc(C, FORWARD);
    assert_eq!(decision_by_all_rules(trace, TARGET), Some((Category::Parameter, Rule::ReplacedInStep)));
}

#[test]
fn callbacks_of_step_do_not_belong_to_optimizer() {
    let closure: Stack = &[
        "forward @ /app/model.py",
        "_call_impl @ /v/torch/nn/modules/module.py",
        "closure @ /app/train.py",
        "step @ /v/torch/optim/lbfgs.py",
        "<module> @ /app/train.py",
    ];
    let trace = Trace::default().alloc(TARGET, closure);
    assert_eq!(decision_by_all_rules(trace, TARGET), Some((Category::Activation, Rule::Forward)));
    let loss: Stack = &[
        "loss @ /app/train.py",
        "closure @ /app/train.py",
        "step @ /v/torch/optim/lbfgs.py",
        "<module> @ /app/train.py",
    ];
    let trace = Trace::default().alloc(A, closure).alloc(TARGET, loss).alloc(B, NODE).free(TARGET, ENGINE);
    assert_eq!(decision_by_all_rules(trace, TARGET), Some((Category::Activation, Rule::HeldForBackward)));
}

#[test]
fn compiled_code_is_forward_and_its_backward_function_is_backward() {
    let compiled: Stack = &[
        "call @ /tmp/torchinductor_me/ab/cab.py",
        "forward @ /v/torch/_functorch/_aot_autograd/runtime_wrappers.py",
        "_fn @ /v/torch/_dynamo/eval_frame.py",
        "<module> @ /app/train.py",
    ];
    let backward: Stack = &[
        "call @ /tmp/torchinductor_me/cd/ccd.py",
        "backward @ /v/torch/_functorch/_aot_autograd/runtime_wrappers.py",
        "apply @ /v/torch/autograd/function.py",
    ];
    let trace = || {
        Trace::default()
            .alloc(A, compiled)
            .alloc(TARGET, backward)
            .free(TARGET, backward)
            .free(A, backward)
            .alloc(B, STEP)
    };
    assert_eq!(decision_by_all_rules(trace(), TARGET), Some((Category::AutogradDetail, Rule::Backward)));
    assert_eq!(decision_by_all_rules(trace(), A), Some((Category::Activation, Rule::SavedForBackward)));
}

#[test]
fn dropping_graph_is_not_backward_pass() {
    let trace = Trace::default().old(TARGET, NONE).alloc(A, FORWARD).free(B, GRAPH);
    assert_eq!(decision_by_all_rules(trace, TARGET).map(|(_, rule)| rule), Some(Rule::OldInInference));
}

#[test]
fn running_out_of_memory_in_backward_pass_leaves_no_gradients() {
    let trace = || Trace::default().alloc(A, FORWARD).alloc(TARGET, NODE);
    assert_eq!(decision_by_all_rules(trace(), TARGET).map(|(_, rule)| rule), Some(Rule::GradientKept));
    let mut out = trace();
    out.events.push(json!({"action": "oom", "device_free": 0, "size": 1, "stream": 0, "time_us": 9, "frames": frames(NODE)}));
    assert_eq!(decision_by_all_rules(out, TARGET).map(|(_, rule)| rule), Some(Rule::Backward));
}

#[test]
fn optimizer_writes_parameter_after_its_state() {
    // There are two parameters. In the first order, each momentum is written right before its parameter. In
    // the second one, both momenta are written before both parameters.
    for order in [[A, B, C, TARGET], [A, C, B, TARGET]] {
        let trace = Trace::default()
            .alloc(0x9000, P_BACKWARD)
            .alloc(0xa000, P_BACKWARD)
            .alloc_unique_size(0xb000, P_STEP);
        let trace = order.into_iter().fold(trace, |trace, address| trace.write(address, NONE));
        let snapshot = trace.alloc_unique_size(0xc000, P_FORWARD).snapshot();
        let of = |address| decision_at(&snapshot, address, |_| true).map(|(category, _)| category);
        assert_eq!(of(TARGET), Some(Category::Parameter), "{order:x?}");
        assert_eq!(of(A), Some(Category::OptimizerState), "{order:x?}");
    }
}

fn reading_of(snapshot: &Snapshot, device: DeviceId, moments: &[ReportMoment]) -> CategoryReading {
    let blocks = BlockCategories::infer(snapshot, &mut SnapshotFrames::of(snapshot), device);
    CategoryReading::of(snapshot, device, &blocks, moments, &EventNames::default())
}

#[test]
fn text_recommends_stacks_if_none_are_recorded() {
    let trace = Trace::default().old(A, NONE).alloc(TARGET, NONE).free(TARGET, NONE);
    let snapshot = trace.snapshot();
    let reading = reading_of(&snapshot, DeviceId(0), &[ReportMoment::Peak]);
    assert!(!reading.has_evidence());
    assert_eq!((reading.all.unclassified_share, reading.rules.len()), (1.0, 0));
    let text = reading.to_string();
    assert!(text.contains("_record_memory_history(") && text.contains("export-script"), "{text}");
}

#[test]
fn sums_and_shares_are_those_of_moment() {
    let trace = Trace::default().alloc(A, MOVE).alloc(TARGET, FORWARD).alloc(B, PLAIN).free(TARGET, FORWARD);
    let snapshot = trace.snapshot();
    let moments = [ReportMoment::Peak, ReportMoment::End, ReportMoment::After(0)];
    let reading = reading_of(&snapshot, DeviceId(0), &moments);
    let bytes: Vec<u64> = reading.moments.iter().map(|moment| moment.live.bytes).collect();
    assert_eq!(bytes, [3 * SIZE, 2 * SIZE, SIZE]);
    assert_eq!(
        reading.moments[1].live.unclassified_share, 0.5,
        "nothing is known of what a line made outside of all"
    );
    for totals in reading.moments.iter().map(|moment| &moment.live).chain([&reading.all]) {
        assert_eq!(totals.categories.iter().map(|row| row.bytes).sum::<u64>(), totals.bytes);
        assert_eq!(totals.categories.last().unwrap().bytes, totals.unclassified_bytes);
    }
    let text = reading.to_string();
    assert!(text.contains("not exact") && text.contains("Unknown: 50.0 %"), "{text}");
    let value = serde_json::to_value(&reading).unwrap();
    assert_eq!((&value["exact"], &value["moments"][0]["moment"]), (&json!(false), &json!("peak")));
}

#[test]
fn categories_of_sampled_heap_do_not_exceed_recorder_count() {
    let mut snapshot = recording_with_block(ScopeKind::Module, true);
    // Each of the two blocks represents 4 KiB.
    for row in 0..snapshot.events.len() {
        snapshot.events.device[row] = DeviceId::HOST;
        snapshot.events.size_bytes[row] = 64;
        snapshot.events.flags[row] = EventFlags::SAMPLED.with_interval_class(4);
    }
    let counts = DeviceStatistics {
        counted: true,
        allocated_bytes: 5000,
        allocations: 80,
        ..DeviceStatistics::of(DeviceId::HOST)
    };
    snapshot.devices.push(counts);
    snapshot.meta.complete = true;
    let reading = reading_of(&snapshot, DeviceId::HOST, &[ReportMoment::End]);
    let live = &reading.moments[0].live;
    assert_eq!((live.bytes, live.blocks), (5000, 80));
    let rows: Vec<u64> = live.categories.iter().filter(|row| row.bytes > 0).map(|row| row.bytes).collect();
    assert!(rows.len() == 2 && rows.iter().all(|&bytes| (2000..=2500).contains(&bytes)), "{rows:?}");
    assert!(live.categories.iter().map(|row| row.blocks).sum::<u64>() <= 80, "{live:?}");
    assert!(live.categories.iter().map(|row| row.share).sum::<f64>() <= 1.0, "{live:?}");
    assert!(live.categories.iter().all(|row| row.error.high <= 5000.0), "{live:?}");
    for rule in &reading.rules {
        assert!(
            (2000..=2500).contains(&rule.live_bytes[0]) && rule.live_errors[0].high <= 5000.0,
            "{rule:?}"
        );
    }
}

#[test]
fn categories_in_file_precede_inferred_ones() {
    let mut trace = Trace::default().alloc(TARGET, FORWARD).alloc(A, FORWARD);
    trace.events[0]["category"] = json!("parameter");
    trace.events[1]["category"] = json!("unknown");
    let snapshot = trace.snapshot();
    assert_eq!(decision_at(&snapshot, TARGET, |_| true), Some((Category::Parameter, Rule::Given)));
    assert_eq!(decision_at(&snapshot, A, |_| true), Some((Category::Activation, Rule::Forward)));
    let reading = reading_of(&snapshot, DeviceId(0), &[ReportMoment::End]);
    assert!(
        reading.to_string().contains("categories of 50.0 % of all bytes are given by the file"),
        "{reading}"
    );
}
