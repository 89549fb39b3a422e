//! The description of a program's tensors: [`ReportTensors`], which frameworks' tensors implement, and [`TensorInfo`],
//! the description itself. The recorder stores the description as numbers and keeps no tensor alive.
//!
//! **Why does [`ReportTensors`] have a type parameter that is never used?** It lets a program implement the trait for a
//! framework's tensors, because the orphan rule requires a local type somewhere. An optional dependency on candle would
//! tie memtrack's versions to candle's. Cargo would also unify the feature across a workspace, so every crate that uses
//! memtrack would wait for candle to be built. `#[track_memory]` finds implementations by autoref: for a type that
//! implements the trait, method lookup needs one reference fewer than for a type that does not.

mod containers;
mod dtype;

pub use dtype::Dtype;

use crate::event::DeviceId;
use std::borrow::Cow;

/// The recorded description of a tensor. It does not keep the tensor alive, because its addresses are numbers that are
/// never dereferenced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TensorInfo<'a> {
    /// The number of the tensor object, which stays unique for the whole run of the program, even after the object is
    /// gone.
    pub identity: u64,
    /// The device that the tensor is on.
    pub device: DeviceId,
    /// The type of the tensor's elements.
    pub dtype: Dtype,
    /// The size of each dimension, in elements.
    pub sizes: Cow<'a, [usize]>,
    /// The stride of each dimension, in elements; `None` if the tensor is contiguous.
    pub strides: Option<Cow<'a, [usize]>>,
    /// The address at which the tensor's storage starts, as returned by the allocator; `None` if there is no storage.
    pub storage: Option<u64>,
    /// The size of the whole storage in bytes, if the framework knows it.
    pub storage_bytes: Option<u64>,
}

impl<'a> TensorInfo<'a> {
    /// Creates the description of a contiguous tensor without storage.
    pub fn new(
        identity: u64,
        device: DeviceId,
        dtype: Dtype,
        sizes: impl Into<Cow<'a, [usize]>>,
    ) -> TensorInfo<'a> {
        let sizes = sizes.into();
        Self { identity, device, dtype, sizes, strides: None, storage: None, storage_bytes: None }
    }

    /// Sets the storage, which starts at `address` (as returned by the allocator, not the address of this tensor's
    /// first element) and has `bytes` bytes. An address of 0 means that there is no storage.
    #[must_use]
    pub fn storage(mut self, address: u64, bytes: impl Into<Option<u64>>) -> Self {
        self.storage = Some(address).filter(|&address| address != 0);
        self.storage_bytes = bytes.into();
        self
    }

    /// Sets the stride of each dimension, in elements.
    #[must_use]
    pub fn strides(mut self, strides: impl Into<Cow<'a, [usize]>>) -> Self {
        let strides = strides.into();
        self.strides = (!self.is_contiguous_with(&strides)).then_some(strides);
        self
    }

    /// Returns the same description with owned dimensions.
    pub fn into_owned(self) -> TensorInfo<'static> {
        TensorInfo {
            sizes: Cow::Owned(self.sizes.into_owned()),
            strides: self.strides.map(|strides| Cow::Owned(strides.into_owned())),
            ..self
        }
    }

    fn is_contiguous_with(&self, strides: &[usize]) -> bool {
        let mut next = 1;
        strides.len() == self.sizes.len()
            && self.sizes.iter().zip(strides).rev().all(|(&size, &stride)| {
                let is_next = stride == next;
                next = next.saturating_mul(size);
                is_next
            })
    }
}

/// A type that contains tensors. [`#[track_memory]`](https://docs.rs/memtrack-core) reads the arguments and results of
/// an annotated function if their types implement this trait: a framework's tensors, as well as references, `Option`,
/// `Result`, `Vec`, slices, arrays, boxes and tuples of such types.
///
/// `M` allows an implementation for a type from another crate. It can be any type of the crate that implements the
/// trait, and it has no other meaning. Omit it for your own types. A program should have only one implementation for a
/// type, because annotated functions that take a type with two implementations do not compile.
///
/// ```
/// # use memtrack_model::event::DeviceId;
/// # use memtrack_model::operators::{Dtype, ReportTensors, TensorInfo, TensorReader};
/// struct Tensor {
///     id: u64,
///     data: Vec<f32>,
///     shape: Vec<usize>,
/// }
///
/// impl ReportTensors for Tensor {
///     fn report(&self, to: &mut TensorReader<'_>) {
///         let bytes = 4 * self.data.capacity() as u64;
///         let info = TensorInfo::new(self.id, DeviceId::HOST, Dtype::F32, &self.shape[..]);
///         to.tensor(&info.storage(self.data.as_ptr().addr() as u64, bytes));
///     }
/// }
/// ```
pub trait ReportTensors<M = ()> {
    /// Reports each tensor that this value contains, in order.
    ///
    /// This is called on the thread that runs the operator, before or after the operator. Allocations made here are not
    /// recorded. The method must not block for long, and it need not read the tensor's elements.
    fn report(&self, to: &mut TensorReader<'_>);
}

/// The receiver of reported tensors.
pub struct TensorReader<'a> {
    read: &'a mut dyn FnMut(&TensorInfo<'_>, bool),
    written: bool,
}

impl<'a> TensorReader<'a> {
    /// Creates a reader that passes each tensor to `read`, along with whether the operator writes it.
    #[doc(hidden)]
    pub fn new(read: &'a mut dyn FnMut(&TensorInfo<'_>, bool)) -> Self {
        Self { read, written: false }
    }

    /// Reports one tensor.
    pub fn tensor(&mut self, tensor: &TensorInfo<'_>) {
        (self.read)(tensor, self.written);
    }

    /// Reports the tensors in `value` as tensors that the operator writes.
    pub fn written<T: ReportTensors<M> + ?Sized, M>(&mut self, value: &T) {
        let before = std::mem::replace(&mut self.written, true);
        value.report(self);
        self.written = before;
    }
}

impl std::fmt::Debug for TensorReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TensorReader").field("written", &self.written).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_strides_are_not_stored() {
        let info = |sizes: &'static [usize]| TensorInfo::new(1, DeviceId::HOST, Dtype::F32, sizes);
        assert_eq!(info(&[2, 3]).strides(&[3, 1][..]).strides, None);
        assert_eq!(info(&[]).strides(&[][..]).strides, None);
        assert_eq!(info(&[2, 3]).strides(&[1, 2][..]).strides.as_deref(), Some(&[1, 2][..]));
        assert_eq!(info(&[2, 3]).strides(&[0, 1][..]).strides.as_deref(), Some(&[0, 1][..]));
    }

    #[test]
    fn storage_at_address_zero_is_none() {
        assert_eq!(TensorInfo::new(1, DeviceId::HOST, Dtype::F32, &[0][..]).storage(0, 0).storage, None);
    }
}
