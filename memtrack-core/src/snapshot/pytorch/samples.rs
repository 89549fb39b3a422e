//! Sampled blocks in PyTorch's files, which know no weights: there a block that was picked has the bytes that it stands
//! for, so that totals and peaks are the estimate. Its own size and its weight stand in its `user_metadata` for people,
//! and for memtrack once for each such text among the settings, where nothing else looks:
//! `allocator_settings.memtrack.samples = [[text, scope's path, size in bytes, weight], …]`.

use super::settings::of_memtrack;
use super::{Key, PyTorch, StringInterner};
use crate::snapshot::{Snapshot, StringId, StringTable, Value, Weighed};
use std::collections::HashMap;

/// Which texts say that a block is a sample, and of what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    by_text: HashMap<StringId, Sample>,
    /// By the rows of [`Snapshot::blocks`].
    by_block: HashMap<u32, Sample>,
}

/// A sampled block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// The path of its scope.
    pub(super) path: StringId,
    /// Its own size.
    pub(super) size_bytes: u64,
    /// The blocks it stands for.
    pub(super) weight: f64,
}

impl Sample {
    fn weighed(self, bytes: u64) -> Weighed {
        Weighed { size_bytes: self.size_bytes, bytes, blocks: self.weight, estimated: true }
    }
}

impl Samples {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_text.is_empty()
    }

    /// Whether a text is said of samples.
    pub(crate) fn has(&self, text: StringId) -> bool {
        self.by_text.contains_key(&text)
    }

    /// A block of `bytes` whose metadata is `text`.
    pub(crate) fn weighed(&self, text: StringId, bytes: u64) -> Weighed {
        match self.by_text.get(&text) {
            Some(sample) => sample.weighed(bytes),
            None => Weighed { size_bytes: bytes, bytes, blocks: 1.0, estimated: false },
        }
    }

    /// The block in that row of [`Snapshot::blocks`].
    pub(crate) fn weighed_block(&self, row: usize, bytes: u64) -> Weighed {
        match self.by_block.get(&(row as u32)) {
            Some(sample) => sample.weighed(bytes),
            None => Weighed { size_bytes: bytes, bytes, blocks: 1.0, estimated: false },
        }
    }

    /// The path of the scope that a text names.
    pub(super) fn path(&self, text: StringId) -> StringId {
        self.by_text.get(&text).map_or(text, |sample| sample.path)
    }
}

/// The texts of samples while a file is made.
#[derive(Default)]
pub(super) struct Texts {
    known: HashMap<(StringId, u64, u64), StringId>,
    all: Vec<(StringId, Sample)>,
}

impl Texts {
    /// What the metadata of a sampled block in the scope with that `path` says.
    pub(super) fn text(
        &mut self,
        path: StringId,
        weighed: Weighed,
        strings: &mut StringInterner,
    ) -> StringId {
        let Weighed { size_bytes, blocks, .. } = weighed;
        let all = &mut self.all;
        *self.known.entry((path, size_bytes, blocks.to_bits())).or_insert_with(|| {
            let scope = strings.table.get(path).into_owned();
            let between = if scope.is_empty() { "" } else { " " };
            let said = format!("{scope}{between}[sample of {size_bytes} B, stands for {blocks:.2} blocks]");
            let text = strings.intern(said.as_bytes());
            all.push((text, Sample { path, size_bytes, weight: blocks }));
            text
        })
    }

    /// What they mean, as a value; none where there are none.
    pub(super) fn value(&self) -> Option<Value> {
        let one = |(text, sample): &(StringId, Sample)| {
            let parts = [
                Value::Str(*text),
                Value::Str(sample.path),
                Value::integer(sample.size_bytes.into()),
                Value::Float(sample.weight),
            ];
            Value::List(parts.into_iter().collect())
        };
        (!self.all.is_empty()).then(|| Value::List(self.all.iter().map(one).collect()))
    }
}

/// Finds the samples of a snapshot that memtrack wrote.
pub(super) fn restore(snapshot: &mut Snapshot) {
    let Some(pytorch) = snapshot.pytorch.as_deref_mut() else { return };
    let settings = pytorch.root_value(Key::AllocatorSettings);
    let ours = settings.and_then(|settings| of_memtrack(settings, "samples", &snapshot.strings));
    let Some(Value::List(entries)) = ours else { return };
    let by_text: HashMap<StringId, Sample> = entries.iter().filter_map(read).collect();
    let by_block = of_blocks(pytorch, &snapshot.strings, &by_text);
    pytorch.samples = Samples { by_text, by_block };
}

fn read(entry: &Value) -> Option<(StringId, Sample)> {
    let Value::List(parts) = entry else { return None };
    let [Value::Str(text), Value::Str(path), size, weight] = &parts[..] else { return None };
    let size_bytes = u64::try_from(size.as_i128()?).ok()?;
    let weight = match weight {
        Value::Float(weight) => *weight,
        other => other.as_i128()? as f64,
    };
    (weight.is_finite() && weight >= 1.0).then_some((*text, Sample { path: *path, size_bytes, weight }))
}

/// The samples among the live blocks.
fn of_blocks(
    pytorch: &PyTorch,
    strings: &StringTable,
    by_text: &HashMap<StringId, Sample>,
) -> HashMap<u32, Sample> {
    let sample = |row| by_text.get(&pytorch.blocks.text(row, Key::UserMetadata));
    let rows = (0u32..).zip(active_blocks(pytorch, strings));
    rows.filter_map(|(place, row)| Some((place, *sample(row)?))).collect()
}

/// The rows of the blocks that are in use or not free yet: those of [`Snapshot::blocks`], in their order.
pub(super) fn active_blocks<'a>(
    pytorch: &'a PyTorch,
    strings: &'a StringTable,
) -> impl Iterator<Item = usize> + 'a {
    let blocks = &pytorch.blocks;
    let rows = (0..pytorch.segments.len()).flat_map(|row| pytorch.segments.rows(row, Key::Blocks));
    rows.filter(|&row| is_active(strings.bytes(blocks.text(row, Key::State))))
}

/// Whether a block in that state is handed out, or not free yet.
fn is_active(state: &[u8]) -> bool {
    matches!(state, b"active_allocated" | b"active_pending_free" | b"active_awaiting_free")
}
