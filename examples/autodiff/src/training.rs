//! A regression: a small network learns a sine.

use std::f32::consts::PI;
use std::rc::Rc;

use memtrack_core::track_memory;

use crate::Variant;
use crate::device::Device;
use crate::operators::{linear, mean_squared_error, tanh};
use crate::tensor::{Node, Tensor, backward};

/// The number of points of the sine. Each step trains on all of them.
pub const POINTS: usize = 4096;
/// Hidden units of the network.
pub const HIDDEN: usize = 64;
/// The learning rate.
const RATE: f32 = 0.01;

/// The network and its training data.
pub struct Training {
    device: Device,
    variant: Variant,
    parameters: [Tensor; 4],
    x: Tensor,
    y: Tensor,
}

impl Training {
    /// Makes the network, before its first step.
    pub fn new(device: &Device, variant: Variant) -> Self {
        let parameter = |name, shape, values| Node::parameter(device, name, shape, values);
        let data = |name, values| Node::new(device, name, [POINTS, 1], values);
        let mut random = random();
        let mut spread = |count: usize, width: f32| (0..count).map(|_| width * random()).collect();
        let parameters = [
            parameter("weight 1", [1, HIDDEN], spread(HIDDEN, 2.0)),
            parameter("bias 1", [1, HIDDEN], spread(HIDDEN, 2.0)),
            parameter("weight 2", [HIDDEN, 1], spread(HIDDEN, 0.25)),
            parameter("bias 2", [1, 1], vec![0.0]),
        ];
        let points: Vec<f32> = (0..POINTS).map(|at| PI * (2.0 * at as f32 / POINTS as f32 - 1.0)).collect();
        let y = data("y", points.iter().map(|x| x.sin()).collect());
        let x = data("x", points);
        Self { device: device.clone(), variant, parameters, x, y }
    }

    /// Runs one step and returns the loss before it. The step's root scope ends with it, and memtrack then searches for cycles.
    #[track_memory(root, name = "step")]
    pub fn step(&self) -> f32 {
        let [weight_1, bias_1, weight_2, bias_2] = &self.parameters;
        let hidden = tanh(&linear(&self.x, weight_1, bias_1), self.variant);
        let guess = linear(&hidden, weight_2, bias_2);
        let loss = mean_squared_error(&guess, &self.y);
        backward(&loss);
        self.optimize();
        loss.read(|loss| loss[0])
    }

    #[track_memory(optimizer)]
    fn optimize(&self) {
        self.parameters.iter().for_each(|parameter| parameter.descend(RATE));
    }

    /// Returns the device's live bytes.
    pub fn in_use_bytes(&self) -> u64 {
        self.device.in_use_bytes()
    }

    /// Returns the parameters and data, which live as long as the training.
    pub fn kept(&self) -> impl Iterator<Item = Tensor> {
        self.parameters.iter().chain([&self.x, &self.y]).map(Rc::clone)
    }
}

/// Returns a generator of numbers between -1 and 1, the same in every run.
fn random() -> impl FnMut() -> f32 {
    let mut state = 0x9e37_79b9_u32;
    move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 * 2.0 - 1.0
    }
}
