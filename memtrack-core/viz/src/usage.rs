//! The true contents of the segments: requested bytes by stack, bytes that rounding added, and free blocks. Pictures
//! and `--json` use these numbers, whereas the folded lines repeat the numbers that PyTorch computes from stale sizes.

use super::blocks::Blocks;
use super::inconsistencies::Inconsistencies;
use super::stacks::Stacks;
use super::stats::format_address;
use memtrack_blocks::estimate::{Estimate, Precision, Sum};
use memtrack_blocks::lifetimes::lifetimes;
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, FrameAnswer, WideAnswer};
use memtrack_model::event::{DeviceId, StackId};
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use memtrack_model::snapshot::{Snapshot, StringId};
use memtrack_model::units::human_bytes;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The way in which rows are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// One group per stream.
    Stream,
    /// One group per segment.
    Segment,
}

impl Grouping {
    /// Returns the title for a picture with this grouping.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Stream => "Memory by stream",
            Self::Segment => "Segments",
        }
    }
}

/// The part of a block that a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The requested bytes of an active block.
    Requested,
    /// The bytes that rounding added to an active block.
    Rounding,
    /// All bytes of a free block.
    Free,
}

impl Part {
    /// Returns the name of the part, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Rounding => "rounding",
            Self::Free => "free",
        }
    }
}

/// The bytes that share a group, state, part and stack.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct UsageRow {
    /// The group, as an index into [`Usage::groups`].
    pub group: usize,
    /// The state of the blocks, as named by PyTorch.
    pub state: StringId,
    /// The part of each block that the row counts.
    pub part: Part,
    /// The stack that allocated the blocks; `NONE` for rounding and for free blocks.
    pub stack: StackId,
    /// The bytes, which are never negative.
    pub bytes: i128,
    /// The same bytes as a sum, from which their error is computed.
    sum: Sum,
}

/// The group of a row: a device's stream, or one of its segments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Group {
    /// The device.
    pub device: DeviceId,
    /// The stream, as Python prints it.
    pub stream: String,
    /// The segment's address; `None` for a whole stream.
    pub segment: Option<i128>,
    /// The segment's pool, where (0, 0) is the default pool; `None` for a whole stream, or if the file names no pool.
    pub pool: Option<(u64, u64)>,
}

/// The contents of a snapshot's segments.
#[non_exhaustive]
pub struct Usage<'a> {
    snapshot: &'a Snapshot,
    /// The streams or segments that the rows belong to.
    pub groups: Vec<Group>,
    /// The rows, in the order of their first blocks in the file.
    pub rows: Vec<UsageRow>,
    /// The inconsistencies in the file.
    pub odd: Inconsistencies,
    /// The host heap and the precision of its samples; `None` if the snapshot contains no heap.
    heap: Option<(DeviceId, Precision)>,
}

impl<'a> Usage<'a> {
    /// Computes the usage of all segments.
    pub fn of(snapshot: &'a PytorchSnapshot, grouping: Grouping) -> Self {
        Self::of_segments(snapshot, grouping, Blocks::of(snapshot).segments())
    }

    pub(super) fn of_segments(
        snapshot: &'a PytorchSnapshot,
        grouping: Grouping,
        segments: impl IntoIterator<Item = usize>,
    ) -> Self {
        let blocks = Blocks::of(snapshot);
        let heap = blocks.pytorch.heap.map(|heap| {
            let lifetimes = lifetimes(snapshot, heap);
            (heap, Precision::of(snapshot, heap, &lifetimes))
        });
        let mut usage =
            Self { snapshot, groups: Vec::new(), rows: Vec::new(), odd: Inconsistencies::default(), heap };
        let samples = &blocks.pytorch.samples;
        let mut groups = HashMap::new();
        let mut places = HashMap::new();
        for segment in segments {
            let mut stream = Vec::new();
            blocks.push_stream(&mut stream, segment);
            let of = Group {
                device: snapshot.segments.get(segment).map_or(DeviceId(0), |row| row.device),
                stream: String::from_utf8_lossy(&stream).into_owned(),
                segment: (grouping == Grouping::Segment).then(|| blocks.address(segment)),
                pool: match grouping {
                    Grouping::Segment => blocks.pytorch.segments.named_pool(segment, Key::SegmentPoolId),
                    Grouping::Stream => None,
                },
            };
            let next = usage.groups.len();
            let group = *groups.entry(of.clone()).or_insert(next);
            if group == next {
                usage.groups.push(of);
            }
            for block in blocks.segment_blocks(segment) {
                let state = blocks.pytorch.blocks.text(block, Key::State);
                for (part, stack, bytes) in block_parts(blocks, block, &mut usage.odd) {
                    let next = usage.rows.len();
                    let row = *places.entry((group, state, part, stack)).or_insert(next);
                    if row == next {
                        usage.rows.push(UsageRow {
                            group,
                            state,
                            part,
                            stack,
                            bytes: 0,
                            sum: Sum::default(),
                        });
                    }
                    let row = &mut usage.rows[row];
                    row.bytes += bytes;
                    // All bytes of a sampled block count as requested.
                    match samples.weighed(blocks.pytorch.blocks.text(block, Key::UserMetadata), 0) {
                        sample if sample.estimated => row.sum.add(sample.size_bytes as f64, sample.blocks),
                        _ => row.sum.add(bytes as f64, 1.0),
                    }
                }
            }
        }
        usage
    }

    /// Returns the devices of all groups.
    pub fn devices(&self) -> BTreeSet<DeviceId> {
        self.groups.iter().map(|group| group.device).collect()
    }

    /// Formats a title that consists of `what`, the device (or the number of devices) and the totals.
    pub fn title(&self, what: &str) -> String {
        let devices = self.devices();
        let of = match devices.len() {
            1 => devices.iter().map(|&device| format!(" of {}", self.snapshot.device_name(device))).collect(),
            0 => String::new(),
            several => format!(" of {several} devices"),
        };
        let bytes_of = |part| {
            let rows = self.rows.iter().filter(|row| row.part == part);
            u64::try_from(rows.map(|row| row.bytes).sum::<i128>()).unwrap_or(u64::MAX)
        };
        let has_segments = |device| self.snapshot.device_kind(device).has_segments();
        let is_whole = devices.len() == 1 && !devices.iter().any(|&device| has_segments(device));
        let [requested, rounding, free] =
            [Part::Requested, Part::Rounding, Part::Free].map(|part| human_bytes(bytes_of(part)));
        let error = self.estimate_error(self.rows.iter().filter(|row| row.part == Part::Requested));
        let (requested, estimated) = match error.is_exact() {
            true => (requested, ""),
            false => (error.as_bytes(bytes_of(Part::Requested)), " (small blocks were sampled)"),
        };
        if is_whole {
            // There are no segments, and the rounding is unknown.
            return format!("{what}{of}: {requested} in use{estimated}");
        }
        format!(
            "{what}{of}: {} reserved, {requested} in use, {rounding} rounding, {free} free{estimated}",
            human_bytes(self.bytes())
        )
    }

    /// Formats `bytes`, which is the sum of all rows, with the error of that sum.
    pub fn format_with_error(&self, bytes: u64) -> String {
        self.estimate_error(self.rows.iter()).as_bytes(bytes)
    }

    /// Returns the error of a sum of rows, some of which may be sampled heap blocks.
    fn estimate_error<'r>(&self, rows: impl Iterator<Item = &'r UsageRow>) -> Estimate {
        let (mut sum, mut precision) = (Sum::default(), Precision::default());
        for row in rows {
            sum = sum.with(&row.sum);
            let device = self.groups[row.group].device;
            if let Some((_, of_heap)) = self.heap.filter(|(heap, _)| *heap == device) {
                precision = of_heap;
            }
        }
        precision.bytes(&sum)
    }

    /// Returns the total bytes of all rows.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.rows.iter().map(|row| row.bytes).sum::<i128>()).unwrap_or(u64::MAX)
    }

    /// Returns lines for a flame graph, each of the form `frame;frame;… bytes` and starting with `prefix`. Frames
    /// contain no `;` and no line breaks. If there are several devices, each has its own root frame.
    pub fn lines(&self, prefix: &str) -> Vec<String> {
        let mut stacks = Stacks::of(self.snapshot);
        let clean = |text: &str| text.replace(';', ":").replace(char::is_control, " ");
        let devices = self.devices();
        let several = devices.len() > 1;
        let names: BTreeMap<DeviceId, String> =
            devices.into_iter().map(|device| (device, self.snapshot.device_name(device))).collect();
        let line = |row: &UsageRow| {
            let Group { device, stream, segment, .. } = &self.groups[row.group];
            let mut line = prefix.to_owned();
            if several {
                line += &format!("{};", names[device]);
            }
            line += &format!("stream_{}", clean(stream));
            if let Some(address) = segment {
                line += &format!(";segment {}", format_address(*address));
            }
            line += &format!(";{}", clean(&self.snapshot.strings.get(row.state)));
            match row.part {
                Part::Free => {}
                Part::Rounding => line += ";(rounding)",
                Part::Requested => {
                    let frames = stacks.frame_texts(row.stack);
                    if frames.is_empty() {
                        line += ";(no stack)";
                    }
                    for frame in frames.into_iter().rev() {
                        line += &format!(";{}", clean(&frame));
                    }
                }
            }
            format!("{line} {}", row.bytes)
        };
        self.rows.iter().filter(|row| row.bytes > 0).map(line).collect()
    }

    /// Returns the rows as `--json` prints them.
    pub fn answer(&self) -> Vec<UsageAnswer> {
        let ordinals = self.snapshot.ordinals();
        let device = |device: DeviceId| {
            let (name, snapshot) = (self.snapshot.device_name(device), self.snapshot);
            DeviceAnswer::new(ordinals.of(device), &name, snapshot.device_kind(device))
        };
        let devices: BTreeMap<DeviceId, DeviceAnswer> =
            self.devices().into_iter().map(|id| (id, device(id))).collect();
        let mut stacks = Stacks::of(self.snapshot);
        let row = |row: &UsageRow| {
            let Group { device, stream, segment, pool } = &self.groups[row.group];
            UsageAnswer {
                device: devices.get(device).cloned().unwrap_or_default(),
                stream: stream.clone(),
                segment: segment.map(format_address),
                pool: pool.map(|(first, second)| [first, second]),
                state: self.snapshot.strings.get(row.state).into_owned(),
                part: row.part,
                size_bytes: WideAnswer(row.bytes),
                size_bytes_error: self.estimate_error(std::iter::once(row)).answer(),
                stack: stacks.build_answer(row.stack),
            }
        };
        self.rows.iter().map(row).collect()
    }
}

/// The bytes of a device's blocks that share a stream or segment, state, part and stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct UsageAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// The stream of the blocks.
    pub stream: String,
    /// The address of the blocks' segment, as `0x…`; null if the row is for a whole stream.
    pub segment: Option<String>,
    /// The pool of the blocks' segment, as the two parts of its number; null for a whole stream, or if the file names
    /// no pool.
    pub pool: Option<[u64; 2]>,
    /// The state of the blocks, as named by PyTorch.
    pub state: String,
    /// The part of each block that the row counts.
    pub part: Part,
    /// The total bytes of this part of the blocks.
    pub size_bytes: WideAnswer,
    /// The margin of error of the total bytes; null if they are exact.
    pub size_bytes_error: Option<ErrorAnswer>,
    /// The stack that allocated the blocks, innermost frame first, without the frames that PyTorch hides; null if there
    /// is no stack, and for rounding and free blocks.
    pub stack: Option<Vec<FrameAnswer>>,
}

/// Returns the parts of a block, each with its stack and its bytes. The bytes of a part are never negative, and those of
/// all parts add up to the block's size. A block with a negative size has no parts.
fn block_parts(blocks: Blocks<'_>, block: usize, odd: &mut Inconsistencies) -> Vec<(Part, StackId, i128)> {
    let size = blocks.size(block);
    if size < 0 {
        odd.note("has a negative size and is left out", || blocks.format_name(block));
        return Vec::new();
    }
    if !blocks.state(block).starts_with(b"active") {
        return vec![(Part::Free, StackId::NONE, size)];
    }
    let (requested, stack) = blocks.requested(block, odd);
    if requested > size {
        odd.note("requests more than its size; its size was used", || blocks.format_name(block));
    }
    let requested = requested.clamp(0, size);
    let mut parts = vec![(Part::Requested, stack, requested)];
    if size > requested {
        parts.push((Part::Rounding, StackId::NONE, size - requested));
    }
    parts
}
