//! The size of the model and the length of its training, in one value.

/// The size of the model and the length of its training.
///
/// The default trains in a few seconds on two cores, and its activations are large enough (64 KiB and more)
/// for memtrack's default mode to record them exactly rather than by sampling.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Sequences in one batch.
    pub batch: usize,
    /// Characters in one sequence, the model's whole context.
    pub context: usize,
    /// Width of the vector that represents one character.
    pub width: usize,
    /// Attention heads of a block; must divide `width`.
    pub heads: usize,
    /// Transformer blocks.
    pub blocks: usize,
    /// Optimizer steps.
    pub steps: usize,
    /// Step size of AdamW.
    pub learning_rate: f64,
    /// Seed of the weights and of the order of the text; the same seed produces the same losses.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            batch: 16,
            context: 64,
            width: 128,
            heads: 4,
            blocks: 4,
            steps: 10,
            learning_rate: 3e-3,
            seed: 42,
        }
    }
}

impl Config {
    /// Returns a model that trains in well under a second, for tests.
    pub fn tiny() -> Self {
        Self { batch: 4, context: 16, width: 32, heads: 2, blocks: 2, steps: 5, ..Self::default() }
    }

    /// Returns the width of one attention head.
    pub fn head_width(&self) -> usize {
        self.width / self.heads
    }
}
