//! The `#[track_memory]` attribute and `#[derive(References)]`. Use them through memtrack-core: the expansions call what
//! is hidden there and changes without notice. Wrong use is a compile error that lists what is supported.

mod args;
mod call;
mod function;
mod impl_block;
mod references;
mod tail;
mod target;

use proc_macro::TokenStream;

/// Follows a function as a scope: what it allocates is attributed to it.
///
/// | form | the scope is |
/// |---|---|
/// | `#[track_memory]`, `(operator)` | an operator: the unit of the tracker's series |
/// | `(module)` | a module: part of the path |
/// | `(root)` | the outermost module: marks `fw_start` and `fw_bw_boundary`; not part of the path |
/// | `(backward)`, `(optimizer)` | a phase |
///
/// An operator is named after its function; a module or root after the type of its method (the last segment, without
/// generics), or after the function where there is no `self`; `name = "…"` overrides. The operator `matmul` called
/// in the module `Attention` called in the module `Encoder` is `Encoder.Attention.forward.matmul`.
///
/// ```
/// use memtrack_core::track_memory;
///
/// struct Linear {
///     weights: Vec<f32>,
/// }
///
/// impl Linear {
///     #[track_memory(module)]
///     fn forward(&self, input: &[f32]) -> Vec<f32> {
///         multiply(&self.weights, input)
///     }
/// }
///
/// #[track_memory]
/// fn multiply(weights: &[f32], input: &[f32]) -> Vec<f32> {
///     weights.iter().zip(input).map(|(weight, input)| weight * input).collect()
/// }
/// # assert_eq!(Linear { weights: vec![2.0] }.forward(&[3.0]), [6.0]);
/// ```
///
/// Where operators are recorded (`Options::operators`), the arguments and the result of operators, backward passes and
/// optimizer steps are read if their types implement `ReportTensors`: a framework's tensors, also in references, `Option`,
/// `Result`, `Vec`, slices and tuples. Arguments need a name. The result is what stands at the end of the function; what
/// `return` and `?` return early, `impl Trait` results, and everything of an `async fn` are not read, and can be
/// reported with `memtrack_core::operators`.
///
/// It works on functions, methods, default methods of traits, and generic, `unsafe` and `extern` functions. In an
/// `async fn`, the scope follows the future between threads. The same is true for a function that ends in an `async`
/// block or in `Box::pin` of one, as `async-trait` writes them (what such a function does before that block is outside
/// the scope).
///
/// On an `impl` block, it applies to every function in it; with the form `module` or `root`, all of them are named
/// after the type. A function in it can have a form of its own, or be left out:
///
/// ```
/// # use memtrack_core::track_memory;
/// # struct Attention;
/// #[track_memory]
/// impl Attention {
///     #[track_memory(module, name = "attn")]
///     fn forward(&self) {
///         self.scores();
///     }
///
///     fn scores(&self) {} // the operator `scores`
///
///     #[track_memory(skip)]
///     fn heads(&self) -> usize {
///         8
///     }
/// }
/// # Attention.forward();
/// # assert_eq!(Attention.heads(), 8);
/// ```
///
/// `crate = path` says where memtrack-core is, for crates that re-export it.
///
/// **Cost.** One relaxed load and a branch while nothing is monitored; nothing at all where memtrack-core is built
/// without its `record` feature. The expansion contains no `unsafe`.
#[proc_macro_attribute]
pub fn track_memory(args: TokenStream, item: TokenStream) -> TokenStream {
    target::expand(args.into(), item.into()).into()
}

/// Tells memtrack what a value refers to.
#[proc_macro_derive(References, attributes(references))]
pub fn derive_references(item: TokenStream) -> TokenStream {
    references::expand(item.into()).into()
}
