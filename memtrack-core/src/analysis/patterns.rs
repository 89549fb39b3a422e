//! Which functions name an operator where no scope does: a table for the frameworks we know, and the user's own
//! patterns before it. `attribution` asks [`Patterns::name`] once per distinct stack.
//!
//! A pattern is matched against the plain path of a function ([`plain_path`]); `*` stands for any characters. The
//! patterns form groups: the user's, then those of the tensor libraries, then those of the layers below. The first
//! group that matches any frame of the stack decides, and in it the innermost matching frame names the operator:
//!
//! `{library}.{function}`, as `candle.matmul` for `candle_core::tensor::Tensor::matmul`. A method of a type other than
//! `Tensor` keeps the type: `candle.Linear.forward`. For the user's own patterns the library is the function's crate.

use crate::stack::names::plain_path;

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

/// What those stand on; names a stack only when no library does.
const LAYERS_BELOW: [(&str, &str); 2] = [("cubecl*::*", "cubecl"), ("cudarc::*", "cudarc")];

#[derive(Clone, Debug)]
struct Pattern {
    glob: String,
    /// None: the crate of the function.
    library: Option<&'static str>,
}

/// The patterns, in the order in which they are asked.
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

    /// Adds a pattern of the user's, such as `my_crate::ops::*`. It goes before the built-in ones.
    pub fn with(mut self, glob: impl Into<String>) -> Self {
        self.own.push(Pattern { glob: glob.into(), library: None });
        self
    }

    /// The operator that a stack of functions (innermost first) belongs to; none when no pattern matches.
    pub fn name<'a>(&self, functions: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let paths: Vec<String> = functions.into_iter().map(plain_path).collect();
        [&self.own, &self.libraries, &self.layers_below].into_iter().find_map(|group| {
            paths.iter().find_map(|path| {
                let pattern = group.iter().find(|pattern| matches(&pattern.glob, path))?;
                Some(operator(path, pattern.library))
            })
        })
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
fn matches(glob: &str, text: &str) -> bool {
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
        assert_eq!(Patterns::default().name(stack[..1].to_vec()).as_deref(), Some("cudarc.CudaStream.alloc"));
    }
}
