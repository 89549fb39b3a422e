//! The training text as numbers: a vocabulary of characters, and batches sampled from the text.
//!
//! The text is part of the program, so that the example needs no network and every run uses the same text.

use candle_core::{Device, Result, Tensor};

/// The text that the model learns to continue.
pub const TEXT: &str = include_str!("text.txt");

/// A small generator of reproducible pseudo-random numbers (SplitMix64).
///
/// Candle cannot seed its generator on the CPU, and an example whose losses differ from run to run
/// cannot be checked.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a generator that produces the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..end`. The slight bias towards small numbers does not matter here.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns a uniformly distributed number in `-bound..bound`.
    pub fn uniform(&mut self, bound: f32) -> f32 {
        let unit = (self.next() >> 40) as f32 / (1u64 << 24) as f32;
        (unit * 2.0 - 1.0) * bound
    }
}

/// A text as numbers: the vocabulary index of each character.
#[derive(Clone, Debug)]
pub struct Corpus {
    vocabulary: Vec<char>,
    tokens: Vec<u32>,
}

/// Training sequences, and for each of their characters the character that follows.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Shape (batch, context).
    pub inputs: Tensor,
    /// Shape (batch × context): flat, as the loss requires.
    pub targets: Tensor,
}

impl Corpus {
    /// Converts `text` to numbers; the vocabulary is sorted.
    pub fn new(text: &str) -> Self {
        let mut vocabulary: Vec<char> = text.chars().collect();
        vocabulary.sort_unstable();
        vocabulary.dedup();
        // The vocabulary contains every character of the text, so the filter drops nothing.
        let tokens = text
            .chars()
            .filter_map(|c| vocabulary.binary_search(&c).ok())
            .map(|index| index as u32)
            .collect();
        Self { vocabulary, tokens }
    }

    /// Returns the number of distinct characters.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// Cuts `batch` sequences of `context` characters at random positions.
    ///
    /// # Errors
    /// If the text is not longer than `context`, or the tensors cannot be made.
    pub fn sample(
        &self,
        batch: usize,
        context: usize,
        random: &mut Random,
        device: &Device,
    ) -> Result<Batch> {
        if self.tokens.len() <= context {
            candle_core::bail!(
                "the text has {} characters, one sequence takes {context} + 1",
                self.tokens.len()
            );
        }
        let mut inputs = Vec::with_capacity(batch * context);
        let mut targets = Vec::with_capacity(batch * context);
        for _ in 0..batch {
            let start = random.below(self.tokens.len() - context);
            inputs.extend_from_slice(&self.tokens[start..start + context]);
            targets.extend_from_slice(&self.tokens[start + 1..start + context + 1]);
        }
        Ok(Batch {
            inputs: Tensor::from_vec(inputs, (batch, context), device)?,
            targets: Tensor::from_vec(targets, batch * context, device)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_inputs_one_character_later() -> Result<()> {
        let corpus = Corpus::new("abcdefghijklmnopqrstuvwxyz");
        let batch = corpus.sample(3, 5, &mut Random::new(1), &Device::Cpu)?;
        let inputs = batch.inputs.flatten_all()?.to_vec1::<u32>()?;
        let targets = batch.targets.to_vec1::<u32>()?;
        assert!(inputs.iter().zip(&targets).all(|(input, target)| input + 1 == *target));
        Ok(())
    }

    #[test]
    fn a_text_shorter_than_a_sequence_is_refused() {
        assert!(Corpus::new("short").sample(1, 5, &mut Random::new(1), &Device::Cpu).is_err());
    }
}
