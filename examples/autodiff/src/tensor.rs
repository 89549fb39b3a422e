//! Tensors that know where they come from: each keeps the closure that hands its gradient back to its inputs, and the closure
//! keeps those inputs.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};

use memtrack_core::cycles;
use memtrack_core::references::{Capturing, References};
use memtrack_core::track_memory;

use crate::device::{Buffer, Device};

/// A tensor. Clones are the same one.
pub type Tensor = Rc<Node>;

/// What an operator has made, or a parameter, or data.
// memtrack: the fields by which a value refers to others are found by the derive.
#[derive(References)]
pub struct Node {
    /// What it is, for people.
    #[references(show)]
    name: &'static str,
    /// Rows and columns.
    #[references(show)]
    shape: [usize; 2],
    /// Its place in the order in which tensors were made.
    number: u64,
    /// Whether it is a parameter.
    learns: bool,
    value: RefCell<Buffer>,
    /// Of a parameter, once there is one.
    gradient: RefCell<Option<Buffer>>,
    /// Of what an operator has made.
    backward: OnceCell<Box<dyn Backward>>,
}

/// How a gradient goes on to the inputs of an operator.
// memtrack: nobody can look into `Box<dyn Fn(…)>`. With `References` as a supertrait, it is one trait object that says what it keeps.
pub trait Backward: References {
    /// What this gradient of the result means for each input.
    fn backward(&self, gradient: &Buffer) -> Vec<(Tensor, Buffer)>;
}

// memtrack: `Capturing` is a closure with what it captures beside it.
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
    /// A tensor with these numbers, row by row.
    ///
    /// # Panics
    /// If there are not as many as the shape says.
    pub fn new(device: &Device, name: &'static str, shape: [usize; 2], values: Vec<f32>) -> Tensor {
        Self::make(device, name, shape, values, false)
    }

    /// One that learns.
    ///
    /// # Panics
    /// If there are not as many numbers as the shape says.
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
        // memtrack: from here on, a scan knows of it.
        cycles::register(&tensor);
        tensor
    }

    /// Says how its gradient goes on: by a closure that is called with `handles`.
    pub(crate) fn comes_from<H, F>(&self, handles: H, call: F)
    where
        H: References + 'static,
        F: Fn(&H, &Buffer) -> Vec<(Tensor, Buffer)> + 'static,
    {
        assert!(self.backward.set(Box::new(Capturing::of(handles, call))).is_ok(), "said once");
    }

    /// What it is.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Where its numbers are.
    pub fn device(&self) -> Device {
        self.value.borrow().device().clone()
    }

    /// Reads its numbers.
    pub fn read<R>(&self, read: impl FnOnce(&[f32]) -> R) -> R {
        read(self.value.borrow().values())
    }

    /// Reads its gradient, if there is one.
    pub fn read_gradient<R>(&self, read: impl FnOnce(&[f32]) -> R) -> Option<R> {
        self.gradient.borrow().as_ref().map(|gradient| read(gradient.values()))
    }

    /// How much device memory its numbers take.
    pub fn size_bytes(&self) -> u64 {
        self.value.borrow().size_bytes()
    }

    /// Goes a step down the gradient, which is gone afterwards.
    pub fn descend(&self, rate: f32) {
        let Some(gradient) = self.gradient.take() else { return };
        let mut value = self.value.borrow_mut();
        value.values_mut().iter_mut().zip(gradient.values()).for_each(|(value, by)| *value -= rate * by);
    }
}

/// Leaves in every parameter the gradient of a loss, of which there is one number.
#[track_memory(backward)]
pub fn backward(loss: &Tensor) {
    // The youngest first: whatever is made of a tensor is younger than it.
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

/// An operator's own result, as its closure keeps it. The result keeps the closure, so that a strong pointer here is a cycle:
/// nobody ever frees the two, nor what the closure keeps besides.
#[derive(References)]
pub enum Output {
    /// The mistake.
    Kept(Tensor),
    /// What is right. Whoever asks for the gradient of a tensor has the tensor.
    Seen(Weak<Node>),
}

impl Output {
    /// The tensor.
    ///
    /// # Panics
    /// If it is gone, in the middle of its own backward pass.
    pub fn tensor(&self) -> Tensor {
        match self {
            Self::Kept(tensor) => Rc::clone(tensor),
            Self::Seen(tensor) => tensor.upgrade().expect("it is the tensor whose gradient this is"),
        }
    }
}
