//! The operators of the modules: functions of tensors, without weights.
//!
//! Each function is one operator in the report, written with candle's differentiable operations: candle-nn's
//! fused `layer_norm` and `softmax_last_dim` have no backward pass, so the weights before them would silently
//! not be trained.

use candle_core::{D, Result, Tensor};
use memtrack_core::track_memory;

/// Returns `input` × `weight` + `bias`, for the last dimension of `input` and a `weight` of shape (in, out).
#[track_memory]
pub fn linear(input: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    input.broadcast_matmul(weight)?.broadcast_add(bias)
}

/// Normalises every vector to mean 0 and variance 1, then scales and shifts it.
#[track_memory]
pub fn layer_norm(input: &Tensor, scale: &Tensor, shift: &Tensor) -> Result<Tensor> {
    let centred = input.broadcast_sub(&input.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    // Avoids a division by zero for a vector of equal numbers.
    let deviation = (variance + 1e-5)?.sqrt()?;
    centred.broadcast_div(&deviation)?.broadcast_mul(scale)?.broadcast_add(shift)
}

/// Returns the attention scores of each pair of characters, before the softmax: `query` × `key`ᵀ / √width.
#[track_memory]
pub fn attention_scores(query: &Tensor, key: &Tensor) -> Result<Tensor> {
    let scale = 1.0 / (query.dim(D::Minus1)? as f64).sqrt();
    query.matmul(&key.t()?)? * scale
}

/// Adds `mask`: 0 for a character itself and earlier ones, minus infinity for later ones.
#[track_memory]
pub fn causal_mask(scores: &Tensor, mask: &Tensor) -> Result<Tensor> {
    scores.broadcast_add(mask)
}

/// Converts the last dimension to probabilities.
#[track_memory]
pub fn softmax(scores: &Tensor) -> Result<Tensor> {
    candle_nn::ops::softmax(scores, D::Minus1)
}

/// Returns the sum of the values, weighted by the probabilities.
#[track_memory]
pub fn attention_values(probabilities: &Tensor, value: &Tensor) -> Result<Tensor> {
    probabilities.matmul(value)
}

/// Applies the activation function between the two layers of the feed-forward network.
#[track_memory]
pub fn gelu(input: &Tensor) -> Result<Tensor> {
    input.gelu()
}

/// Returns `input` + `change`: a residual connection.
#[track_memory]
pub fn residual(input: &Tensor, change: &Tensor) -> Result<Tensor> {
    input + change
}

/// Returns the rows of `table` at `indices`.
#[track_memory]
pub fn lookup(table: &Tensor, indices: &Tensor) -> Result<Tensor> {
    let mut shape = indices.dims().to_vec();
    shape.push(table.dim(1)?);
    table.index_select(&indices.flatten_all()?, 0)?.reshape(shape)
}

/// Returns the cross entropy of the next characters, averaged over the batch.
#[track_memory]
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    candle_nn::loss::cross_entropy(&logits.flatten(0, 1)?, targets)
}
