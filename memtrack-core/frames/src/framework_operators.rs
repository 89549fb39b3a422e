//! Names operators after the functions in a stack when no scope names them, first using the user's patterns and then
//! tables for well-known frameworks. `attribution` calls [`Patterns::name_of`] once per distinct stack.
//!
//! A pattern is matched against a function's plain path ([`plain_path`]), and `*` stands for any characters. There are
//! three groups of patterns: the user's patterns, the tensor libraries, and the layers below them. They are tried in
//! this order, and the first group that matches any frame of the stack determines the name.
//!
//! A library's operator is the function that the user of the library calls: the innermost function that is an operator
//! on tensors (`Library::operators`) or, if operators call one another, the outermost of them. So `Tensor::sqrt`, a
//! backend's `float_sqrt` and any closures inside them are `burn.sqrt`, and `Tensor::zeros_impl` is `candle.zeros`.
//! Operators called by a module's `forward` or by a `backward` keep their own names. If none of the functions is an
//! operator, the name is that of the library's innermost function, including the type if it is a method, as in
//! `candle.Linear.forward`. Closures for which only the file is known are ignored.
//!
//! If one of the user's patterns matches, the innermost matching function is used, and the name starts with that
//! function's crate.
//!
//! The layers below the libraries (cudarc, cust, cubecl and allocation functions) only show how memory was obtained, so
//! the operator is named after the first function outside of them, as in `my_crate.scores`. If there is no such
//! function, the operator is named after the layer itself.

use crate::trim::is_plumbing;
use memtrack_model::Frame;
use memtrack_symbols::names::plain_path;

/// A tensor library, whose operators are the functions that its users call.
#[derive(Debug)]
struct Library {
    name: &'static str,
    /// Patterns for all of the library's functions.
    functions: &'static [&'static str],
    /// Patterns for the functions that are operators on tensors.
    operators: &'static [&'static str],
    /// Prefixes of variants of an operator, such as those for one kind of tensor. A function whose name starts with one
    /// is an operator too, and the operator's name omits the prefix.
    prefixes: &'static [&'static str],
    /// Patterns for the functions that may appear between an operator and the operators that it calls. All other
    /// functions, such as modules and optimizers, are callers of operators.
    internal: &'static [&'static str],
}

const LIBRARIES: [Library; 4] = [
    Library {
        name: "candle",
        functions: &[
            "candle_core::Tensor::*",
            "candle_core::tensor::*",
            "candle_core::tensor_cat::*",
            "candle_core::custom_op::*",
            "candle_core::conv::*",
            "candle_core::indexer::*",
            "candle_core::sort::*",
            "candle_core::variable::*",
            "candle_core::backprop::*",
            "candle_core::quantized::*",
            "candle_core::safetensors::*",
            "candle_nn::*",
            "candle_transformers::*",
        ],
        operators: &[
            "candle_core::Tensor::*",
            "candle_core::tensor::*",
            "candle_core::tensor_cat::*",
            "candle_core::custom_op::*",
            "candle_core::conv::*",
            "candle_core::indexer::*",
            "candle_core::sort::*",
            "candle_nn::ops::*",
            "candle_nn::loss::*",
        ],
        prefixes: &[],
        internal: &["candle_core::*"],
    },
    Library {
        name: "burn",
        functions: &["burn::*", "burn_*::*"],
        operators: &[
            "burn_tensor::Tensor::*",
            "burn_tensor::tensor::api::*",
            "burn_tensor::tensor::activation::*",
            "burn_tensor::tensor::linalg::*",
            "burn_tensor::tensor::loss::*",
            "burn_tensor::tensor::module::*",
        ],
        // The methods of any backend's `FloatTensorOps`, `IntTensorOps`, `BoolTensorOps` and `QTensorOps`.
        prefixes: &["float_", "int_", "bool_", "q_"],
        internal: &[
            "burn_tensor::*",
            "burn_backend*::*",
            "burn_dispatch::*",
            "burn_autodiff::*",
            "burn_fusion::*",
            "burn_router::*",
            "burn_ir::*",
            "burn_common::*",
            "burn_std::*",
            "burn_ndarray::*",
            "burn_flex::*",
            "burn_candle::*",
            "burn_tch::*",
            "burn_cubecl*::*",
            "burn_jit::*",
            "burn_wgpu::*",
            "burn_cuda::*",
            "burn_rocm::*",
            "burn_hip::*",
            "burn_cpu::*",
            "burn_remote::*",
        ],
    },
    Library {
        name: "tch",
        functions: &["tch::*"],
        operators: &["tch::Tensor::*", "tch::tensor::*", "tch::wrappers::*"],
        // `f_` functions return a `Result` instead of panicking.
        prefixes: &["f_", "g_"],
        internal: &["tch::*"],
    },
    Library {
        name: "ort",
        functions: &["ort::*"],
        operators: &["ort::*"],
        prefixes: &[],
        internal: &["ort::*"],
    },
];

/// Names of functions that call operators but are never operators themselves, wherever they appear in a stack.
const OPERATOR_CALLERS: [&str; 7] =
    ["forward", "forward_t", "backward", "backward_step", "run_backward", "step", "backward_impl"];

/// Tensor methods that are not operators because they only forward to an operator or copy a handle.
const NOT_OPERATORS: [&str; 10] = [
    "apply_op1",
    "apply_op1_arc",
    "apply_op1_no_bwd",
    "apply_op2",
    "apply_op2_arc",
    "apply_op2_no_bwd",
    "apply_op3",
    "apply_op3_arc",
    "apply_op3_no_bwd",
    "clone",
];

/// Helper-function suffixes to strip from an operator's name.
const HELPER_SUFFIXES: [&str; 2] = ["_impl", "_inner"];

/// The layers below the tensor libraries. They matter only if the stack contains no library, in which case the operator
/// is named after their caller.
const LOWER_LAYERS: [(&str, &str); 4] =
    [("cubecl*::*", "cubecl"), ("cudarc::*", "cudarc"), ("cust::*", "cust"), ("cust_*::*", "cust")];

/// The user's patterns and the built-in patterns that name operators.
#[derive(Clone, Debug)]
pub struct Patterns {
    user_patterns: Vec<String>,
    with_layers: bool,
}

impl Default for Patterns {
    fn default() -> Self {
        Self { user_patterns: Vec::new(), with_layers: true }
    }
}

impl Patterns {
    /// Returns the same patterns without the layers below the libraries.
    pub fn without_layers(&self) -> Self {
        Self { with_layers: false, ..self.clone() }
    }

    /// Adds a pattern, such as `my_crate::ops::*`, that is tried before the built-in ones.
    pub fn with(mut self, glob: impl Into<String>) -> Self {
        self.user_patterns.push(glob.into());
        self
    }

    /// Returns the operator that a stack (innermost frame first) belongs to, or `None` if no pattern matches. Functions
    /// known only by their file, such as inlined closures, are ignored.
    pub fn name_of(&self, frames: &[Frame]) -> Option<String> {
        let named = frames.iter().filter(|frame| !is_known_only_by_file(frame));
        self.name_functions(named.map(|frame| Function::new(&frame.function)).collect())
    }

    /// Returns whether a stack with this frame may have a name. A stack without any such frame has none.
    pub fn may_name(&self, frame: &Frame) -> bool {
        let function = Function::new(&frame.function);
        let is_layer = || LOWER_LAYERS.iter().any(|(glob, _)| matches(glob, &function.path));
        self.user_patterns.iter().any(|glob| matches(glob, &function.path))
            || function.library().is_some()
            || (self.with_layers && is_layer())
    }

    fn name_functions(&self, functions: Vec<Function<'_>>) -> Option<String> {
        let is_own =
            |function: &&Function<'_>| self.user_patterns.iter().any(|glob| matches(glob, &function.path));
        if let Some(own) = functions.iter().find(is_own) {
            return Some(operator_name(&own.path, None));
        }
        name_by_libraries(&functions).or_else(|| self.name_by_layers(&functions))
    }

    fn name_by_layers(&self, functions: &[Function<'_>]) -> Option<String> {
        let layer = |function: &Function<'_>| {
            let layer = LOWER_LAYERS.iter().find(|(glob, _)| matches(glob, &function.path));
            layer.filter(|_| self.with_layers).map(|&(_, name)| name)
        };
        let (place, name) =
            functions.iter().enumerate().find_map(|(place, function)| Some((place, layer(function)?)))?;
        // A path without a crate is that of a C function or of the program's entry point, which says little about the
        // caller.
        let is_informative = |function: &&Function<'_>| {
            function.path.contains("::") && layer(function).is_none() && !is_plumbing(function.raw)
        };
        let caller = functions[place..].iter().find(is_informative);
        Some(match caller {
            Some(caller) => operator_name(&caller.path, None),
            None => operator_name(&functions[place].path, Some(name)),
        })
    }
}

/// A function in a stack.
struct Function<'a> {
    raw: &'a str,
    /// The plain path, without generic arguments.
    path: String,
}

impl<'a> Function<'a> {
    fn new(raw: &'a str) -> Self {
        Self { raw, path: plain_path(raw) }
    }

    fn library(&self) -> Option<&'static Library> {
        LIBRARIES.iter().find(|library| any_matches(library.functions, &self.path))
    }

    /// Returns the last segment of the path.
    fn last_segment(&self) -> &str {
        self.path.rsplit("::").next().unwrap_or(&self.path)
    }
}

/// Returns whether a function is known only by its file. This happens with inlined closures if their debug information
/// has neither a path nor the enclosing function. The symbolizer then derives the path from the file, so the path ends
/// in a module or in the word `closure`.
fn is_known_only_by_file(frame: &Frame) -> bool {
    let path = plain_path(&frame.function);
    let (modules, last) = path.rsplit_once("::").unwrap_or(("", &path));
    if path.is_empty() || (last == "closure" && !modules.is_empty()) {
        return true;
    }
    let is_closure = ["{closure", "{{closure", "{async_"].iter().any(|kind| frame.function.contains(kind));
    let Some(file) = frame.file.as_deref().filter(|_| is_closure) else { return false };
    let mut outwards = file.trim_end_matches(".rs").rsplit(['/', '\\']);
    match outwards.next() {
        // The path is just the crate.
        Some("lib" | "main") => modules.is_empty(),
        Some("mod") => outwards.next() == Some(last),
        file => file == Some(last),
    }
}

fn any_matches(globs: &[&str], path: &str) -> bool {
    globs.iter().any(|glob| matches(glob, path))
}

/// Returns the operator named by the functions of tensor libraries.
fn name_by_libraries(functions: &[Function<'_>]) -> Option<String> {
    let (mut place, mut library) =
        functions.iter().enumerate().find_map(|(place, function)| Some((place, function.library()?)))?;
    loop {
        let (found, next) = find_operator(library, functions, place);
        // If another library calls this one as its backend, the calling library names the operator.
        let caller = functions[next..].iter().position(|function| !is_plumbing(function.raw));
        let caller = caller.map(|caller| next + caller);
        match caller.and_then(|caller| Some((caller, functions[caller].library()?))) {
            Some((caller, of)) if of.name != library.name => (place, library) = (caller, of),
            _ => {
                return Some(match found {
                    Some(found) => library.operator_name(&functions[found].path),
                    None => operator_name(&functions[place].path, Some(library.name)),
                });
            }
        }
    }
}

/// Returns the index of the outermost operator of `library` in the chain of the library's calls that ends in the
/// function at `place`, if there is one. Also returns the index just past the outermost function of this chain.
fn find_operator(library: &Library, functions: &[Function<'_>], place: usize) -> (Option<usize>, usize) {
    let mut found = None;
    let mut end = place + 1;
    for (at, function) in functions.iter().enumerate().skip(place) {
        let path = &function.path;
        if is_plumbing(function.raw) {
            continue;
        }
        if !any_matches(library.functions, path) {
            if function.library().is_none()
                && found.is_none()
                && any_matches(library.internal, &functions[place].path)
            {
                // A backend's closures may be run by code outside the library. It is part of the same call, so skip it.
                continue;
            }
            break;
        }
        if OPERATOR_CALLERS.contains(&function.last_segment()) {
            break;
        }
        if library.is_operator(function) {
            found = Some(at);
        } else if !any_matches(library.internal, path) && !NOT_OPERATORS.contains(&function.last_segment()) {
            break;
        }
        end = at + 1;
    }
    (found, end)
}

impl Library {
    fn is_operator(&self, function: &Function<'_>) -> bool {
        let name = function.last_segment();
        // Methods of types other than `Tensor` are not operators.
        let type_name = type_of_method(&function.path).filter(|&of| of != "Tensor");
        !NOT_OPERATORS.contains(&name)
            && (self.prefixes.iter().any(|prefix| name.starts_with(prefix))
                || (any_matches(self.operators, &function.path)
                    && (type_name.is_none() || self.name == "ort")))
    }

    /// Returns the operator name for the function with this path.
    fn operator_name(&self, path: &str) -> String {
        let name = operator_name(path, Some(self.name));
        let (owner, function) = name.rsplit_once('.').unwrap_or(("", &name));
        let short = self.prefixes.iter().find_map(|prefix| function.strip_prefix(prefix));
        let owner = if short.is_some() { self.name } else { owner };
        let function = short.unwrap_or(function);
        let without_ending = HELPER_SUFFIXES.iter().find_map(|ending| function.strip_suffix(ending));
        format!("{owner}.{}", without_ending.filter(|short| !short.is_empty()).unwrap_or(function))
    }
}

/// Returns the type to which a method belongs; `None` if the path is not that of a method.
fn type_of_method(path: &str) -> Option<&str> {
    path.rsplit("::").nth(1).filter(|segment| segment.starts_with(char::is_uppercase))
}

fn operator_name(path: &str, library: Option<&str>) -> String {
    let function = path.rsplit("::").next().unwrap_or(path);
    let owner = type_of_method(path).filter(|&owner| owner != "Tensor");
    let library = library.or_else(|| path.split_once("::").map(|(first, _)| first));
    [library, owner, Some(function)].into_iter().flatten().collect::<Vec<_>>().join(".")
}

/// Returns whether `glob` matches all of `text`. In the worst case, this takes time proportional to the product of
/// their lengths.
pub fn matches(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut g, mut t) = (0, 0);
    // The positions in `glob` and `text` just after the last star and the characters that it matches. If what follows
    // does not match, the star is extended by one character.
    let mut retry = None;
    while t < text.len() {
        if glob.get(g) == Some(&b'*') {
            retry = Some((g + 1, t));
            g += 1;
        } else if glob.get(g) == Some(&text[t]) {
            (g, t) = (g + 1, t + 1);
        } else if let Some((after_star, from)) = retry {
            retry = Some((after_star, from + 1));
            (g, t) = (after_star, from + 1);
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Patterns {
        /// Names the operator of a stack, innermost function first.
        fn name<'a>(&self, functions: impl IntoIterator<Item = &'a str>) -> Option<String> {
            self.name_functions(functions.into_iter().map(Function::new).collect())
        }
    }

    #[test]
    fn globs_match_paths_and_wildcards() {
        for (glob, text, expected) in [
            ("a::*", "a::b::c", true),
            ("a::*", "ab::c", false),
            ("burn_*::*", "burn_ndarray::ops::add", true),
            ("*::ops::*", "my::ops::f", true),
            ("*ab*ab", "xababab", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(glob, text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn innermost_function_of_library_names_operator() {
        let stack = [
            "alloc::vec::Vec<T>::with_capacity",
            "candle_core::storage::Storage::matmul",
            "<candle_core::tensor::Tensor>::matmul",
            "<candle_nn::linear::Linear as candle_core::Module>::forward",
            "app::model::forward",
        ];
        assert_eq!(Patterns::default().name(stack).as_deref(), Some("candle.matmul"));
        assert_eq!(Patterns::default().name(stack[3..].to_vec()).as_deref(), Some("candle.Linear.forward"));
        assert_eq!(Patterns::default().name(["app::model::forward"]), None);
        assert_eq!(
            Patterns::default().with("app::*").name(stack).as_deref(),
            Some("app.forward"),
            "the user's own patterns come first"
        );
    }

    #[test]
    fn operator_of_burn_has_one_name_in_all_backends_and_forms() {
        let dispatch = [
            "burn_dispatch::ops::tensor::<impl burn_backend::backend::ops::tensor::FloatTensorOps<burn_dispatch::backend::Dispatch> for burn_dispatch::backend::Dispatch>::float_sqrt",
            "burn_tensor::tensor::api::float::<impl burn_tensor::tensor::api::base::Tensor<_,K>>::sqrt",
            "app::main",
        ];
        for inner in [
            // Closures, trait methods and inlined functions, in both mangling schemes.
            "<burn_ndarray::backend::NdArray as burn_backend::backend::ops::tensor::FloatTensorOps<burn_ndarray::backend::NdArray>>::float_sqrt::{closure#0}",
            "burn_ndarray::ops::tensor::<impl burn_backend::FloatTensorOps<burn_ndarray::NdArray<E,I,Q>> for burn_ndarray::NdArray<E,I,Q>>::float_sqrt::{{closure}}",
            "burn_ndarray::ops::base::NdArrayMathOps<E>::sqrt",
            "burn_ndarray::ops::tensor::float_sqrt",
            "<burn_cubecl::backend::CubeBackend<R> as burn_backend::FloatTensorOps<burn_cubecl::backend::CubeBackend<R>>>::float_sqrt",
            "<burn_autodiff::backend::Autodiff<B, C> as burn_backend::FloatTensorOps<burn_autodiff::backend::Autodiff<B, C>>>::float_sqrt",
            "<burn_fusion::backend::Fusion<B> as burn_backend::FloatTensorOps<burn_fusion::backend::Fusion<B>>>::float_sqrt",
            "<tch::wrappers::tensor::Tensor>::f_sqrt",
        ] {
            let stack: Vec<&str> = std::iter::once(inner).chain(dispatch).collect();
            assert_eq!(Patterns::default().name(stack).as_deref(), Some("burn.sqrt"), "{inner}");
        }
        for (stack, name) in [
            // The public function's frame is missing.
            (&["burn_ndarray::ops::tensor::float_sqrt", "app::main"][..], "burn.sqrt"),
            (&["burn_ndarray::ops::int_tensor::int_add", "app::main"], "burn.add"),
            (&["burn_ndarray::ops::qtensor::q_reshape", "app::main"], "burn.reshape"),
            (&["burn_tensor::tensor::api::numeric::mul", "app::main"], "burn.mul"),
            (
                &[
                    "burn_ndarray::ops::base::NdArrayOps<E>::reshape",
                    "<burn_ndarray::NdArray as burn_backend::IntTensorOps>::int_reshape",
                ],
                "burn.reshape",
            ),
            (
                &[
                    "burn_ndarray::element::exp_elem",
                    "<ndarray::ArrayBase<S, D>>::mapv::<f32>",
                    "burn_ndarray::ops::tensor::float_exp",
                ],
                "burn.exp",
            ),
            (
                &[
                    "burn_ndarray::ops::tensor::float_exp",
                    "<burn_tensor::tensor::api::base::Tensor<2>>::exp",
                    "burn_tensor::tensor::activation::base::softmax",
                    "<app::Model>::forward",
                ],
                "burn.softmax",
            ),
            // Functions called by the backward pass and by a module.
            (
                &[
                    "burn_ndarray::ops::tensor::float_div",
                    "<<burn_autodiff::Autodiff<B> as burn_backend::FloatTensorOps>::float_sqrt::Sqrt as burn_autodiff::ops::Backward<B, 1>>::backward",
                    "<burn_tensor::tensor::api::base::Tensor<1>>::backward",
                ],
                "burn.div",
            ),
            (
                &["burn_ndarray::ops::tensor::float_matmul", "burn_nn::modules::linear::Linear::forward"],
                "burn.matmul",
            ),
            (&["burn_nn::modules::linear::LinearConfig::init", "app::main"], "burn.LinearConfig.init"),
            (
                &[
                    "<burn_autodiff::tensor::AutodiffTensor<B> as core::clone::Clone>::clone",
                    "<burn_tensor::tensor::api::base::Tensor<2> as core::clone::Clone>::clone",
                    "app::main",
                ],
                "burn.AutodiffTensor.clone",
            ),
        ] {
            assert_eq!(Patterns::default().name(stack.iter().copied()).as_deref(), Some(name), "{stack:?}");
        }
    }

    #[test]
    fn operators_of_other_libraries_are_functions_that_users_call() {
        for (stack, name) in [
            (
                &["<candle_core::tensor::Tensor>::zeros_impl", "<candle_core::tensor::Tensor>::zeros"][..],
                "candle.zeros",
            ),
            (&["<candle_core::tensor::Tensor>::zeros_impl"], "candle.zeros"),
            (&["candle_core::tensor::matmul", "app::main"], "candle.matmul"),
            (
                &[
                    "<&candle_core::tensor::Tensor as core::ops::arith::Add<&candle_core::tensor::Tensor>>::add",
                    "app::main",
                ],
                "candle.add",
            ),
            (
                &[
                    "candle_core::custom_op::<impl candle_core::tensor::Tensor>::apply_op1_no_bwd",
                    "candle_nn::ops::sigmoid",
                ],
                "candle.sigmoid",
            ),
            (
                &[
                    "<candle_core::tensor::Tensor>::zeros_like",
                    "<candle_core::backprop::GradStore>::or_insert",
                    "candle_core::backprop::<impl candle_core::tensor::Tensor>::backward",
                ],
                "candle.zeros_like",
            ),
            (
                &[
                    "<candle_core::backprop::GradStore>::or_insert",
                    "candle_core::backprop::<impl candle_core::tensor::Tensor>::backward",
                ],
                "candle.GradStore.or_insert",
            ),
            (
                &[
                    "torch_sys::c_generated::atg_matmul",
                    "tch::wrappers::tensor_fallible_generated::<impl tch::wrappers::tensor::Tensor>::f_matmul",
                    "tch::wrappers::tensor_generated::<impl tch::wrappers::tensor::Tensor>::matmul",
                    "app::main",
                ],
                "tch.matmul",
            ),
            (&["tch::wrappers::tensor_fallible_generated::f_matmul", "app::main"], "tch.matmul"),
            (
                &[
                    "ort::value::impl_tensor::create::allocate",
                    "ort::session::Session::run_inner",
                    "ort::session::Session::run::<4>",
                    "app::main",
                ],
                "ort.Session.run",
            ),
        ] {
            assert_eq!(Patterns::default().name(stack.iter().copied()).as_deref(), Some(name), "{stack:?}");
        }
    }

    #[test]
    fn functions_known_only_by_file_are_ignored() {
        let frame = |function: &str, file: &str| Frame {
            function: function.into(),
            file: Some(file.into()),
            line: Some(7),
            ..Frame::default()
        };
        let inlined = frame(
            "burn_ndarray::ops::tensor::{closure#0}<f32>",
            "/root/.cargo/registry/src/index/burn-ndarray-0.22.1/src/ops/tensor.rs",
        );
        let sqrt = frame("burn_ndarray::ops::tensor::float_sqrt", "/x/burn-ndarray-0.22.1/src/ops/tensor.rs");
        let name = |frames: &[Frame]| Patterns::default().name_of(frames);
        assert_eq!(name(&[inlined.clone(), sqrt]).as_deref(), Some("burn.sqrt"));
        assert_eq!(name(&[inlined]), None);
        assert_eq!(name(&[frame("burn_ndarray::ops::tensor::closure", "/x/src/ops/tensor.rs")]), None);
        let of_folder = frame("burn_tensor::tensor::{{closure}}", "/x/burn-tensor-0.16.0/src/tensor/mod.rs");
        assert_eq!(name(&[of_folder]), None);
        let in_a_function =
            frame("burn_ndarray::ops::tensor::float_sqrt::{closure#0}", "/x/src/ops/tensor.rs");
        assert_eq!(name(&[in_a_function]).as_deref(), Some("burn.sqrt"));
        let closure = frame("my_app::{closure_env#1}", "/work/my-app/src/main.rs");
        let cudarc = frame("cudarc::driver::sys::cuMemAllocAsync", "/x/cudarc-0.19.1/src/driver/sys.rs");
        let caller = frame("my_app::load", "/work/my-app/src/main.rs");
        assert_eq!(name(&[cudarc, closure.clone(), caller.clone()]).as_deref(), Some("my_app.load"));
        let own = Patterns::default().with("*").name_of(&[closure, caller]);
        assert_eq!(own.as_deref(), Some("my_app.load"));
    }

    #[test]
    fn library_takes_precedence_over_layer_below_it() {
        let stack =
            ["cudarc::driver::safe::core::CudaStream::alloc", "tch::wrappers::tensor::Tensor::matmul"];
        assert_eq!(Patterns::default().name(stack).as_deref(), Some("tch.matmul"));
    }

    #[test]
    fn layers_below_name_their_caller() {
        let stack = [
            "cuMemAllocAsync",
            "cudarc::driver::sys::cuMemAllocAsync",
            "<cudarc::driver::safe::core::CudaStream>::alloc_zeros::<f32>",
            "core::ops::function::FnOnce::call_once",
            "<app::model::Layer<T>>::new",
            "app::main",
            "std::rt::lang_start",
            "main",
        ];
        let name = |stack: &[&str]| Patterns::default().name(stack.iter().copied());
        assert_eq!(name(&stack).as_deref(), Some("app.Layer.new"));
        assert_eq!(
            name(&stack[..4]).as_deref(),
            Some("cudarc.cuMemAllocAsync"),
            "no other function is there"
        );
        assert_eq!(name(&[stack[1], "main", "__libc_start_main"]).as_deref(), Some("cudarc.cuMemAllocAsync"));
        // Functions called by the layer did not request the memory, so they are skipped. A stack without the layer has
        // no name.
        assert_eq!(name(&["other::hook", stack[1], stack[5]]).as_deref(), Some("app.main"));
        assert_eq!(name(&["other::hook", stack[5]]), None);
        let own = Patterns::default().with("cudarc::*").name(stack);
        assert_eq!(own.as_deref(), Some("cudarc.cuMemAllocAsync"), "the user's own patterns come first");
    }
}
