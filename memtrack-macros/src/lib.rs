//! The `#[track_memory]` attribute, `#[derive(References)]`, and `#[limits]` for tests. Use them through memtrack-core: the
//! expansions call hidden functions of that crate, which change without notice. Incorrect use is a compile error that lists what
//! is supported.
//!
//! The modules:
//!
//! - `#[track_memory]`: `args`, `target` (what it is on), `function`, `impl_block`, `call` (arguments that may hold
//!   tensors), `tail` (returned futures).
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

/// Reports the references of a value to memtrack, field by field, so that it can find the cycles of
/// [`Rc`](std::rc::Rc) and [`Arc`](std::sync::Arc) that keep device memory alive.
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
///     bytes: Vec<u8>, // numbers take no time, however many
/// }
/// ```
///
/// Every type in a field must implement the trait: the standard library's types do, and your own can derive it.
/// A strong pointer is an edge to its target; a [`Weak`](std::rc::Weak) one is not. Values that a value owns
/// ([`Box`], [`Vec`], maps, cells, locks) are part of it. memtrack does not wait for a lock that is held
/// elsewhere but reports it as not inspected, and does the same with everything that hides its contents: a
/// channel, a thread, a [`Cell`](std::cell::Cell) of a pointer. The pointers in it then count as held from
/// outside, which may hide a cycle but never leads to a false one.
///
/// # On a field
///
/// | attribute | the field |
/// |---|---|
/// | `#[references(skip)]` | holds no counted pointer, so it is left out |
/// | `#[references(opaque)]` | may hold counted pointers, but memtrack cannot inspect it, as with a boxed closure: reports state that it was not inspected |
/// | `#[references(tensors)]` | is a framework's tensor (`memtrack_core::operators::ReportTensors`), or several: its device memory is reported, and nothing else |
/// | `#[references(with = path)]` | is passed to a function, a `fn(&FieldType, &mut Visitor<'_>)`: for types of other crates |
/// | `#[references(show)]` | is shown with [`Debug`](std::fmt::Debug), so that the reader can distinguish values of the type: a name, an id. It is also visited, unless `skip` is given too |
/// | `#[references(rename = "…")]` | has another name in reports |
///
/// At most one of the first four can be given.
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
///     #[references(with = look_into_cache)]
///     cache: other_crate::Cache,
///     #[references(skip)]
///     settings: other_crate::Settings,
/// }
///
/// fn look_into_cache(cache: &other_crate::Cache, to: &mut Visitor<'_>) {
///     to.field("entries", &cache.0); // `.cache.entries`
/// }
/// ```
///
/// memtrack can look into a closure if its captured values are kept next to it: `memtrack_core::references::Capturing`.
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
/// | `#[references(bound = "…")]` | has these bounds in place of the derived ones |
/// | `#[references(crate = path)]` | finds memtrack-core at this path, for crates that re-export it |
///
/// # Generic types
///
/// If a field's type depends on a type parameter, the implementation requires that this *field's type* implements the
/// trait, and requires nothing of the parameter itself: with `weight: Param<Tensor<B>>`, the backend `B` may be any marker. For
/// a field that contains the derived type itself (`next: Option<Rc<Node<T>>>`), the other parameters in it must implement
/// the trait, and behind a counted pointer all of them must be `'static`. If the derive cannot see that a generic type
/// contains itself, the compiler recurses and reports "error E0275: overflow evaluating the requirement". This happens with
/// two generic types that contain *each other*, and with a type alias. A `bound` on one of them avoids it:
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
/// The target of a counted pointer must be `'static`; a type with a lifetime is not. A value with a lifetime may
/// be owned.
///
/// # Errors
///
/// A field of a type that does not implement the trait, a union or an unknown attribute is a compile error that
/// points to the cause and suggests what to write instead. In a map, the keys also need
/// [`Debug`](std::fmt::Debug), because they are part of the path.
///
/// The expansion contains no `unsafe`. It is the same without memtrack-core's feature `record`, in a library
/// that only annotates; it is not called there.
#[proc_macro_derive(References, attributes(references))]
pub fn derive_references(item: TokenStream) -> TokenStream {
    references::expand(item.into()).into()
}
