//! Tensors for automatic differentiation: each owns a closure that propagates its gradient to its inputs, and the closure owns
//! the inputs.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};

use memtrack_core::cycles;
use memtrack_core::references::{Capturing, References};
use memtrack_core::track_memory;

use crate::device::{Buffer, Device};

/// A tensor. Clones refer to the same node.
pub type Tensor = Rc<Node>;

/// A node of the graph: the result of an operator, or a parameter, or data.
// memtrack: the derive visits the fields that refer to other values.
#[derive(References)]
pub struct Node {
    /// The tensor's name in reports.
    #[references(show)]
    name: &'static str,
    /// Rows and columns.
    #[references(show)]
    shape: [usize; 2],
    /// The tensor's position in the order of creation.
    number: u64,
    /// Whether the tensor is a parameter.
    learns: bool,
    value: RefCell<Buffer>,
    /// The gradient, if the tensor is a parameter and a backward pass has run since the last step of gradient descent.
    gradient: RefCell<Option<Buffer>>,
    /// The closure that propagates the gradient to the inputs; unset if the tensor is not an operator's result.
    backward: OnceCell<Box<dyn Backward>>,
}

/// The propagation of a gradient to the inputs of an operator.
// memtrack: `Box<dyn Fn(…)>` does not expose its captures. With `References` as a supertrait, the trait object reports them.
pub trait Backward: References {
    /// Returns each input with the gradient that this operator contributes to it.
    fn backward(&self, gradient: &Buffer) -> Vec<(Tensor, Buffer)>;
}

// memtrack: `Capturing` is a closure with its captured values in a separate field.
impl<H, F> Backward for Capturing<H, F>
where
    H: References,
    F: Fn(&H, &Buffer) -> Vec<(Tensor, Buffer)>,
{
    fn backward(&self, gradient: &Buffer) -> Vec<(Tensor, Buffer)> {
        self.call(gradient)
    }
}

impl Node {
    /// Makes a tensor with these values, in row-major order.
    ///
    /// # Panics
    /// If the number of values does not match the shape.
    pub fn new(device: &Device, name: &'static str, shape: [usize; 2], values: Vec<f32>) -> Tensor {
        Self::make(device, name, shape, values, false)
    }

    /// Makes a parameter.
    ///
    /// # Panics
    /// If the number of values does not match the shape.
    pub fn parameter(device: &Device, name: &'static str, shape: [usize; 2], values: Vec<f32>) -> Tensor {
        Self::make(device, name, shape, values, true)
    }

    fn make(
        device: &Device,
        name: &'static str,
        shape: [usize; 2],
        values: Vec<f32>,
        learns: bool,
    ) -> Tensor {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        assert_eq!(values.len(), shape[0] * shape[1]);
        let tensor = Rc::new(Self {
            name,
            shape,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            learns,
            value: RefCell::new(device.buffer(values)),
            gradient: RefCell::default(),
            backward: OnceCell::new(),
        });
        // memtrack: from here on, scans include the tensor.
        cycles::register(&tensor);
        tensor
    }

    /// Sets the closure that propagates the tensor's gradient; it is called with `handles`, its captured values.
    pub(crate) fn set_backward<H, F>(&self, handles: H, call: F)
    where
        H: References + 'static,
        F: Fn(&H, &Buffer) -> Vec<(Tensor, Buffer)> + 'static,
    {
        assert!(self.backward.set(Box::new(Capturing::of(handles, call))).is_ok(), "set once");
    }

    /// Returns the tensor's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the tensor's rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Returns the tensor's device.
    pub fn device(&self) -> Device {
        self.value.borrow().device().clone()
    }

    /// Reads the tensor's values.
    pub fn read<R>(&self, read: impl FnOnce(&[f32]) -> R) -> R {
        read(self.value.borrow().values())
    }

    /// Reads the tensor's gradient, if there is one.
    pub fn read_gradient<R>(&self, read: impl FnOnce(&[f32]) -> R) -> Option<R> {
        self.gradient.borrow().as_ref().map(|gradient| read(gradient.values()))
    }

    /// Returns the device memory of the tensor's values, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.value.borrow().size_bytes()
    }

    /// Makes a step of gradient descent, which removes the gradient. Does nothing if the tensor has none.
    pub fn descend(&self, rate: f32) {
        let Some(gradient) = self.gradient.take() else { return };
        let mut value = self.value.borrow_mut();
        value.values_mut().iter_mut().zip(gradient.values()).for_each(|(value, by)| *value -= rate * by);
    }
}

/// Computes the gradient of a scalar loss for every parameter.
#[track_memory(backward)]
pub fn backward(loss: &Tensor) {
    // Visits the newest tensors first: the result of an operator is newer than its inputs.
    let mut open = BTreeMap::from([(loss.number, (Rc::clone(loss), loss.device().buffer(vec![1.0])))]);
    while let Some((_, (tensor, gradient))) = open.pop_last() {
        let Some(backward) = tensor.backward.get() else {
            *tensor.gradient.borrow_mut() = tensor.learns.then_some(gradient);
            continue;
        };
        for (input, part) in backward.backward(&gradient) {
            match open.get_mut(&input.number) {
                Some((_, sum)) => {
                    sum.values_mut().iter_mut().zip(part.values()).for_each(|(sum, part)| *sum += part);
                }
                None => {
                    open.insert(input.number, (input, part));
                }
            }
        }
    }
}

/// A closure's reference to the operator's result. The result owns the closure, so a strong pointer makes a cycle: neither of
/// them is ever freed, nor are the closure's other captures.
#[derive(References)]
pub enum Output {
    /// The mistake: a strong pointer.
    Kept(Tensor),
    /// The fix: a weak pointer suffices, because the caller of the backward pass holds the tensor.
    Seen(Weak<Node>),
}

impl Output {
    /// Returns the tensor.
    ///
    /// # Panics
    /// If it was dropped during its own backward pass.
    pub fn tensor(&self) -> Tensor {
        match self {
            Self::Kept(tensor) => Rc::clone(tensor),
            Self::Seen(tensor) => tensor.upgrade().expect("it is the tensor whose gradient this is"),
        }
    }
}
