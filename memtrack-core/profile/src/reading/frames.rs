//! The hints of a stack's frames on a block's purpose: read once for each distinct stack, then used by the
//! rules. The names are those of PyTorch's own files and functions, which all programs pass through.

use memtrack_model::paths::file_name;
use memtrack_model::{Frame, Phase};
use memtrack_report::analysis::torch_stacks::{
    MODULE_FRAME_PREFIX, ParsedFrame, TorchStack, operator, phase_of,
};
use std::hash::{BuildHasher, Hash, Hasher};

/// A fact that a frame of a stack indicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Sign {
    /// Autograd's node that keeps the gradient of a leaf.
    AccumulatesGradient,
    /// The gradient that a backward pass begins with.
    SeedsBackward,
    /// Buckets of gradients that are reduced over processes.
    ReducesGradients,
    /// Autograd frees the values that a node had saved.
    DropsGraph,
    /// Shards of parameters that are gathered.
    GathersParameters,
    /// A PyTorch optimizer creates its state.
    InitialisesState,
    /// Gradients are freed.
    ZeroesGradients,
    /// A module's parameters and buffers move or change their type.
    MovesModule,
    /// A PyTorch module is built, or a parameter made.
    BuildsModule,
    /// A file of weights is read.
    LoadsWeights,
    /// An object named as an optimizer is built.
    BuildsOptimizer,
    /// Another object is built.
    BuildsObject,
    /// Data for the program is loaded.
    LoadsData,
    /// A forward pass is run again for the backward pass.
    Recomputes,
    /// A function of `torch.nn.functional`.
    CallsFunctional,
    /// The operator makes a tensor from no other, or copies one to a device.
    MakesTensor,
    /// The operator copies a tensor to a device or to another type.
    CopiesTensor,
}

/// The facts that a stack indicates.
#[derive(Clone, Debug, Default)]
pub(super) struct StackFacts {
    /// Whether there are frames at all.
    pub(super) has_frames: bool,
    /// Whether one of them is not Python's.
    pub(super) has_native: bool,
    /// The part of the training step.
    pub(super) phase: Option<Phase>,
    /// Whether the program's own thread was in none of those parts.
    pub(super) is_outside: bool,
    /// Whether it is a forward pass inside the backward one: activation checkpointing.
    pub(super) is_recomputed: bool,
    signs: u32,
    /// The call of an operator, or of a node of autograd, that the allocation was made in: equal for two
    /// stacks of one call site. `None` if the stack does not show it.
    pub(super) call: Option<u64>,
}

impl StackFacts {
    pub(super) fn has(&self, sign: Sign) -> bool {
        self.signs & (1 << sign as u8) != 0
    }

    /// Returns whether one of these signs is present.
    pub(super) fn has_any(&self, signs: &[Sign]) -> bool {
        signs.iter().any(|&sign| self.has(sign))
    }

    /// Reads a stack, innermost frame first.
    pub(super) fn of(frames: &[Frame]) -> Self {
        let mut facts = Self { has_frames: !frames.is_empty(), ..Self::default() };
        let mut inner: Option<ParsedFrame<'_>> = None;
        // The state of the frames inside the current one; the phase is decided by the first frame that begins
        // one.
        let (mut in_forward, mut in_closure, mut decided, mut from_main) = (false, false, false, false);
        for frame in frames {
            let line = ParsedFrame::of(frame);
            let is_module = line.function.starts_with(MODULE_FRAME_PREFIX);
            // A profiler names modules and C functions without a file.
            facts.has_native |= !line.is_python && !is_module && !line.function.starts_with("<built-in ");
            if let Some(sign) = sign_of(&line) {
                facts.signs |= 1 << sign as u8;
            }
            // The backward function of a Python class, including those of compiled code.
            let of_node = line.is_in("torch/autograd/function.py") && line.method() == "apply";
            let of_node =
                of_node && inner.is_some_and(|inner| inner.is_python && inner.method().contains("backward"));
            let begins = if of_node { Some(Phase::Backward) } else { phase_of(&line) };
            // A graph that is dropped outside the backward pass does not run one.
            let begins = begins.filter(|_| sign_of(&line) != Some(Sign::DropsGraph));
            match begins.filter(|_| !decided) {
                Some(Phase::Optimizer) if in_forward => decided = true,
                // Callbacks of a step: forward, loss and backward do not belong to the optimizer.
                Some(Phase::Optimizer) if in_closure => {}
                Some(phase) => {
                    facts.is_recomputed =
                        phase == Phase::Backward && in_forward && facts.has(Sign::Recomputes);
                    facts.phase = Some(phase);
                    decided = true;
                }
                None => {}
            }
            // A model's own class may be called without PyTorch's frames around it.
            let own = line.is_python && line.method() == "forward" && !line.is_in("torch/autograd/");
            in_forward |= own || is_module || line.is_module_call() || is_compiled(&line);
            in_closure |= line.is_python && line.method().contains("closure") && !line.is_in("torch/optim/");
            from_main |= line.is_python && line.function == "<module>";
            inner = Some(line);
        }
        facts.phase = facts.phase.or(in_forward.then_some(Phase::Forward));
        facts.is_outside = facts.phase.is_none() && from_main;
        let operator = TorchStack::of(frames).operator;
        if operator.as_deref().is_some_and(makes_a_tensor) {
            facts.signs |= 1 << Sign::MakesTensor as u8;
        }
        if operator.as_deref().is_some_and(copies_a_tensor) {
            facts.signs |= 1 << Sign::CopiesTensor as u8;
        }
        facts.call = call(frames);
        facts
    }
}

/// Returns whether this is code generated by torch.compile, or its caller: a forward pass, unless autograd
/// calls it.
fn is_compiled(line: &ParsedFrame<'_>) -> bool {
    line.is_python
        && (["/torchinductor_", "\\torchinductor_"].iter().any(|folder| line.file.contains(folder))
            || line.is_in("torch/_functorch/_aot_autograd/runtime_wrappers.py"))
}

/// Returns the fact that one frame indicates.
fn sign_of(line: &ParsedFrame<'_>) -> Option<Sign> {
    let method = line.method();
    if !line.is_python {
        let function = line.function;
        return match function {
            _ if function.starts_with("torch::autograd::AccumulateGrad") => Some(Sign::AccumulatesGradient),
            _ if function.starts_with("c10d::Reducer::") => Some(Sign::ReducesGradients),
            _ if function.starts_with("candle_nn::optim::") && function.contains("::new") => {
                Some(Sign::InitialisesState)
            }
            _ if frees_saved(function) => Some(Sign::DropsGraph),
            // Candle's registry of weights.
            _ if function.starts_with("candle_nn::var_builder::")
                || function.starts_with("candle_nn::var_map::") =>
            {
                Some(Sign::LoadsWeights)
            }
            _ => None,
        };
    }
    let sharded = line.is_in("torch/distributed/fsdp/") || line.is_in("torch/distributed/_composable/fsdp/");
    if sharded {
        return match method {
            _ if method.contains("reduce") => Some(Sign::ReducesGradients),
            _ if method.contains("all_gather") || method.contains("unshard") => Some(Sign::GathersParameters),
            _ if method.contains("init_sharded") || method.contains("flat_param") => Some(Sign::BuildsModule),
            _ => None,
        };
    }
    if method == "zero_grad" && (line.is_in("torch/optim/") || line.is_in("torch/nn/modules/module.py")) {
        return Some(Sign::ZeroesGradients);
    }
    if line.is_in("torch/optim/") {
        let initialises = matches!(method, "_init_group" | "_init_state" | "init_state" | "__init__");
        return initialises.then_some(Sign::InitialisesState);
    }
    if line.is_in("torch/autograd/__init__.py") && method == "_make_grads" {
        return Some(Sign::SeedsBackward);
    }
    if line.is_in("torch/nn/modules/module.py") && matches!(method, "_apply" | "to_empty") {
        return Some(Sign::MovesModule);
    }
    let loads = (line.is_in("torch/serialization.py") && method == "load")
        || line.is_in("safetensors/torch.py")
        || WEIGHT_LOADERS.iter().any(|path| line.is_in(path))
        || matches!(method, "load_state_dict" | "_load_from_state_dict" | "from_pretrained");
    if loads {
        return Some(Sign::LoadsWeights);
    }
    if line.is_in("torch/utils/data/") || line.is_in("torch/utils/checkpoint.py") {
        let data = line.is_in("torch/utils/data/");
        return Some(if data { Sign::LoadsData } else { Sign::Recomputes });
    }
    if line.is_in("torch/nn/functional.py") {
        return Some(Sign::CallsFunctional);
    }
    let builds = line.is_in("torch/nn/parameter.py") || line.is_in("torch/nn/init.py");
    if builds || (line.is_in("torch/nn/") && matches!(method, "__init__" | "reset_parameters")) {
        return Some(Sign::BuildsModule);
    }
    if method == "__init__" {
        // A user-defined optimizer has the word in the name of its class or file.
        let class = line.function.rsplit_once('.').map_or("", |(class, _)| class);
        let file = file_name(line.file);
        let optimizer = [class, file].iter().any(|name| name.to_ascii_lowercase().contains("optim"));
        return Some(if optimizer { Sign::BuildsOptimizer } else { Sign::BuildsObject });
    }
    None
}

/// Files and folders of libraries that read, quantize or convert a model's weights. Calls of theirs in a
/// forward pass count as part of the pass.
const WEIGHT_LOADERS: [&str; 13] = [
    "transformers/modeling_utils.py",
    "transformers/core_model_loading.py",
    "transformers/quantizers/",
    "transformers/integrations/",
    "accelerate/big_modeling.py",
    "accelerate/utils/modeling.py",
    "peft/utils/other.py",
    "bitsandbytes/",
    "auto_gptq/",
    "gptqmodel/",
    "hqq/core/",
    "torchao/quantization/",
    "diffusers/models/model_loading_utils.py",
];

/// Returns whether that operator copies a tensor to a device or to another type: `aten::_to_copy`,
/// `Tensor.cuda`.
fn copies_a_tensor(operator: &str) -> bool {
    let name = operator.trim_start_matches("aten::").trim_start_matches("torch.");
    let name = name.rsplit('.').next().unwrap_or(name);
    matches!(
        name,
        "to" | "_to_copy"
            | "cuda"
            | "copy_"
            | "clone"
            | "contiguous"
            | "empty"
            | "empty_strided"
            | "empty_like"
            | "pin_memory"
    )
}

/// Returns whether that operator's result is not computed from a tensor of the device: `aten::randint_low`,
/// `torch.tensor`, and copies to a device.
fn makes_a_tensor(operator: &str) -> bool {
    let name = operator.trim_start_matches("aten::").trim_start_matches("torch.");
    if name.contains("_like") {
        return false;
    }
    let makers = [
        "arange",
        "as_tensor",
        "cuda",
        "empty",
        "eye",
        "from_numpy",
        "full",
        "linspace",
        "ones",
        "pin_memory",
        "rand",
        "randint",
        "randn",
        "randperm",
        "scalar_tensor",
        "tensor",
        "to",
        "zeros",
    ];
    let of =
        |maker: &str| name.strip_prefix(maker).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    makers.into_iter().any(of)
}

/// Returns the call of the operator, as a hash of the frames from it outwards: two stacks with the same
/// frames there belong to one call site. In the backward pass, the node of autograd is the operator.
fn call(frames: &[Frame]) -> Option<u64> {
    let mut outermost = None;
    for (place, frame) in frames.iter().enumerate() {
        let line = ParsedFrame::of(frame);
        if line.is_python {
            break;
        }
        if is_node(line.function) {
            outermost = Some(place);
            break;
        }
        // The engine's own work between the nodes is not a call of one.
        if is_engine(line.function) {
            break;
        }
        if operator(line.function).is_some() {
            outermost = Some(place);
        }
    }
    // A profiler's stacks have the function that Python called, but no node.
    let built_in = |frame: &Frame| {
        frame.function.starts_with("<built-in ")
            && !frame.function.starts_with("<built-in method run_backward ")
    };
    let from = outermost.or_else(|| frames.first().is_some_and(built_in).then_some(0))?;
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    for frame in &frames[from..] {
        (&frame.function, &frame.file).hash(&mut hasher);
        // Within a call, the line of its own frame changes.
        if !std::ptr::eq(frame, &frames[from]) {
            frame.line.hash(&mut hasher);
        }
    }
    Some(hasher.finish())
}

/// Returns whether the function is a running node of autograd.
fn is_node(function: &str) -> bool {
    let node = function.starts_with("torch::autograd::generated::")
        || function.starts_with("torch::autograd::AccumulateGrad");
    node && function.contains("::apply(")
}

fn is_engine(function: &str) -> bool {
    function.starts_with("torch::autograd::Engine::")
        || function.starts_with("torch::autograd::Node::operator()")
}

/// Returns whether the function frees values that a node of autograd had saved for the backward pass.
fn frees_saved(function: &str) -> bool {
    let of_node = function.starts_with("torch::autograd::generated::");
    function.starts_with("torch::autograd::deleteNode(")
        || (of_node && (function.contains("::release_variables(") || function.contains("::~")))
}
