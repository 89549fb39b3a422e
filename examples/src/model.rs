//! A small transformer that continues a text character by character: an embedding, blocks of attention and a
//! feed-forward network, and a head that scores the next character.
//!
//! Its modules are ordinary structs with a method `forward`. memtrack only needs the attribute above each of them:
//! `root` for the whole model, `module` for a part of it, and the bare attribute for an operator.

use candle_core::{Device, Module, Result, Tensor, Var};
use memtrack_core::{scope, track_memory};

use crate::config::Config;
use crate::data::Random;
use crate::operators;

/// The weights made so far, and the random generator that they come from. The optimizer receives a handle to each weight.
struct Weights<'a> {
    random: Random,
    device: &'a Device,
    all: Vec<Var>,
}

impl Weights<'_> {
    /// Makes random weights. The more `inputs` are added up, the smaller the weights are, so that the sums stay near 1.
    fn random(&mut self, shape: (usize, usize), inputs: usize) -> Result<Tensor> {
        let bound = (3.0 / inputs as f32).sqrt();
        let values: Vec<f32> = (0..shape.0 * shape.1).map(|_| self.random.uniform(bound)).collect();
        self.keep(Var::from_vec(values, shape, self.device)?)
    }

    fn constant(&mut self, value: f32, len: usize) -> Result<Tensor> {
        self.keep(Var::from_vec(vec![value; len], len, self.device)?)
    }

    fn keep(&mut self, var: Var) -> Result<Tensor> {
        // A clone shares its storage: the module reads the values that the optimizer writes.
        let tensor = var.as_tensor().clone();
        self.all.push(var);
        Ok(tensor)
    }
}

/// A linear layer: a matrix and a bias.
struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    fn new(inputs: usize, outputs: usize, weights: &mut Weights<'_>) -> Result<Self> {
        Ok(Self { weight: weights.random((inputs, outputs), inputs)?, bias: weights.constant(0.0, outputs)? })
    }

    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        operators::linear(input, &self.weight, &self.bias)
    }
}

/// A layer norm: scale and shift.
struct LayerNorm {
    scale: Tensor,
    shift: Tensor,
}

impl LayerNorm {
    fn new(width: usize, weights: &mut Weights<'_>) -> Result<Self> {
        Ok(Self { scale: weights.constant(1.0, width)?, shift: weights.constant(0.0, width)? })
    }

    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        operators::layer_norm(input, &self.scale, &self.shift)
    }
}

/// One vector for each character, and one for each position in the sequence.
struct Embedding {
    characters: Tensor,
    places: Tensor,
}

impl Embedding {
    fn new(vocabulary: usize, config: &Config, weights: &mut Weights<'_>) -> Result<Self> {
        Ok(Self {
            characters: weights.random((vocabulary, config.width), config.width)?,
            places: weights.random((config.context, config.width), config.width)?,
        })
    }
}

impl Module for Embedding {
    #[track_memory(module, name = "embedding")]
    fn forward(&self, characters: &Tensor) -> Result<Tensor> {
        let places = self.places.narrow(0, 0, characters.dim(1)?)?;
        operators::lookup(&self.characters, characters)?.broadcast_add(&places)
    }
}

/// Multi-head attention of every character to itself and to earlier characters.
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    mask: Tensor,
    heads: usize,
    head_width: usize,
}

impl Attention {
    fn new(config: &Config, weights: &mut Weights<'_>) -> Result<Self> {
        let width = config.width;
        Ok(Self {
            query: Linear::new(width, width, weights)?,
            key: Linear::new(width, width, weights)?,
            value: Linear::new(width, width, weights)?,
            output: Linear::new(width, width, weights)?,
            mask: causal_mask(config.context, weights.device)?,
            heads: config.heads,
            head_width: config.head_width(),
        })
    }

    /// Splits (batch, context, width) into (batch, heads, context, head width).
    #[track_memory]
    fn split_heads(&self, input: &Tensor) -> Result<Tensor> {
        let (batch, context, _) = input.dims3()?;
        input.reshape((batch, context, self.heads, self.head_width))?.transpose(1, 2)?.contiguous()
    }
}

impl Module for Attention {
    #[track_memory(module, name = "attention")]
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let query = self.split_heads(&self.query.forward(input)?)?;
        let key = self.split_heads(&self.key.forward(input)?)?;
        let value = self.split_heads(&self.value.forward(input)?)?;

        let scores = operators::attention_scores(&query, &key)?;
        let scores = operators::causal_mask(&scores, &self.mask)?;
        let probabilities = operators::softmax(&scores)?;
        let mixed = operators::attention_values(&probabilities, &value)?;

        // This copy, which joins the heads, is outside annotated operators; the report takes its name from the stack.
        let joined = mixed.transpose(1, 2)?.flatten_from(2)?;
        self.output.forward(&joined)
    }
}

/// Returns a mask with 0 on and below the diagonal, and minus infinity above.
fn causal_mask(context: usize, device: &Device) -> Result<Tensor> {
    let values: Vec<f32> = (0..context)
        .flat_map(|row| (0..context).map(move |column| if column > row { f32::NEG_INFINITY } else { 0.0 }))
        .collect();
    Tensor::from_vec(values, (context, context), device)
}

/// The feed-forward network of a block, with a hidden layer that is four times as wide.
struct Mlp {
    widen: Linear,
    narrow: Linear,
}

impl Mlp {
    fn new(config: &Config, weights: &mut Weights<'_>) -> Result<Self> {
        Ok(Self {
            widen: Linear::new(config.width, 4 * config.width, weights)?,
            narrow: Linear::new(4 * config.width, config.width, weights)?,
        })
    }
}

impl Module for Mlp {
    #[track_memory(module, name = "mlp")]
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.narrow.forward(&operators::gelu(&self.widen.forward(input)?)?)
    }
}

/// Attention, then the feed-forward network, each after a norm and with a residual connection.
struct Block {
    attention_norm: LayerNorm,
    attention: Attention,
    mlp_norm: LayerNorm,
    mlp: Mlp,
}

impl Block {
    fn new(config: &Config, weights: &mut Weights<'_>) -> Result<Self> {
        Ok(Self {
            attention_norm: LayerNorm::new(config.width, weights)?,
            attention: Attention::new(config, weights)?,
            mlp_norm: LayerNorm::new(config.width, weights)?,
            mlp: Mlp::new(config, weights)?,
        })
    }
}

impl Module for Block {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let attended = self.attention.forward(&self.attention_norm.forward(input)?)?;
        let input = operators::residual(input, &attended)?;
        let changed = self.mlp.forward(&self.mlp_norm.forward(&input)?)?;
        operators::residual(&input, &changed)
    }
}

/// The last layer, which scores each character of the vocabulary as the next character.
struct Head {
    norm: LayerNorm,
    scores: Linear,
}

impl Module for Head {
    #[track_memory(module, name = "head")]
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.scores.forward(&self.norm.forward(input)?)
    }
}

/// The whole model.
pub struct Transformer {
    embedding: Embedding,
    blocks: Vec<Block>,
    head: Head,
    weights: Vec<Var>,
}

impl Transformer {
    /// Makes a model with random weights, the same for the same [`Config::seed`].
    ///
    /// # Errors
    /// If the heads do not divide the width, or the weights cannot be made.
    pub fn new(vocabulary: usize, config: &Config, device: &Device) -> Result<Self> {
        if config.heads == 0 || !config.width.is_multiple_of(config.heads) {
            candle_core::bail!("{} heads do not divide a width of {}", config.heads, config.width);
        }
        let mut weights = Weights { random: Random::new(config.seed), device, all: Vec::new() };
        let embedding = Embedding::new(vocabulary, config, &mut weights)?;
        let blocks = (0..config.blocks).map(|_| Block::new(config, &mut weights)).collect::<Result<_>>()?;
        let norm = LayerNorm::new(config.width, &mut weights)?;
        let scores = Linear::new(config.width, vocabulary, &mut weights)?;
        Ok(Self { embedding, blocks, head: Head { norm, scores }, weights: weights.all })
    }

    /// Returns the weights, which the optimizer changes.
    pub fn weights(&self) -> &[Var] {
        &self.weights
    }

    /// Returns the model's constant tensors: the causal mask of each block.
    pub fn masks(&self) -> impl Iterator<Item = &Tensor> {
        self.blocks.iter().map(|block| &block.attention.mask)
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> usize {
        self.weights.iter().map(|weight| weight.elem_count()).sum()
    }
}

impl Module for Transformer {
    /// Maps (batch, context) characters to (batch, context, vocabulary) scores.
    #[track_memory(root, name = "transformer")]
    fn forward(&self, characters: &Tensor) -> Result<Tensor> {
        let mut hidden = self.embedding.forward(characters)?;
        for (index, block) in self.blocks.iter().enumerate() {
            // The attribute has a constant name; a guard can name each iteration of a loop.
            let _module = scope::module(&format!("block.{index}"));
            hidden = block.forward(&hidden)?;
        }
        self.head.forward(&hidden)
    }
}
