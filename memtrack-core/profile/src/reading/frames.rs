//! Determines the facts that a stack's frames reveal about a block's purpose. The facts are determined once per
//! distinct stack and then used by the rules. They rely on the names of PyTorch's files and functions, which
//! appear in the stacks of every program that uses PyTorch.

use memtrack_frames::torch_stacks::{MODULE_FRAME_PREFIX, ParsedFrame, TorchStack, operator, phase_of};
use memtrack_model::paths::file_name;
use memtrack_model::{Frame, Phase};
use std::hash::{BuildHasher, Hash, Hasher};

/// A fact that a frame reveals about an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Clue {
    /// The AccumulateGrad node, which keeps the gradient of a leaf, is running.
    AccumulatesGradient,
    /// The initial gradient of a backward pass is created.
    SeedsBackward,
    /// Gradients are reduced across processes.
    ReducesGradients,
    /// Autograd frees the tensors that a node had saved.
    DropsGraph,
    /// Shards of parameters are gathered.
    GathersParameters,
    /// A PyTorch optimizer creates its state.
    InitialisesState,
    /// Gradients are freed.
    ZeroesGradients,
    /// A module's parameters and buffers are moved, or converted to another type.
    MovesModule,
    /// A PyTorch module is constructed or a parameter is created.
    BuildsModule,
    /// A file that contains weights is read.
    LoadsWeights,
    /// An object is constructed, and the name of its class or file suggests an optimizer.
    BuildsOptimizer,
    /// Some other object is constructed.
    BuildsObject,
    /// Data for the program is loaded.
    LoadsData,
    /// A forward pass is rerun for the backward pass.
    Recomputes,
    /// A function from `torch.nn.functional` is called.
    CallsFunctional,
    /// The operator creates a tensor without computing it from another one, or copies a tensor to a device.
    MakesTensor,
    /// The operator copies a tensor to a device or converts it to another type.
    CopiesTensor,
}

/// The facts that a stack reveals.
#[derive(Clone, Debug, Default)]
pub(super) struct StackFacts {
    /// Whether the stack has any frames.
    pub(super) has_frames: bool,
    /// Whether the stack contains a frame that does not come from Python.
    pub(super) has_native: bool,
    /// The phase of the training step that the stack shows, if any.
    pub(super) phase: Option<Phase>,
    /// Whether the stack starts in the main module of a Python program and shows no phase.
    pub(super) is_outside: bool,
    /// Whether the stack belongs to a forward pass that runs inside the backward pass, as in activation
    /// checkpointing.
    pub(super) is_recomputed: bool,
    clues: u32,
    /// A hash of the call of the operator or autograd node that made the allocation. The hash is equal for
    /// all stacks of the same call site. It is `None` if the stack does not show a call.
    pub(super) call: Option<u64>,
}

impl StackFacts {
    pub(super) fn has(&self, clue: Clue) -> bool {
        self.clues & (1 << clue as u8) != 0
    }

    /// Returns whether the stack has any of these clues.
    pub(super) fn has_any(&self, clues: &[Clue]) -> bool {
        clues.iter().any(|&clue| self.has(clue))
    }

    /// Determines the facts of a stack whose innermost frame comes first.
    pub(super) fn of(frames: &[Frame]) -> Self {
        let mut facts = Self { has_frames: !frames.is_empty(), ..Self::default() };
        let mut inner: Option<ParsedFrame<'_>> = None;
        // The evidence from the frames visited so far, which are deeper than the current frame. The innermost frame that
        // starts a phase determines the phase.
        let (mut in_forward, mut in_closure, mut decided, mut from_main) = (false, false, false, false);
        for frame in frames {
            let line = ParsedFrame::of(frame);
            let is_module = line.function.starts_with(MODULE_FRAME_PREFIX);
            // In stacks from a profiler, modules and C functions have no file.
            facts.has_native |= !line.is_python && !is_module && !line.function.starts_with("<built-in ");
            let clue = clue_of(&line);
            facts.clues |= clue.map_or(0, |clue| 1 << clue as u8);
            // This is the backward function of a Python autograd function. Compiled code also has such functions.
            let of_node = line.is_in("torch/autograd/function.py") && line.method() == "apply";
            let of_node =
                of_node && inner.is_some_and(|inner| inner.is_python && inner.method().contains("backward"));
            let begins = if of_node { Some(Phase::Backward) } else { phase_of(&line) };
            // Dropping a graph does not count as a backward pass.
            let begins = begins.filter(|_| clue != Some(Clue::DropsGraph));
            match begins.filter(|_| !decided) {
                Some(Phase::Optimizer) if in_forward => decided = true,
                // If a step's closure runs the forward pass, loss and backward pass, these do not belong to
                // the optimizer.
                Some(Phase::Optimizer) if in_closure => {}
                Some(phase) => {
                    facts.is_recomputed =
                        phase == Phase::Backward && in_forward && facts.has(Clue::Recomputes);
                    facts.phase = Some(phase);
                    decided = true;
                }
                None => {}
            }
            // The `forward` method of a user's class may be called without PyTorch's frames around it.
            let own = line.is_python && line.method() == "forward" && !line.is_in("torch/autograd/");
            in_forward |= own || is_module || line.is_module_call() || is_compiled(&line);
            in_closure |= line.is_python && line.method().contains("closure") && !line.is_in("torch/optim/");
            from_main |= line.is_python && line.function == "<module>";
            inner = Some(line);
        }
        facts.phase = facts.phase.or(in_forward.then_some(Phase::Forward));
        facts.is_outside = facts.phase.is_none() && from_main;
        let operator = TorchStack::of(frames).operator;
        if operator.as_deref().is_some_and(creates_tensor) {
            facts.clues |= 1 << Clue::MakesTensor as u8;
        }
        if operator.as_deref().is_some_and(copies_tensor) {
            facts.clues |= 1 << Clue::CopiesTensor as u8;
        }
        facts.call = hash_call(frames);
        facts
    }
}

/// Returns whether the frame is code generated by torch.compile, or the caller of such code. Such a frame
/// indicates a forward pass, unless autograd calls it.
fn is_compiled(line: &ParsedFrame<'_>) -> bool {
    line.is_python
        && (["/torchinductor_", "\\torchinductor_"].iter().any(|folder| line.file.contains(folder))
            || line.is_in("torch/_functorch/_aot_autograd/runtime_wrappers.py"))
}

/// Returns the fact that a single frame reveals, if any.
fn clue_of(line: &ParsedFrame<'_>) -> Option<Clue> {
    let method = line.method();
    if !line.is_python {
        let function = line.function;
        return match function {
            _ if function.starts_with("torch::autograd::AccumulateGrad") => Some(Clue::AccumulatesGradient),
            _ if function.starts_with("c10d::Reducer::") => Some(Clue::ReducesGradients),
            _ if function.starts_with("candle_nn::optim::") && function.contains("::new") => {
                Some(Clue::InitialisesState)
            }
            _ if frees_saved_tensors(function) => Some(Clue::DropsGraph),
            // These are Candle's weight loaders.
            _ if function.starts_with("candle_nn::var_builder::")
                || function.starts_with("candle_nn::var_map::") =>
            {
                Some(Clue::LoadsWeights)
            }
            _ => None,
        };
    }
    let is_method = |pattern: &&str| match pattern.split_once('*') {
        Some((_, part)) => method.contains(part),
        None => method == *pattern,
    };
    let is_of = |(paths, methods, _): &&PythonClue| {
        (methods.is_empty() || methods.iter().any(is_method))
            && (paths.is_empty() || paths.iter().any(|path| line.is_in(path)))
    };
    match PYTHON_CLUES.iter().find(is_of) {
        Some((_, _, clue)) => *clue,
        None if method == "__init__" => {
            // A user-defined optimizer has `optim` in the name of its class or of its file.
            let class = line.function.rsplit_once('.').map_or("", |(class, _)| class);
            let file = file_name(line.file);
            let optimizer = [class, file].iter().any(|name| name.to_ascii_lowercase().contains("optim"));
            Some(if optimizer { Clue::BuildsOptimizer } else { Clue::BuildsObject })
        }
        None => None,
    }
}

/// Files or folders of Python code (any, if empty), methods in them (any, if empty; after `*`, part of a name), and the
/// clue that their frames give.
type PythonClue = (&'static [&'static str], &'static [&'static str], Option<Clue>);

const FSDP: &[&str] = &["torch/distributed/fsdp/", "torch/distributed/_composable/fsdp/"];

/// What the frames of Python code reveal. The first row that matches applies.
const PYTHON_CLUES: &[PythonClue] = &[
    (FSDP, &["*reduce"], Some(Clue::ReducesGradients)),
    (FSDP, &["*all_gather", "*unshard"], Some(Clue::GathersParameters)),
    (FSDP, &["*init_sharded", "*flat_param"], Some(Clue::BuildsModule)),
    (FSDP, &[], None),
    (&["torch/optim/", "torch/nn/modules/module.py"], &["zero_grad"], Some(Clue::ZeroesGradients)),
    (
        &["torch/optim/"],
        &["_init_group", "_init_state", "init_state", "__init__"],
        Some(Clue::InitialisesState),
    ),
    (&["torch/optim/"], &[], None),
    (&["torch/autograd/__init__.py"], &["_make_grads"], Some(Clue::SeedsBackward)),
    (&["torch/nn/modules/module.py"], &["_apply", "to_empty"], Some(Clue::MovesModule)),
    (&["torch/serialization.py"], &["load"], Some(Clue::LoadsWeights)),
    (WEIGHT_LOADERS, &[], Some(Clue::LoadsWeights)),
    (&[], &["load_state_dict", "_load_from_state_dict", "from_pretrained"], Some(Clue::LoadsWeights)),
    (&["torch/utils/data/"], &[], Some(Clue::LoadsData)),
    (&["torch/utils/checkpoint.py"], &[], Some(Clue::Recomputes)),
    (&["torch/nn/functional.py"], &[], Some(Clue::CallsFunctional)),
    (&["torch/nn/parameter.py", "torch/nn/init.py"], &[], Some(Clue::BuildsModule)),
    (&["torch/nn/"], &["__init__", "reset_parameters"], Some(Clue::BuildsModule)),
];

/// Files and folders of libraries that load, quantize or convert a model's weights. If a forward pass calls
/// them, the calls count as part of the pass.
const WEIGHT_LOADERS: &[&str] = &[
    "safetensors/torch.py",
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

/// Operators that copy a tensor to a device or convert it to another type.
const COPIERS: &str = "to _to_copy cuda copy_ clone contiguous empty empty_strided empty_like pin_memory";

/// Operators whose result is not computed from a tensor on the device. A suffix may follow, as in `randint_low`.
const MAKERS: &str = "arange as_tensor cuda empty eye from_numpy full linspace ones pin_memory rand randint randn \
                      randperm scalar_tensor tensor to zeros";

/// Returns whether an operator copies a tensor to a device or converts it to another type. Examples are
/// `aten::_to_copy` and `Tensor.cuda`.
fn copies_tensor(operator: &str) -> bool {
    let name = plain_name(operator);
    COPIERS.split(' ').any(|copier| copier == name.rsplit('.').next().unwrap_or(name))
}

/// Returns whether an operator's result is not computed from a tensor on the device. Examples are
/// `aten::randint_low`, `torch.tensor`, and copies to a device.
fn creates_tensor(operator: &str) -> bool {
    let name = plain_name(operator);
    let is_of =
        |maker: &str| name.strip_prefix(maker).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    !name.contains("_like") && MAKERS.split(' ').any(is_of)
}

fn plain_name(operator: &str) -> &str {
    operator.trim_start_matches("aten::").trim_start_matches("torch.")
}

/// Returns a hash that identifies the operator's call. The hash covers the operator's frame and all frames
/// outside it, so it is equal for all stacks of the same call site. In the backward pass, the autograd node
/// counts as the operator. Returns `None` if the stack does not show a call.
fn hash_call(frames: &[Frame]) -> Option<u64> {
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
        // The engine's own work between nodes does not belong to any node's call.
        if is_engine(line.function) {
            break;
        }
        if operator(line.function).is_some() {
            outermost = Some(place);
        }
    }
    // Stacks from a profiler contain the C function that Python called, but no autograd node.
    let built_in = |frame: &Frame| {
        frame.function.starts_with("<built-in ")
            && !frame.function.starts_with("<built-in method run_backward ")
    };
    let from = outermost.or_else(|| frames.first().is_some_and(built_in).then_some(0))?;
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    for frame in &frames[from..] {
        (&frame.function, &frame.file).hash(&mut hasher);
        // The line within the operator itself is not hashed, because it varies during a call.
        if !std::ptr::eq(frame, &frames[from]) {
            frame.line.hash(&mut hasher);
        }
    }
    Some(hasher.finish())
}

/// Returns whether the function runs an autograd node.
fn is_node(function: &str) -> bool {
    let node = function.starts_with("torch::autograd::generated::")
        || function.starts_with("torch::autograd::AccumulateGrad");
    node && function.contains("::apply(")
}

fn is_engine(function: &str) -> bool {
    function.starts_with("torch::autograd::Engine::")
        || function.starts_with("torch::autograd::Node::operator()")
}

/// Returns whether the function frees tensors that an autograd node had saved for the backward pass.
fn frees_saved_tensors(function: &str) -> bool {
    let of_node = function.starts_with("torch::autograd::generated::");
    function.starts_with("torch::autograd::deleteNode(")
        || (of_node && (function.contains("::release_variables(") || function.contains("::~")))
}
