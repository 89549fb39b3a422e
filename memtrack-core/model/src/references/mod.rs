//! What a value refers to: [`References`], which `#[derive(References)]` implements, and the [`Visitor`] that is told.
//! With it, `memtrack_core::cycles` finds the cycles of counted pointers that keep device memory alive.
//!
//! Nothing here changes what is looked at, and nothing waits: what is locked or borrowed elsewhere is reported as not
//! looked at. A wrong implementation gives a wrong report, and nothing worse.

mod asked;
mod capturing;
mod cells;
mod closed;
mod containers;
mod counted;
mod plain;
#[cfg(test)]
mod tests;
mod visitor;

#[doc(hidden)]
pub use asked::{AskKnown, AskUnknown, Asked, Type};
pub use capturing::Capturing;
pub use counted::Counted;
pub use visitor::{DeviceMemory, Path, Sink, Step, Visitor};

use asked::never_refers;

/// What a value refers to by strong counted pointers ([`Rc`](std::rc::Rc), [`Arc`](std::sync::Arc)), and the device
/// memory that it has. Use `#[derive(References)]`.
///
/// An implementation by hand reports each strong pointer that the value holds directly or in containers that it owns,
/// exactly once, and does not look behind it. One that is left out may hide a cycle and never invents one; one that is
/// reported twice may invent one.
///
/// ```
/// # use memtrack_model::references::{References, Visitor};
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
    note = "where the type is yours, derive it: `#[derive(References)]`",
    note = "on a field, `#[references(skip)]` leaves out what holds no counted pointer, and `#[references(opaque)]` says \
            that nobody can look inside",
    note = "a closure cannot be looked into: `references::Capturing` keeps what it captures beside it"
)]
pub trait References {
    /// Reports what this refers to. Called on a thread that holds a handle of it, at any time: it must not wait (use
    /// `try_lock`), and need not be quick.
    fn references(&self, to: &mut Visitor<'_>);

    /// The type's name, also behind `dyn`. Its own name is one that no other trait's method is likely to have.
    #[doc(hidden)]
    fn referring_type(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Whether no value of the type refers to anything: numbers, texts.
    #[doc(hidden)]
    fn never_refers(_asked: &mut Asked) -> bool
    where
        Self: Sized,
    {
        false
    }
}
