//! Which functions name an operator where no scope does: the user's own patterns, then a table for well-known
//! frameworks. `attribution` calls [`Patterns::name`] once per distinct stack.
//!
//! A pattern is matched against the plain path of a function ([`plain_path`]); `*` stands for any characters. The
//! patterns form groups: the user's, then those of the tensor libraries, then those of the layers below. The first
//! group that matches any frame of the stack decides, and in it the innermost matching frame names the operator:
//!
//! `{library}.{function}`, as `candle.matmul` for `candle_core::tensor::Tensor::matmul`. A method of a type other than
//! `Tensor` keeps the type: `candle.Linear.forward`. For the user's own patterns the library is the function's crate.
//!
//! The layers below, cudarc, cust, cubecl and what carries an allocation out, only say how memory was obtained: there
//! the first function outside of them names the operator, `my_crate.scores`, and the layer itself only where there is
//! none.

use super::trim::is_plumbing;
use memtrack_symbols::names::plain_path;

/// Tensor libraries: what a user calls an operator is a function of theirs.
const LIBRARIES: [(&str, &str); 11] = [
    ("candle_core::tensor::Tensor::*", "candle"),
    ("candle_core::variable::Var::*", "candle"),
    ("candle_core::backprop::*", "candle"),
    ("candle_core::quantized::*", "candle"),
    ("candle_core::safetensors::*", "candle"),
    ("candle_nn::*", "candle"),
    ("candle_transformers::*", "candle"),
    ("burn::*", "burn"),
    ("burn_*::*", "burn"),
    ("tch::*", "tch"),
    ("ort::*", "ort"),
];

/// What those stand on; says something of a stack only when no library does, and names its caller.
const LAYERS_BELOW: [(&str, &str); 4] =
    [("cubecl*::*", "cubecl"), ("cudarc::*", "cudarc"), ("cust::*", "cust"), ("cust_*::*", "cust")];

#[derive(Clone, Debug)]
struct Pattern {
    glob: String,
    /// None: the crate of the function.
    library: Option<&'static str>,
}

/// The patterns, in the order in which they are tried.
#[derive(Clone, Debug)]
pub struct Patterns {
    own: Vec<Pattern>,
    libraries: Vec<Pattern>,
    layers_below: Vec<Pattern>,
}

impl Default for Patterns {
    fn default() -> Self {
        let table = |rows: &[(&str, &'static str)]| {
            let row = |&(glob, library): &(&str, &'static str)| Pattern {
                glob: glob.into(),
                library: Some(library),
            };
            rows.iter().map(row).collect()
        };
        Self { own: Vec::new(), libraries: table(&LIBRARIES), layers_below: table(&LAYERS_BELOW) }
    }
}

impl Patterns {
    /// The same without the layers below the libraries.
    pub(super) fn without_layers(&self) -> Self {
        Self { layers_below: Vec::new(), ..self.clone() }
    }

    /// Adds a pattern, such as `my_crate::ops::*`, which is tried before the built-in ones.
    pub fn with(mut self, glob: impl Into<String>) -> Self {
        self.own.push(Pattern { glob: glob.into(), library: None });
        self
    }

    /// The operator that a stack of functions (innermost first) belongs to; none when no pattern matches.
    pub fn name<'a>(&self, functions: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let functions: Vec<&str> = functions.into_iter().collect();
        let paths: Vec<String> = functions.iter().map(|function| plain_path(function)).collect();
        let innermost = |group: &[Pattern]| {
            paths.iter().enumerate().find_map(|(place, path)| {
                let pattern = group.iter().find(|pattern| matches(&pattern.glob, path))?;
                Some((place, operator(path, pattern.library)))
            })
        };
        if let Some((_, name)) = innermost(&self.own).or_else(|| innermost(&self.libraries)) {
            return Some(name);
        }
        let (place, layer) = innermost(&self.layers_below)?;
        let is_below = |path: &str| self.layers_below.iter().any(|pattern| matches(&pattern.glob, path));
        // A name without a crate is C's, or the program's beginning.
        let says_something = |place: &usize| {
            let path = &paths[*place];
            path.contains("::") && !is_below(path) && !is_plumbing(functions[*place])
        };
        let caller = (place..paths.len()).find(says_something);
        Some(caller.map_or(layer, |caller| operator(&paths[caller], None)))
    }
}

fn operator(path: &str, library: Option<&str>) -> String {
    let mut segments = path.rsplit("::");
    let function = segments.next().unwrap_or(path);
    let owner = segments.next().filter(|s| s.starts_with(char::is_uppercase) && *s != "Tensor");
    let library = library.or_else(|| path.split_once("::").map(|(first, _)| first));
    [library, owner, Some(function)].into_iter().flatten().collect::<Vec<_>>().join(".")
}

/// Whether `glob` matches all of `text`. Takes time proportional to the product of their lengths at worst.
pub(crate) fn matches(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut g, mut t) = (0, 0);
    // Where to go on when what follows the last star does not match: one character more for the star.
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

    #[test]
    fn globs_match_as_people_expect() {
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
    fn the_innermost_function_of_a_library_names_the_operator() {
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
    fn a_library_goes_before_the_layer_below_it() {
        let stack =
            ["cudarc::driver::safe::core::CudaStream::alloc", "tch::wrappers::tensor::Tensor::matmul"];
        assert_eq!(Patterns::default().name(stack).as_deref(), Some("tch.matmul"));
    }

    #[test]
    fn the_layers_below_name_their_caller() {
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
        assert_eq!(name(&stack[..4]).as_deref(), Some("cudarc.cuMemAllocAsync"), "nobody else is there");
        assert_eq!(name(&[stack[1], "main", "__libc_start_main"]).as_deref(), Some("cudarc.cuMemAllocAsync"));
        // What is inside of the layer asked for nothing, and a stack without one is named by nobody.
        assert_eq!(name(&["other::hook", stack[1], stack[5]]).as_deref(), Some("app.main"));
        assert_eq!(name(&["other::hook", stack[5]]), None);
        let own = Patterns::default().with("cudarc::*").name(stack);
        assert_eq!(own.as_deref(), Some("cudarc.cuMemAllocAsync"), "the user's own patterns come first");
    }
}
