//! The interface through which values list their references: [`References`], which `#[derive(References)]` implements,
//! and the [`Visitor`] that receives them. `memtrack_core::cycles` uses the references to find the cycles of
//! reference-counted pointers that keep device memory alive.
//!
//! Nothing here changes the visited values, and nothing blocks: values that are locked or borrowed elsewhere are
//! reported as not inspected. A wrong implementation leads to a wrong report, but does no other damage.

mod capturing;
mod cells;
mod closed;
mod containers;
mod counted;
mod plain;
#[cfg(test)]
mod tests;
mod type_probe;
mod visitor;

pub use capturing::Capturing;
pub use counted::Counted;
#[doc(hidden)]
pub use type_probe::{ProbeKnown, ProbeUnknown, Type, TypeProbe};
pub use visitor::{DeviceMemory, Path, Sink, Step, Visitor};

use type_probe::never_refers;

/// A type that can list the strong reference-counted pointers ([`Rc`](std::rc::Rc), [`Arc`](std::sync::Arc)) and the
/// device memory that its values hold. Use `#[derive(References)]`.
///
/// A manual implementation reports each strong pointer that the value holds, directly or in containers that it owns,
/// exactly once, and does not follow it. A missing pointer may hide a cycle but never invents one; a pointer that is
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
    note = "on a field, `#[references(skip)]` skips a value without counted pointers, and `#[references(opaque)]` marks \
            one that cannot be inspected",
    note = "a closure cannot be inspected: `references::Capturing` stores the captured values beside it"
)]
pub trait References {
    /// Reports the references of this value. It may be called at any time, on any thread that can reach the value. It
    /// must not block (use `try_lock`), but it need not be fast.
    fn references(&self, to: &mut Visitor<'_>);

    /// Returns the type's name, even behind `dyn`. The method's name is chosen so that it is unlikely to clash with
    /// another trait's method.
    #[doc(hidden)]
    fn referring_type(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Returns whether it is certain that no value of the type refers to anything, as is the case for numbers and
    /// strings.
    #[doc(hidden)]
    fn never_refers(_probe: &mut TypeProbe) -> bool
    where
        Self: Sized,
    {
        false
    }
}
