//! The training loop: batch, forward, loss, backward, optimizer, repeated.

use candle_core::backprop::GradStore;
use candle_core::{Device, Module, Result, Tensor};
use candle_nn::optim::{AdamW, Optimizer, ParamsAdamW};
use memtrack_core::{operators as report, track_memory};

use crate::config::Config;
use crate::data::{Corpus, Random, TEXT};
use crate::model::Transformer;
use crate::operators;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The loss of every step, in order.
    pub losses: Vec<f32>,
    /// The number of parameters of the model.
    pub parameters: usize,
}

impl Outcome {
    /// Returns the mean loss of the first and of the last quarter of the steps.
    ///
    /// The loss of a single step varies with its batch; a mean over several steps shows whether the model has learnt.
    pub fn first_and_last_loss(&self) -> (f32, f32) {
        let quarter = (self.losses.len() / 4).max(1);
        let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
        let end = self.losses.len().saturating_sub(quarter);
        (mean(&self.losses[..quarter.min(self.losses.len())]), mean(&self.losses[end..]))
    }

    /// Checks that the model has learnt, so that the run's memory is representative of real training.
    ///
    /// # Errors
    /// If the loss has not fallen by at least a tenth, or is not a number.
    pub fn check_learnt(&self) -> Result<()> {
        let (first, last) = self.first_and_last_loss();
        if last < 0.9 * first {
            return Ok(());
        }
        candle_core::bail!("the model has not learnt: the mean loss went from {first:.3} to {last:.3}")
    }
}

/// Trains a new model on the CPU, with the text that is embedded in the program, calling `progress` with each step's
/// number and loss.
///
/// # Errors
/// If the sizes in `config` do not fit together, or a tensor operation fails.
pub fn train(config: &Config, progress: impl FnMut(usize, f32)) -> Result<Outcome> {
    train_on(&Device::Cpu, config, progress)
}

/// Trains a new model on any device, like [`train`].
///
/// # Errors
/// In the same cases as [`train`].
pub fn train_on(device: &Device, config: &Config, mut progress: impl FnMut(usize, f32)) -> Result<Outcome> {
    let corpus = Corpus::new(TEXT);
    let model = Transformer::new(corpus.vocabulary_size(), config, device)?;
    // memtrack cannot infer parameters from the operators that use them.
    let weights = model.weights().iter().enumerate();
    report::parameters("transformer", weights.map(|(number, weight)| (format!("weight.{number}"), weight)));
    report::buffers("transformer", model.masks().map(|mask| ("mask", mask)));
    let mut optimizer = optimizer(&model, config)?;
    // The seed differs from the weights' seed, so that the two sequences are independent.
    let mut random = Random::new(!config.seed);

    let mut losses = Vec::with_capacity(config.steps);
    for step in 0..config.steps {
        let batch = corpus.sample(config.batch, config.context, &mut random, device)?;
        let logits = model.forward(&batch.inputs)?;
        let loss = operators::cross_entropy(&logits, &batch.targets)?;
        let gradients = backward(&loss)?;
        for weight in model.weights() {
            if let Some(gradient) = gradients.get(weight) {
                report::gradient(weight, gradient);
            }
        }
        update(&mut optimizer, &gradients)?;
        losses.push(loss.to_scalar::<f32>()?);
        progress(step, losses[step]);
    }
    Ok(Outcome { losses, parameters: model.parameters() })
}

/// Makes the optimizer, which allocates its private moments here: memtrack recognizes them because this is the optimizer
/// phase.
#[track_memory(optimizer)]
fn optimizer(model: &Transformer, config: &Config) -> Result<AdamW> {
    let settings = ParamsAdamW { lr: config.learning_rate, ..ParamsAdamW::default() };
    AdamW::new(model.weights().to_vec(), settings)
}

/// Computes the gradient of every weight.
#[track_memory(backward)]
fn backward(loss: &Tensor) -> Result<GradStore> {
    loss.backward()
}

/// Moves every weight a little against its gradient.
#[track_memory(optimizer)]
fn update(optimizer: &mut AdamW, gradients: &GradStore) -> Result<()> {
    optimizer.step(gradients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_losses() -> Result<()> {
        let config = Config::tiny();
        let first = train(&config, |_, _| {})?;
        let second = train(&config, |_, _| {})?;
        assert_eq!(first.losses, second.losses);
        Ok(())
    }

    #[test]
    fn the_loss_falls() -> Result<()> {
        let config = Config { steps: 30, ..Config::tiny() };
        train(&config, |_, _| {})?.check_learnt()
    }

    #[test]
    fn every_weight_has_a_gradient() -> Result<()> {
        let config = Config::tiny();
        let corpus = Corpus::new(TEXT);
        let model = Transformer::new(corpus.vocabulary_size(), &config, &Device::Cpu)?;
        let batch = corpus.sample(config.batch, config.context, &mut Random::new(1), &Device::Cpu)?;
        let loss = operators::cross_entropy(&model.forward(&batch.inputs)?, &batch.targets)?;
        let gradients = backward(&loss)?;
        assert!(model.weights().iter().all(|weight| gradients.get(weight).is_some()));
        Ok(())
    }

    #[test]
    fn heads_that_do_not_divide_the_width_are_refused() {
        let config = Config { heads: 3, ..Config::tiny() };
        assert!(train(&config, |_, _| {}).is_err());
    }
}
