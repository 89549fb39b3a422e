//! What the modules compute: functions of tensors, without weights of their own.
//!
//! Each is one operator of the report. They are written with candle's differentiable operations: candle-nn's
//! fused `layer_norm` and `softmax_last_dim` have no backward pass, and a model trained through them would
//! learn with its weights cut off, without a word.

use candle_core::{D, Result, Tensor};
use memtrack_core::track_memory;

/// `input` × `weight` + `bias`, for the last dimension of `input` and a `weight` of shape (in, out).
#[track_memory]
pub fn linear(input: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    input.broadcast_matmul(weight)?.broadcast_add(bias)
}

/// Moves every vector to mean 0 and variance 1, then scales and shifts it.
#[track_memory]
pub fn layer_norm(input: &Tensor, scale: &Tensor, shift: &Tensor) -> Result<Tensor> {
    let centred = input.broadcast_sub(&input.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    // So that a vector of equal numbers is not divided by zero.
    let deviation = (variance + 1e-5)?.sqrt()?;
    centred.broadcast_div(&deviation)?.broadcast_mul(scale)?.broadcast_add(shift)
}

/// How much each character attends to each other one, before the softmax: `query` × `key`ᵀ / √width.
#[track_memory]
pub fn attention_scores(query: &Tensor, key: &Tensor) -> Result<Tensor> {
    let scale = 1.0 / (query.dim(D::Minus1)? as f64).sqrt();
    query.matmul(&key.t()?)? * scale
}

/// Adds `mask`: 0 where a character may look, minus infinity where it would look into the future.
#[track_memory]
pub fn causal_mask(scores: &Tensor, mask: &Tensor) -> Result<Tensor> {
    scores.broadcast_add(mask)
}

/// Turns the last dimension into probabilities.
#[track_memory]
pub fn softmax(scores: &Tensor) -> Result<Tensor> {
    candle_nn::ops::softmax(scores, D::Minus1)
}

/// The values, mixed by the probabilities.
#[track_memory]
pub fn attention_values(probabilities: &Tensor, value: &Tensor) -> Result<Tensor> {
    probabilities.matmul(value)
}

/// The smooth step between the two layers of the feed forward network.
#[track_memory]
pub fn gelu(input: &Tensor) -> Result<Tensor> {
    input.gelu()
}

/// `input` + `change`: what a block computes is added to what went into it.
#[track_memory]
pub fn residual(input: &Tensor, change: &Tensor) -> Result<Tensor> {
    input + change
}

/// The rows of `table` that `indices` name.
#[track_memory]
pub fn lookup(table: &Tensor, indices: &Tensor) -> Result<Tensor> {
    let mut shape = indices.dims().to_vec();
    shape.push(table.dim(1)?);
    table.index_select(&indices.flatten_all()?, 0)?.reshape(shape)
}

/// How surprised the model is by the character that really follows, on average over the batch.
#[track_memory]
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    candle_nn::loss::cross_entropy(&logits.flatten(0, 1)?, targets)
}
