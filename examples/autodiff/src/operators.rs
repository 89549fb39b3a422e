//! The operators. Each backward closure receives its captured values as the first argument.

use std::rc::Rc;

use memtrack_core::{References, track_memory};

use crate::Variant;
use crate::device::Buffer;
use crate::tensor::{Node, Output, Tensor};

/// Multiplies `input` [n, k] by `weight` [k, m], and adds `bias` [1, m] to each row.
#[track_memory]
pub fn linear(input: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
    let ([rows, inner], [_, columns]) = (input.shape(), weight.shape());
    let mut values = vec![0.0; rows * columns];
    input.read(|input| {
        weight.read(|weight| {
            bias.read(|bias| {
                for (row, out) in values.chunks_exact_mut(columns).enumerate() {
                    out.copy_from_slice(bias);
                    for (at, by) in input[row * inner..][..inner].iter().enumerate() {
                        add(out, &weight[at * columns..][..columns], *by);
                    }
                }
            });
        });
    });
    let output = Node::new(&input.device(), "linear", [rows, columns], values);
    let handles = (Rc::clone(input), Rc::clone(weight), Rc::clone(bias));
    output.set_backward(handles, |(input, weight, bias), gradient| {
        let (device, [rows, inner], [_, columns]) = (input.device(), input.shape(), weight.shape());
        let (mut of_input, mut of_weight) = (vec![0.0; rows * inner], vec![0.0; inner * columns]);
        let mut of_bias = vec![0.0; columns];
        input.read(|input| {
            weight.read(|weight| {
                for (row, gradient) in gradient.values().chunks_exact(columns).enumerate() {
                    add(&mut of_bias, gradient, 1.0);
                    for at in 0..inner {
                        add(&mut of_weight[at * columns..][..columns], gradient, input[row * inner + at]);
                        of_input[row * inner + at] = dot(gradient, &weight[at * columns..][..columns]);
                    }
                }
            });
        });
        vec![
            (Rc::clone(input), device.buffer(of_input)),
            (Rc::clone(weight), device.buffer(of_weight)),
            (Rc::clone(bias), device.buffer(of_bias)),
        ]
    });
    output
}

/// The values that the closure of [`tanh`] captures.
// A struct, not a tuple, so that reports contain the names of its fields.
#[derive(References)]
struct TanhHandles {
    input: Tensor,
    output: Output,
}

/// Returns the hyperbolic tangent of each element. Its derivative follows from its result: 1 - tanh².
#[track_memory]
pub fn tanh(input: &Tensor, variant: Variant) -> Tensor {
    let values = input.read(|input| input.iter().map(|x| x.tanh()).collect());
    let output = Node::new(&input.device(), "tanh", input.shape(), values);
    let result = match variant {
        Variant::Mistake => Output::Kept(Rc::clone(&output)),
        Variant::Fixed => Output::Seen(Rc::downgrade(&output)), // the fix
    };
    let handles = TanhHandles { input: Rc::clone(input), output: result };
    output.set_backward(handles, |TanhHandles { input, output }, gradient| {
        let slopes =
            |values: &[f32]| values.iter().zip(gradient.values()).map(|(y, by)| by * (1.0 - y * y)).collect();
        vec![(Rc::clone(input), input.device().buffer(output.tensor().read(slopes)))]
    });
    output
}

/// Returns the mean of the squared differences, a scalar.
#[track_memory]
pub fn mean_squared_error(guess: &Tensor, truth: &Tensor) -> Tensor {
    let count = guess.shape().iter().product::<usize>() as f32;
    let sum: f32 = guess.read(|guess| truth.read(|truth| differences(guess, truth).map(|by| by * by).sum()));
    let output = Node::new(&guess.device(), "loss", [1, 1], vec![sum / count]);
    output.set_backward((Rc::clone(guess), Rc::clone(truth)), move |(guess, truth), gradient: &Buffer| {
        let by = 2.0 * gradient.values()[0] / count;
        let of_guess =
            guess.read(|guess| truth.read(|truth| differences(guess, truth).map(|d| by * d).collect()));
        vec![(Rc::clone(guess), guess.device().buffer(of_guess))]
    });
    output
}

fn differences(a: &[f32], b: &[f32]) -> impl Iterator<Item = f32> {
    a.iter().zip(b).map(|(a, b)| a - b)
}

/// Adds `factor` times `values` to `to`, element by element.
fn add(to: &mut [f32], values: &[f32], factor: f32) {
    to.iter_mut().zip(values).for_each(|(to, value)| *to += factor * value);
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
