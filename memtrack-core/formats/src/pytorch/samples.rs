//! Stores samples in PyTorch's files. A text in the metadata of each sampled block identifies the block when the file is
//! read.

use super::StringInterner;
use super::settings::memtrack_part;
use memtrack_model::snapshot::pytorch::{BlockState, Key, PyTorch, Sample, Samples};
use memtrack_model::snapshot::{Snapshot, StringId, StringTable, Value, WeighedBlock, sample_label};
use std::collections::HashMap;

/// The metadata texts of sampled blocks, collected while a file is being written.
#[derive(Default)]
pub(super) struct SampleTexts {
    by_sample: HashMap<(StringId, u64, u64), StringId>,
    entries: Vec<(StringId, Sample)>,
    /// The texts of the sampled blocks that are live at the end, by their rows in [`Snapshot::blocks`].
    by_block: HashMap<u32, StringId>,
}

impl SampleTexts {
    /// Returns the metadata text of a sampled block in the scope with the given `path`.
    pub(super) fn intern_text(
        &mut self,
        path: StringId,
        weighed: WeighedBlock,
        strings: &mut StringInterner,
    ) -> StringId {
        let WeighedBlock { size_bytes, blocks, .. } = weighed;
        let entries = &mut self.entries;
        *self.by_sample.entry((path, size_bytes, blocks.to_bits())).or_insert_with(|| {
            let label = sample_label(&strings.table.get(path), size_bytes, blocks);
            let text = strings.intern(label.as_bytes());
            entries.push((text, Sample { path, size_bytes, weight: blocks }));
            text
        })
    }

    /// Notes that the live block in this row has the metadata `text`.
    pub(super) fn add_block(&mut self, row: usize, text: StringId) {
        if !self.entries.is_empty() && text != StringId::EMPTY {
            self.by_block.insert(row as u32, text);
        }
    }

    /// Returns the samples by their texts and by the blocks that have these texts.
    pub(super) fn into_samples(self) -> Samples {
        let by_text: HashMap<StringId, Sample> = self.entries.into_iter().collect();
        let sample = |(row, text)| Some((row, *by_text.get(&text)?));
        let by_block = self.by_block.into_iter().filter_map(sample).collect();
        Samples::new(by_text, by_block)
    }

    /// Returns a value that lists each text with its sample, or `None` if there are no samples.
    pub(super) fn to_value(&self) -> Option<Value> {
        let entry = |(text, sample): &(StringId, Sample)| {
            let parts = [
                Value::Str(*text),
                Value::Str(sample.path),
                Value::integer(sample.size_bytes.into()),
                Value::Float(sample.weight),
            ];
            Value::List(parts.into_iter().collect())
        };
        (!self.entries.is_empty()).then(|| Value::List(self.entries.iter().map(entry).collect()))
    }
}

/// Restores the samples in a snapshot that was written by memtrack.
pub(super) fn restore(snapshot: &mut Snapshot) {
    let Some(pytorch) = snapshot.pytorch.as_deref_mut() else { return };
    let settings = pytorch.root_value(Key::AllocatorSettings);
    let setting = settings.and_then(|settings| memtrack_part(settings, "samples", &snapshot.strings));
    let Some(Value::List(entries)) = setting else { return };
    let by_text: HashMap<StringId, Sample> = entries.iter().filter_map(read_sample).collect();
    let by_block = live_samples(pytorch, &snapshot.strings, &by_text);
    pytorch.samples = Samples::new(by_text, by_block);
}

fn read_sample(entry: &Value) -> Option<(StringId, Sample)> {
    let Value::List(parts) = entry else { return None };
    let [Value::Str(text), Value::Str(path), size, weight] = &parts[..] else { return None };
    let size_bytes = u64::try_from(size.as_i128()?).ok()?;
    let weight = match weight {
        Value::Float(weight) => *weight,
        other => other.as_i128()? as f64,
    };
    (weight.is_finite() && weight >= 1.0).then_some((*text, Sample { path: *path, size_bytes, weight }))
}

/// Returns the samples among the live blocks, keyed by the positions of the blocks.
fn live_samples(
    pytorch: &PyTorch,
    strings: &StringTable,
    by_text: &HashMap<StringId, Sample>,
) -> HashMap<u32, Sample> {
    let sample = |row| by_text.get(&pytorch.blocks.text(row, Key::UserMetadata));
    let rows = (0u32..).zip(active_blocks(pytorch, strings));
    rows.filter_map(|(index, row)| Some((index, *sample(row)?))).collect()
}

/// Returns the rows of the blocks that are allocated or not yet free, in the order of [`Snapshot::blocks`].
pub(super) fn active_blocks<'a>(
    pytorch: &'a PyTorch,
    strings: &'a StringTable,
) -> impl Iterator<Item = usize> + 'a {
    let blocks = &pytorch.blocks;
    let rows = (0..pytorch.segments.len()).flat_map(|row| pytorch.segments.rows(row, Key::Blocks));
    let state = |row| BlockState::named(strings.bytes(blocks.text(row, Key::State)));
    rows.filter(move |&row| state(row) != BlockState::Inactive)
}
