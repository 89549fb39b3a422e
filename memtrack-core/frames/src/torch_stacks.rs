//! Infers the operator, phase and modules of an allocation from its PyTorch stack if it has no scope. `attribution`
//! analyzes each distinct stack once. memtrack-profile uses the parsed frames to infer what blocks are for.
//!
//! | result | inferred from |
//! |---|---|
//! | operator `aten::NAME` | the outermost `at::_ops::NAME::call` or `::redispatch` inside the innermost Python frame or autograd node; the overload is part of the name, as in `aten::add_Tensor` |
//! | operator `torch.NAME` | in a profiler's stacks, the `<built-in method NAME …>` that Python called |
//! | `backward` | the autograd engine and autograd nodes, `Tensor.backward`, `torch.autograd.backward` and `grad` |
//! | `optimizer` | Python files below `torch/optim`, functions of C++'s `torch::optim`, fused optimizers |
//! | `forward` | a module, and neither `backward` nor `optimizer` |
//! | modules | in Python stacks, the line (or the class, if the frame names it) inside each call of a module; in a profiler's stacks, the names of modules |
//!
//! If a stack shows both `backward` and `optimizer`, the inner one is the phase, as it is with scopes. Stacks that
//! contain only C++ frames reveal neither the forward phase nor modules.

use crate::language::is_python;
use memtrack_model::paths::{file_name, with_slashes};
use memtrack_model::{Frame, Phase};

/// The operator, phase and modules that can be inferred from a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TorchStack {
    /// The operator that requested the memory, such as `aten::add_Tensor`; `None` if the stack names none.
    pub operator: Option<String>,
    /// The phase of the training step; `None` if the stack does not reveal it.
    pub phase: Option<Phase>,
    /// The modules, outermost first.
    pub modules: Vec<String>,
}

/// Operators that only optimizers call.
const FUSED_OPTIMIZERS: [&str; 4] = ["_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad"];
/// The prefix of module frames in a profiler's stacks.
pub const MODULE_FRAME_PREFIX: &str = "nn.Module: ";

impl TorchStack {
    /// Analyzes a stack, innermost frame first.
    pub fn of(frames: &[Frame]) -> Self {
        let mut stack = Self::default();
        let mut explicit = None;
        // Whether the innermost Python frame or autograd node has been reached. Operators outside it are ignored.
        let mut called = false;
        let mut inner: Option<ParsedFrame<'_>> = None;
        let profiled = frames.iter().any(|frame| frame.function.starts_with(MODULE_FRAME_PREFIX));
        for frame in frames {
            let line = ParsedFrame::of(frame);
            if line.is_python || is_autograd(line.function) {
                called = true;
            } else if let Some(name) = operator(line.function).filter(|_| !called) {
                stack.operator = Some(format!("aten::{name}"));
            }
            explicit = explicit.or_else(|| phase_of(&line));
            if let Some(module) = line.function.strip_prefix(MODULE_FRAME_PREFIX) {
                stack.modules.push(module.to_owned());
            } else if line.is_module_call() && !profiled {
                // PyTorch's call of a module has two frames, one inside the other. Only the first is preceded by a
                // frame of the module itself, so take that frame only once.
                stack.modules.extend(inner.take().map(|inner| inner.module()));
            } else if line.is_python {
                inner = Some(line);
            }
        }
        stack.modules.reverse();
        stack.operator = stack.operator.or_else(|| frames.first().and_then(built_in_name));
        stack.phase = explicit.or((!stack.modules.is_empty()).then_some(Phase::Forward));
        stack
    }

    /// Returns whether a stack with this frame may have an operator, a phase or modules. A stack without any such
    /// frame has none.
    pub fn may_name(frame: &Frame) -> bool {
        let line = ParsedFrame::of(frame);
        operator(line.function).is_some()
            || phase_of(&line).is_some()
            || line.is_module_call()
            || line.function.starts_with(MODULE_FRAME_PREFIX)
            || built_in_name(frame).is_some()
    }
}

/// A frame parsed from its function, file and line, or from a profiler's `file(line): function`.
#[derive(Clone, Copy, Debug)]
pub struct ParsedFrame<'a> {
    /// The file; empty if unknown.
    pub file: &'a str,
    /// The function.
    pub function: &'a str,
    /// The line in the file; `None` if unknown.
    pub line: Option<u32>,
    /// Whether this is a Python frame.
    pub is_python: bool,
}

impl<'a> ParsedFrame<'a> {
    /// Splits a frame into its parts.
    pub fn of(frame: &'a Frame) -> Self {
        let function = frame.function.as_str();
        if let Some((file, rest)) = function.split_once(".py(")
            && let Some((line, function)) = rest.split_once("): ")
        {
            let file = &frame.function[..file.len() + ".py".len()];
            return Self { file, function, line: line.parse().ok(), is_python: true };
        }
        let file = frame.file.as_deref().unwrap_or_default();
        Self { file, function, line: frame.line, is_python: is_python(frame) }
    }

    /// Returns whether this is a Python frame from the file `path` (or, if `path` ends in a slash, from a file below
    /// it). Any folders may precede `path`.
    pub fn is_in(&self, path: &str) -> bool {
        if !self.is_python {
            return false;
        }
        let file = with_slashes(self.file);
        // Few frames are in the file, and this search is the faster one.
        file.contains(path)
            && file.match_indices(path).any(|(at, _)| {
                let begins = at == 0 || file.as_bytes()[at - 1] == b'/';
                begins && (path.ends_with('/') || at + path.len() == file.len())
            })
    }

    /// Returns the function name without its class, which newer Python versions include.
    pub fn method(&self) -> &'a str {
        self.function.rsplit('.').next().unwrap_or(self.function)
    }

    /// Returns whether this is a frame in which PyTorch calls a module.
    pub fn is_module_call(&self) -> bool {
        self.is_in("torch/nn/modules/module.py")
            && matches!(self.method(), "_call_impl" | "_wrapped_call_impl")
    }

    /// Returns the name of the module that the frame belongs to: its class or, failing that, its file and line.
    fn module(&self) -> String {
        if let Some((class, _)) = self.function.rsplit_once('.')
            && !class.ends_with('>')
        {
            return class.rsplit('.').next().unwrap_or(class).to_owned();
        }
        let file = file_name(self.file);
        self.line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
    }
}

/// Returns the phase that this frame starts, which is backward or optimizer; `None` if it starts neither.
pub fn phase_of(line: &ParsedFrame<'_>) -> Option<Phase> {
    let backward = is_autograd(line.function)
        || (line.is_in("torch/autograd/__init__.py") && matches!(line.method(), "backward" | "grad"))
        || (line.is_in("torch/_tensor.py") && line.method() == "backward")
        || line.is_in("torch/autograd/graph.py") && line.method() == "_engine_run_backward";
    if backward {
        return Some(Phase::Backward);
    }
    let fused =
        || operator(line.function).is_some_and(|name| FUSED_OPTIMIZERS.contains(&name.trim_end_matches('_')));
    let optimizer = line.is_in("torch/optim/") || line.function.starts_with("torch::optim::") || fused();
    optimizer.then_some(Phase::Optimizer)
}

/// Returns whether this C++ function runs a backward pass.
fn is_autograd(function: &str) -> bool {
    function.starts_with("torch::autograd::Engine::")
        || function.starts_with("torch::autograd::python::PythonEngine::")
        || function.starts_with("torch::autograd::Node::operator()")
        || (function.starts_with("torch::autograd::generated::") && function.contains("Backward"))
        || function.starts_with("torch::autograd::AccumulateGrad::")
}

/// Extracts `add_Tensor` from `at::_ops::add_Tensor::call(…)`.
pub fn operator(function: &str) -> Option<&str> {
    let (name, rest) = function.strip_prefix("at::_ops::")?.split_once("::")?;
    let dispatch = rest.split('(').next()?;
    matches!(dispatch, "call" | "redispatch").then_some(name)
}

/// Extracts `torch.mul_` from `<built-in method mul_ of Parameter object at 0x0>`.
pub fn built_in_name(frame: &Frame) -> Option<String> {
    let rest = frame.function.strip_prefix("<built-in ")?;
    let name = rest.strip_prefix("method ").or_else(|| rest.strip_prefix("function "))?;
    let name = name.split([' ', '>']).next()?;
    (name != "run_backward").then(|| format!("torch.{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Analyzes frames written as `function` or `function @ file:line`.
    fn analyze(frames: &[&str]) -> (Option<String>, Option<Phase>, String) {
        let frame = |text: &&str| match text.split_once(" @ ") {
            None => Frame { function: (*text).into(), ..Frame::default() },
            Some((function, place)) => {
                let (file, line) = place.rsplit_once(':').unwrap();
                Frame {
                    function: function.into(),
                    file: Some(file.into()),
                    line: line.parse().ok(),
                    binary: None,
                }
            }
        };
        let frames: Vec<Frame> = frames.iter().map(frame).collect();
        let stack = TorchStack::of(&frames);
        assert!(frames.iter().any(TorchStack::may_name) || stack == TorchStack::default(), "{frames:?}");
        let TorchStack { operator, phase, modules } = stack;
        (operator, phase, modules.join(" > "))
    }

    const CALL_FRAME: &str = "_call_impl @ /v/torch/nn/modules/module.py:1790";
    const WRAPPED_CALL_FRAME: &str = "_wrapped_call_impl @ /v/torch/nn/modules/module.py:1779";

    #[test]
    fn operator_is_function_that_python_called() {
        let stack = [
            "at::detail::empty_cuda(c10::ArrayRef<long>)",
            "at::_ops::bmm::redispatch(c10::DispatchKeySet, at::Tensor const&)",
            "torch::autograd::VariableType::(anonymous namespace)::bmm(c10::DispatchKeySet)",
            "at::_ops::bmm::call(at::Tensor const&)",
            "at::_ops::einsum::call(std::basic_string_view<char>)",
            "torch::autograd::THPVariable_einsum(_object*, _object*, _object*)",
            "forward @ /app/model.py:39",
            CALL_FRAME,
            WRAPPED_CALL_FRAME,
            "forward @ /app/model.py:382",
            CALL_FRAME,
            "at::_ops::outer::call(at::Tensor const&)",
            "<module> @ /app/train.py:1",
        ];
        assert_eq!(
            analyze(&stack),
            (Some("aten::einsum".into()), Some(Phase::Forward), "model.py:382 > model.py:39".into())
        );
        assert_eq!(analyze(&["at::_ops::bmm::schema_str"]).0, None);
    }

    #[test]
    fn cpp_stack_reveals_backward_pass() {
        let stack = [
            "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)",
            "torch::autograd::generated::ExpBackward0::apply(std::vector<at::Tensor>&&)",
            "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)",
            "at::_ops::checkpoint::call(at::Tensor const&)",
        ];
        assert_eq!(analyze(&stack), (Some("aten::mul_Tensor".into()), Some(Phase::Backward), String::new()));
        assert_eq!(analyze(&stack[..1]).1, None, "C++ alone may be forward or not");
    }

    #[test]
    fn innermost_of_backward_and_optimizer_is_phase() {
        let step = "wrapper @ /v/torch/optim/optimizer.py:533";
        let backward = "backward @ /v/torch/_tensor.py:566";
        assert_eq!(analyze(&["step @ /app/sgd.py:7", step, "main @ /app/a.py:1"]).1, Some(Phase::Optimizer));
        assert_eq!(analyze(&[backward, "closure @ /app/a.py:3", step]).1, Some(Phase::Backward));
        assert_eq!(analyze(&["forward @ /app/m.py:7", CALL_FRAME, step]).1, Some(Phase::Optimizer));
        assert_eq!(analyze(&["at::_ops::_fused_adamw_::call(at::Tensor const&)"]).1, Some(Phase::Optimizer));
        for other in
            ["step @ /app/mytorch/optim/adam.py:7", "backward @ /app/my_tensor.py:1", "f @ /app/a.py:1"]
        {
            assert_eq!(analyze(&[other]).1, None, "{other}");
        }
    }

    #[test]
    fn class_names_module_if_frame_has_one() {
        let stack = [
            "Linear.forward @ /v/torch/nn/modules/linear.py:134",
            "Module._call_impl @ /v/torch/nn/modules/module.py:9",
        ];
        assert_eq!(analyze(&stack).2, "Linear");
        let local = ["main.<locals>.forward @ /app/a.py:3", CALL_FRAME];
        assert_eq!(analyze(&local).2, "a.py:3");
    }

    #[test]
    fn profiler_frames_are_parsed() {
        let stack = [
            "<built-in method conv2d of type object at 0x0>",
            "torch/nn/modules/conv.py(564): forward",
            "torch/nn/modules/module.py(1791): _call_impl",
            "nn.Module: Conv2d_0",
            "torch/nn/modules/module.py(1791): _call_impl",
            "nn.Module: Sequential_0",
        ];
        let read_back = analyze(&stack);
        assert_eq!((read_back.0.as_deref(), read_back.1), (Some("torch.conv2d"), Some(Phase::Forward)));
        assert_eq!(read_back.2, "Sequential_0 > Conv2d_0");
        let backward = [
            "<built-in method run_backward of torch._C._EngineBase object at 0x0>",
            "torch/autograd/graph.py(1100): _engine_run_backward",
        ];
        assert_eq!(analyze(&backward), (None, Some(Phase::Backward), String::new()));
    }
}
