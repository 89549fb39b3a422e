//! Rows that are not named after scopes or stacks but after streams, tasks, pools, sizes, texts or a profile's categories.
//! `rows` finds the group of each block here.

use super::By;
use super::texts::Texts;
use memtrack_blocks::held::pool_name;
use memtrack_blocks::lifetimes::Lifetime;
use memtrack_model::Frame;
use memtrack_model::event::{DeviceId, TaskId};
use memtrack_model::snapshot::Snapshot;
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::units::{human_bytes, human_count, shorten_middle};

/// The groups of one device's blocks, by stream, task, pool, size, category or text.
pub(super) struct Groups<'a> {
    snapshot: &'a Snapshot,
    by: By,
    texts: Texts<'a>,
    /// The device's segments by address, with the start, end and row of each.
    segments: Vec<(u64, u64, usize)>,
}

impl<'a> Groups<'a> {
    /// Creates the groups for the blocks of `device`.
    pub(super) fn new(snapshot: &'a Snapshot, by: By, device: DeviceId) -> Self {
        let rows = snapshot.segments.iter().enumerate().filter(|(_, segment)| segment.device == device);
        let place = |(row, segment): (usize, &memtrack_model::snapshot::Segment)| {
            (segment.address, segment.address.saturating_add(segment.size_bytes), row)
        };
        let mut segments: Vec<_> = rows.map(place).collect();
        segments.sort_unstable();
        let texts = if by == By::Metadata { Texts::of_device(snapshot, device) } else { Texts::default() };
        Self { snapshot, by, texts, segments }
    }

    /// Returns the name of a block's group, or `None` if the ranking is by scopes or stacks.
    pub(super) fn group_name(&self, lifetime: &Lifetime) -> Option<String> {
        Some(match self.by {
            By::Size => {
                format!("{} ({} bytes)", human_bytes(lifetime.size_bytes), human_count(lifetime.size_bytes))
            }
            By::Stream => match lifetime.stream(self.snapshot).0 {
                0 => "default stream".into(),
                stream => format!("stream {stream:#x}"),
            },
            By::Task => task_label(self.snapshot, lifetime.task(self.snapshot)),
            By::Pool => match self.block_pool(lifetime) {
                Some(pool) => pool_name(pool),
                None => "(unknown pool)".into(),
            },
            By::Category => lifetime.category(self.snapshot).unwrap_or_else(|| NO_CATEGORY.into()),
            By::Metadata => {
                let text = self.texts.block_text(lifetime).map(|text| self.snapshot.strings.get(text));
                text.map_or_else(|| "(no text)".into(), |text| shorten_middle(&text, MAX_TEXT_CHARS))
            }
            _ => return None,
        })
    }

    /// Returns the pool given in the block's event or, failing that, the pool of the segment that contains the block's
    /// address at the end of the trace.
    fn block_pool(&self, lifetime: &Lifetime) -> Option<(u64, u64)> {
        let pytorch = self.snapshot.pytorch.as_deref()?;
        let row = lifetime.from.or(lifetime.to);
        if let Some(row) = row.filter(|&row| pytorch.events.has(row, Key::PoolId)) {
            return pytorch.events.named_pool(row, Key::PoolId);
        }
        let address = match (row, lifetime.block) {
            (Some(row), _) => self.snapshot.events.address[row],
            (None, Some(block)) => self.snapshot.blocks.get(block as usize)?.address,
            (None, None) => return None,
        };
        let after = self.segments.partition_point(|&(start, _, _)| start <= address);
        let &(_, end, segment) = self.segments.get(after.checked_sub(1)?)?;
        if address < end { pytorch.segments.named_pool(segment, Key::SegmentPoolId) } else { None }
    }
}

/// Returns the name of the row for the blocks of a task, which is its place.
pub(crate) fn task_label(snapshot: &Snapshot, task: TaskId) -> String {
    if task.is_none() {
        return OUTSIDE_TASKS.into();
    }
    snapshot.tasks.place(task).map_or_else(|| UNKNOWN_PLACE.into(), |place| place.label())
}

/// The name of the row for blocks that no task allocated.
pub(crate) const OUTSIDE_TASKS: &str = "(outside tasks)";
/// The name of the row for tasks that are not in the table, because the recording was cut off before it was written.
const UNKNOWN_PLACE: &str = "(tasks of unknown places)";

/// The name of the row for blocks without a category.
pub(crate) const NO_CATEGORY: &str = "(no category)";

/// The maximum number of characters of a program's text to show in a row's name.
pub(super) const MAX_TEXT_CHARS: usize = 1000;

/// Returns the name of a frame's row, which is `function file:line` or just the file.
pub(super) fn frame_name(frame: &Frame, by: By) -> String {
    // PyTorch writes `??` for an unknown file and 0 for an unknown line.
    let file = frame.file.as_deref().filter(|file| !file.is_empty() && *file != "??");
    match (by, file, frame.line.filter(|&line| line > 0)) {
        (By::File, Some(file), _) => file.to_owned(),
        (By::File, None, _) => "(no file)".into(),
        (_, Some(file), Some(line)) => format!("{} {file}:{line}", frame.function),
        (_, Some(file), None) => format!("{} {file}", frame.function),
        _ => frame.function.clone(),
    }
}
