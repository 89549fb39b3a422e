//! What a value refers to: [`References`], which `#[derive(References)]` implements, and the [`Visitor`] that is told.
//! With it, `memtrack_core::cycles` finds the cycles of counted pointers that keep device memory alive.
//!
//! Nothing here changes what is looked at, and nothing waits: what is locked or borrowed elsewhere is reported as not
//! looked at. A wrong implementation gives a wrong report, and nothing worse.

mod containers;
mod counted;
mod visitor;

pub use counted::Counted;
pub use visitor::{DeviceMemory, Path, Sink, Step, Visitor};

/// What a value refers to by strong counted pointers ([`Rc`](std::rc::Rc), [`Arc`](std::sync::Arc)), and the device
/// memory that it has. Use `#[derive(References)]`.
///
/// An implementation by hand reports each strong pointer that the value holds directly or in containers that it owns,
/// exactly once, and does not look behind it. One that is left out may hide a cycle and never invents one; one that is
/// reported twice may invent one.
///
/// ```
/// use memtrack_model::references::{References, Visitor};
/// use std::rc::Rc;
///
/// struct Layer {
///     inputs: Vec<Rc<Layer>>,
/// }
///
/// impl References for Layer {
///     fn references(&self, to: &mut Visitor<'_>) {
///         to.field("inputs", &self.inputs);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "memtrack does not know what `{Self}` refers to",
    label = "`References` is not implemented for `{Self}`",
    note = "derive it (`#[derive(References)]`) where the type is yours",
    note = "`#[references(skip)]` on the field leaves out what holds no counted pointer; `#[references(opaque)]` says \
            that nobody can look inside, as in a closure"
)]
pub trait References {
    /// Reports what this refers to. Called on a thread that holds a handle of it, at any time: it must not wait (use
    /// `try_lock`), and need not be quick.
    fn references(&self, to: &mut Visitor<'_>);

    /// The type's name, also behind `dyn`.
    #[doc(hidden)]
    fn type_name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Whether no value of the type refers to anything: numbers, texts.
    #[doc(hidden)]
    fn never_refers() -> bool
    where
        Self: Sized,
    {
        false
    }
}
