//! The `#[track_memory]` attribute, `#[derive(References)]`, and `#[limits]` for tests. Use them through memtrack-core,
//! because the expansions call hidden functions of that crate, which may change without notice. Incorrect use is a
//! compile error that lists the supported arguments.
//!
//! The modules:
//!
//! - `#[track_memory]`: `args`, `target` (the annotated item), `function`, `impl_block`, `call` (arguments that may
//!   have tensors), `tail` (returned futures).
//! - `references`: the derive, with `attributes` and `bounds` for type parameters; `limits`: `#[limits]`.

mod args;
mod call;
mod function;
mod impl_block;
mod limits;
mod references;
mod tail;
mod target;

use proc_macro::TokenStream;

#[doc = include_str!("track_memory.md")]
#[proc_macro_attribute]
pub fn track_memory(args: TokenStream, item: TokenStream) -> TokenStream {
    target::expand(args.into(), item.into()).into()
}

#[doc = include_str!("limits.md")]
#[proc_macro_attribute]
pub fn limits(args: TokenStream, item: TokenStream) -> TokenStream {
    limits::expand(args.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements the trait `References`, which reports the references in a value to memtrack, field by field. memtrack
/// uses them to find the cycles of [`Rc`](std::rc::Rc) and [`Arc`](std::sync::Arc) that keep device memory alive.
///
/// ```
/// use memtrack_core::References;
/// use std::cell::RefCell;
/// use std::collections::HashMap;
/// use std::rc::{Rc, Weak};
///
/// #[derive(References)]
/// struct Module {
///     layers: Vec<Rc<RefCell<Layer>>>,      // `.layers[0]`, …
///     hooks: HashMap<String, Rc<dyn Hook>>, // `.hooks["relu"]`, …
///     parent: Weak<Module>,                 // keeps nothing alive
/// }
///
/// #[derive(References)]
/// enum Layer {
///     Dense { weight: Rc<Storage> }, // `::Dense.weight`
///     Repeat(Box<Layer>, usize),     // `::Repeat.0::Dense.weight`, …
/// }
///
/// /// The value behind a `dyn Hook` can be visited.
/// trait Hook: References {
///     fn forward(&self);
/// }
///
/// #[derive(References)]
/// struct Storage {
///     bytes: Vec<u8>, // vectors of numbers are skipped at no cost
/// }
/// ```
///
/// The type of every field must implement the trait. Types in the standard library do, and your own types can derive
/// it. A strong pointer is an edge to its target; a [`Weak`](std::rc::Weak) one is not. Values that a value owns
/// ([`Box`], [`Vec`], maps, cells, locks) are part of it. memtrack does not wait for a lock that is held elsewhere. It
/// reports the lock as not inspected, like everything whose contents cannot be read: a channel, a thread, or a
/// [`Cell`](std::cell::Cell) of a pointer. The targets of pointers in such a value count as held from outside, which
/// may hide a cycle but never reports a false one.
///
/// # On a field
///
/// | attribute | the field |
/// |---|---|
/// | `#[references(skip)]` | holds no counted pointer, so it is left out |
/// | `#[references(opaque)]` | may hold counted pointers, but memtrack cannot inspect it, as with a boxed closure. Reports say that it was not inspected |
/// | `#[references(tensors)]` | is a framework's tensor (`memtrack_core::operators::ReportTensors`), or several of them. Only its device memory is reported |
/// | `#[references(with = path)]` | is visited by this `fn(&FieldType, &mut Visitor<'_>)`, for types from other crates |
/// | `#[references(show)]` | is printed with [`Debug`](std::fmt::Debug) in reports to distinguish values of the type (for example, a name or an id). It is also visited, unless `skip` is given too |
/// | `#[references(rename = "…")]` | has another name in reports |
///
/// At most one of the first four may be given.
///
/// ```
/// use memtrack_core::references::{References, Visitor};
/// use std::rc::Rc;
/// # use memtrack_core::operators::{ReportTensors, TensorReader};
/// # mod other_crate { pub struct Cache(pub std::rc::Rc<[u8]>); pub struct Settings; }
/// # struct Tensor;
/// # impl ReportTensors for Tensor { fn report(&self, _: &mut TensorReader<'_>) {} }
///
/// #[derive(References)]
/// struct Node {
///     #[references(show)]
///     id: u64,
///     #[references(tensors)]
///     gradient: Option<Tensor>,
///     inputs: Vec<Rc<Node>>,
///     #[references(opaque)]
///     backward: Box<dyn Fn(&Tensor)>,
///     #[references(with = visit_cache)]
///     cache: other_crate::Cache,
///     #[references(skip)]
///     settings: other_crate::Settings,
/// }
///
/// fn visit_cache(cache: &other_crate::Cache, to: &mut Visitor<'_>) {
///     to.field("entries", &cache.0); // `.cache.entries`
/// }
/// ```
///
/// memtrack can inspect a closure whose captured values are stored next to it. See
/// `memtrack_core::references::Capturing`.
///
/// # On a variant
///
/// | attribute | the variant |
/// |---|---|
/// | `#[references(skip)]` | holds no counted pointer |
/// | `#[references(opaque)]` | is reported as not inspected |
///
/// # On the type
///
/// | attribute | the type |
/// |---|---|
/// | `#[references(opaque)]` | is reported as not inspected; its fields may have any types. Unions and packed structs need it |
/// | `#[references(bound = "…")]` | has these bounds instead of the derived ones |
/// | `#[references(crate = path)]` | uses memtrack-core from this path, for crates that re-export it |
///
/// # Generic types
///
/// If a field's type depends on a type parameter, the implementation requires that the *field's type* implements the
/// trait, and requires nothing of the parameter itself. With `weight: Param<Tensor<B>>`, for example, the backend `B`
/// may be any marker type. For a field that contains the derived type itself (`next: Option<Rc<Node<T>>>`), the type
/// parameters in the field's type must implement the trait, and behind a counted pointer they must also be `'static`.
/// If the derive cannot see that a generic type contains itself, the compiler recurses and reports "error E0275:
/// overflow evaluating the requirement". This happens with two generic types that contain *each other*, and with type
/// aliases. A `bound` on one of the types avoids the error:
///
/// ```
/// use memtrack_core::References;
/// use std::rc::Rc;
///
/// #[derive(References)]
/// #[references(bound = "T: References + 'static")]
/// struct Module<T> {
///     weight: T,
///     hooks: Vec<Rc<Hook<T>>>,
/// }
///
/// #[derive(References)]
/// struct Hook<T> {
///     owner: Option<Rc<Module<T>>>,
/// }
/// ```
///
/// The target of a counted pointer must be `'static`, so it cannot be a type with a lifetime parameter. Such a type can
/// be used only for values that are owned.
///
/// # Errors
///
/// A field whose type does not implement the trait, a union, or an unknown attribute is a compile error that points to
/// the cause and suggests what to write instead. In a map, the keys also need [`Debug`](std::fmt::Debug), because they
/// are part of the path.
///
/// The expansion contains no `unsafe` code. If memtrack-core was built without its feature `record`, as for a library
/// that only annotates, the expansion is the same but is never called.
#[proc_macro_derive(References, attributes(references))]
pub fn derive_references(item: TokenStream) -> TokenStream {
    references::expand(item.into()).into()
}
