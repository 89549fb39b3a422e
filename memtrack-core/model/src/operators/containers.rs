//! [`ReportTensors`] for standard library types. Containers and pointers report the tensors inside them, and plain
//! types such as numbers report none, so that arguments and results of these types can be passed to a [`TensorReader`].

use super::{ReportTensors, TensorReader};
use std::rc::Rc;
use std::sync::Arc;

/// A marker for types without tensors, such as a number beside a tensor in a tuple.
#[derive(Debug)]
#[doc(hidden)]
pub enum NoTensors {}

macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<T: ReportTensors<M> + ?Sized, M> ReportTensors<M> for $pointer {
            fn report(&self, to: &mut TensorReader<'_>) {
                (**self).report(to);
            }
        }
    )*};
}

pointers!(&T, Box<T>, Rc<T>, Arc<T>);

/// An argument passed as `&mut` counts as written by the operator.
impl<T: ReportTensors<M> + ?Sized, M> ReportTensors<M> for &mut T {
    fn report(&self, to: &mut TensorReader<'_>) {
        to.written(&**self);
    }
}

impl<T: ReportTensors<M>, M> ReportTensors<M> for [T] {
    fn report(&self, to: &mut TensorReader<'_>) {
        self.iter().for_each(|each| each.report(to));
    }
}

impl<T: ReportTensors<M>, M, const N: usize> ReportTensors<M> for [T; N] {
    fn report(&self, to: &mut TensorReader<'_>) {
        self[..].report(to);
    }
}

impl<T: ReportTensors<M>, M> ReportTensors<M> for Vec<T> {
    fn report(&self, to: &mut TensorReader<'_>) {
        self[..].report(to);
    }
}

impl<T: ReportTensors<M>, M> ReportTensors<M> for Option<T> {
    fn report(&self, to: &mut TensorReader<'_>) {
        if let Some(value) = self {
            value.report(to);
        }
    }
}

/// Errors contain no tensors.
impl<T: ReportTensors<M>, M, E> ReportTensors<M> for Result<T, E> {
    fn report(&self, to: &mut TensorReader<'_>) {
        if let Ok(value) = self {
            value.report(to);
        }
    }
}

macro_rules! tuples {
    ($($($name:ident $marker:ident)+;)*) => {$(
        impl<$($name: ReportTensors<$marker>, $marker),+> ReportTensors<($($marker,)+)> for ($($name,)+) {
            fn report(&self, to: &mut TensorReader<'_>) {
                #[allow(non_snake_case)]
                let ($($name,)+) = self;
                $($name.report(to);)+
            }
        }
    )*};
}

tuples! {
    A MA;
    A MA B MB;
    A MA B MB C MC;
    A MA B MB C MC D MD;
    A MA B MB C MC D MD E ME;
    A MA B MB C MC D MD E ME F MF;
}

macro_rules! without_tensors {
    ($($name:ty),*) => {$(
        impl ReportTensors<NoTensors> for $name {
            fn report(&self, _: &mut TensorReader<'_>) {}
        }
    )*};
}

without_tensors!(
    (),
    bool,
    char,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    f32,
    f64,
    str,
    String
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::DeviceId;
    use crate::operators::{Dtype, TensorInfo};

    struct Tensor(u64);

    impl ReportTensors for Tensor {
        fn report(&self, to: &mut TensorReader<'_>) {
            to.tensor(&TensorInfo::new(self.0, DeviceId::HOST, Dtype::F32, &[1][..]));
        }
    }

    fn tensors_in<T: ReportTensors<M>, M>(value: T) -> Vec<(u64, bool)> {
        let mut found = Vec::new();
        value.report(&mut TensorReader::new(&mut |tensor, written| found.push((tensor.identity, written))));
        found
    }

    #[test]
    fn tensors_are_found_in_all_containers() {
        let [one, two, three] = [Tensor(1), Tensor(2), Tensor(3)];
        assert_eq!(tensors_in(&one), [(1, false)]);
        assert_eq!(tensors_in(&[&one, &two][..]), [(1, false), (2, false)]);
        assert_eq!(tensors_in((&one, 7_usize, Some(&two), "text")), [(1, false), (2, false)]);
        assert_eq!(
            tensors_in(Ok::<_, String>(vec![Box::new(Tensor(4)), Box::new(three)])),
            [(4, false), (3, false)]
        );
        assert_eq!(tensors_in(None::<Tensor>), []);
        assert_eq!(tensors_in(Err::<Tensor, _>("failed")), []);
        assert_eq!(tensors_in(5_u32), []);
    }

    #[test]
    fn only_mutable_arguments_are_written() {
        let mut one = Tensor(1);
        assert_eq!(tensors_in((&Tensor(0), &mut one, &Tensor(2))), [(0, false), (1, true), (2, false)]);
    }
}
