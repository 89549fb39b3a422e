//! Closures whose captured values are stored beside them, where a visitor can reach them.

use super::{References, Visitor};
use std::fmt;
use std::mem::needs_drop;

/// A closure that can be inspected, because the values that it would otherwise capture are stored beside it, in
/// `handles`. Each call passes them to the closure.
///
/// An ordinary closure cannot be inspected. In an autograd engine, the classic cycle is a backward closure that
/// captures the tensor that owns the closure, and a scan could not see this reference. Here, the closure captures
/// nothing; instead, each call passes the handles to it:
///
/// ```
/// # use memtrack_model::references::{Capturing, References};
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// // The engine: the nodes of its tape are trait objects, which can be inspected.
/// trait Backward: References {
///     fn backward(&self, gradient: &f32);
/// }
///
/// impl<H: References, F: Fn(&H, &f32)> Backward for Capturing<H, F> {
///     fn backward(&self, gradient: &f32) {
///         self.call(gradient);
///     }
/// }
///
/// // An operator of the engine.
/// let (a, b) = (Rc::new(Cell::new(0.0)), Rc::new(Cell::new(0.0)));
/// let add: Box<dyn Backward> = Box::new(Capturing::by_ref((a.clone(), b.clone()), |(a, b), gradient| {
///     a.set(a.get() + gradient);
///     b.set(b.get() + gradient);
/// }));
/// add.backward(&1.5);
/// assert_eq!((a.get(), b.get()), (1.5, 1.5));
/// ```
///
/// [`Capturing::new`] is for closures whose argument is a value, [`Capturing::by_ref`] is for closures whose argument
/// is borrowed, and [`Capturing::of`] is for engine functions that determine the argument's type. A closure that calls
/// methods on its argument must annotate the argument's type (`gradient: &Tensor`), unless such a function determines
/// it. Pass several arguments as a tuple.
///
/// ```
/// # use memtrack_model::references::{Capturing, References};
/// # use std::rc::Rc;
/// # struct Tensor;
/// # impl Tensor { fn rows(&self) -> usize { 2 } }
/// # trait Backward: References { fn backward(&self, gradient: &Tensor) -> usize; }
/// # impl<H: References, F: Fn(&H, &Tensor) -> usize> Backward for Capturing<H, F> {
/// #     fn backward(&self, gradient: &Tensor) -> usize { self.call(gradient) }
/// # }
/// fn tape<H: References + 'static>(
///     handles: H,
///     call: impl Fn(&H, &Tensor) -> usize + 'static,
/// ) -> Rc<dyn Backward> {
///     Rc::new(Capturing::of(handles, call))
/// }
///
/// let rows = tape(Rc::new(3), |factor, gradient| **factor * gradient.rows());
/// assert_eq!(rows.backward(&Tensor), 6);
/// ```
///
/// If the closure nevertheless captures something that needs to be dropped, it is reported as not inspected.
#[derive(Clone, Copy)]
pub struct Capturing<H, F> {
    handles: H,
    call: F,
}

impl<H, F> Capturing<H, F> {
    /// Creates a closure whose argument is a value, from `call` and its `handles`.
    pub const fn new<A, R>(handles: H, call: F) -> Self
    where
        F: Fn(&H, A) -> R,
    {
        Self { handles, call }
    }

    /// Creates a closure whose argument is borrowed, from `call` and its `handles`.
    pub const fn by_ref<A: ?Sized, R>(handles: H, call: F) -> Self
    where
        F: Fn(&H, &A) -> R,
    {
        Self { handles, call }
    }

    /// Stores `handles` beside any `call`. Use it in functions that determine the argument's type
    /// (`fn push<H: References, F: Fn(&H, &Tensor) + 'static>(handles: H, call: F)`), and for `FnMut` and `FnOnce`.
    pub const fn of(handles: H, call: F) -> Self {
        Self { handles, call }
    }

    /// Calls the closure.
    pub fn call<A, R>(&self, argument: A) -> R
    where
        F: Fn(&H, A) -> R,
    {
        (self.call)(&self.handles, argument)
    }

    /// Returns the handles that each call passes.
    pub const fn handles(&self) -> &H {
        &self.handles
    }

    /// Returns the handles and the closure, so that an `FnMut` or an `FnOnce` can be called.
    pub fn into_parts(self) -> (H, F) {
        (self.handles, self.call)
    }

    /// Borrows the handles and the closure that [`Capturing::into_parts`] would return.
    pub const fn parts_mut(&mut self) -> (&mut H, &mut F) {
        (&mut self.handles, &mut self.call)
    }
}

impl<H: References, F> References for Capturing<H, F> {
    fn references(&self, to: &mut Visitor<'_>) {
        to.field("handles", &self.handles);
        // A closure with nothing to drop contains no counted pointer.
        if needs_drop::<F>() {
            to.step(
                || super::Step::Field("call"),
                |to| to.opaque("a closure that captures values of its own"),
            );
        }
    }
}

impl<H: fmt::Debug, F> fmt::Debug for Capturing<H, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capturing").field("handles", &self.handles).finish_non_exhaustive()
    }
}
