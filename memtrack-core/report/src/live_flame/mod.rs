//! Flame graphs of the memory that was live at a given moment, such as the peak. Frames that only forward a call are
//! omitted according to the rules of [`ownership`](memtrack_frames::ownership). `memtrack memory --at` draws them.
//!
//! `tree` adds up the stacks, `bound` keeps the largest functions and merges the others, and `draw` creates the image.

pub(crate) mod bound;
#[cfg(feature = "plot")]
mod draw;
pub(crate) mod tree;

#[cfg(feature = "plot")]
pub use draw::flame_graph;

use memtrack_blocks::estimate::{Estimate, KnownTotal, Precision, Sum};
use memtrack_blocks::lifetimes::{is_estimate, lifetimes};
use memtrack_blocks::moment::Moment;
use memtrack_blocks::net::counted_at_end;
use memtrack_blocks::origin::{Origin, Origins};
use memtrack_blocks::peak::Peak;
use memtrack_frames::attribution::{NO_STACK, OLDER_MEMORY};
use memtrack_frames::language::is_script;
use memtrack_frames::ownership::{Owner, Owners, Rules, short};
use memtrack_model::Frame;
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{Since, Snapshot};
use memtrack_model::units::{capitalised, human_bytes, human_count, printable};
use memtrack_symbols::Symbolizer;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::HashMap;
use tree::{RectangleKind, Tree};

/// The maximum number of rectangles in an image, including those that stand for removed functions.
pub const MAX_RECTANGLES: usize = 1000;

/// The memory that was live on some devices, each at its own moment.
#[derive(Debug, Default)]
pub struct LiveFlame {
    /// The live memory of each device.
    pub devices: Vec<FlameDevice>,
}

/// The memory that was live on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FlameDevice {
    /// The device.
    pub device: DeviceAnswer,
    /// The moment at which the memory was live, as text.
    pub at: Moment,
    /// The number of the event that the moment follows; `None` before the first event and at the end.
    #[serde(skip)]
    event: Option<usize>,
    /// The moment at which the memory was live, in seconds since `seconds_since`; null if it was before the first event or
    /// the file does not record times.
    pub seconds: Option<f64>,
    /// The origin from which the seconds are counted: `start` or `first_event`.
    #[serde(rename = "seconds_since")]
    pub since: Since,
    /// Whether the file has events.
    #[serde(skip)]
    has_events: bool,
    /// The requested bytes that were live.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    #[serde(rename = "requested_bytes_error")]
    pub bytes_error: Estimate,
    /// The number of blocks that were live.
    #[serde(rename = "count")]
    pub blocks: u64,
    /// The margin of error of the number of blocks; null if it is exact.
    #[serde(rename = "count_error")]
    pub blocks_error: Estimate,
    /// Whether the recording is complete. If not, the true peak and the memory that was live at the end are at least as
    /// large as these numbers.
    pub complete: bool,
    /// The stacks that allocated the live blocks, those with the most bytes first.
    #[serde(serialize_with = "serialize_largest_first")]
    pub stacks: Vec<FlameStack>,
}

/// The live blocks with one stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FlameStack {
    /// The functions in the stack, innermost first, without those that only forward a call; empty if no stack is known.
    #[serde(rename = "stack")]
    pub frames: Vec<FlameFrame>,
    /// Whether the blocks were allocated before the trace started, so that their origin is unknown.
    #[serde(rename = "before_the_trace")]
    pub older: bool,
    /// The line that freed the blocks, if they were allocated before the trace; null otherwise or if the line is
    /// unknown.
    pub freed_at: Option<FlameFrame>,
    /// The requested bytes in the live blocks with this stack.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    #[serde(rename = "requested_bytes_error")]
    pub bytes_error: Estimate,
    /// The number of live blocks with this stack.
    #[serde(rename = "count")]
    pub blocks: u64,
    /// The margin of error of the number of blocks; null if it is exact.
    #[serde(rename = "count_error")]
    pub blocks_error: Estimate,
}

/// A function in a stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FlameFrame {
    /// The function.
    #[serde(flatten)]
    pub frame: Frame,
    /// Whether the function is in the user's code.
    #[serde(rename = "mine", serialize_with = "serialize_is_mine")]
    #[cfg_attr(feature = "schema", schemars(with = "bool"))]
    pub owner: Owner,
}

/// Serializes stacks in the order of their bytes. Those with equal bytes keep the order in which they first appeared.
fn serialize_largest_first<S: Serializer>(stacks: &[FlameStack], to: S) -> Result<S::Ok, S::Error> {
    let mut stacks: Vec<&FlameStack> = stacks.iter().collect();
    stacks.sort_by_key(|stack| Reverse(stack.bytes));
    to.collect_seq(stacks)
}

fn serialize_is_mine<S: Serializer>(owner: &Owner, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bool(*owner == Owner::Mine)
}

impl LiveFlame {
    /// Creates an empty flame graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the memory that was live on `device` at the given moment.
    pub fn add(
        &mut self,
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        device: DeviceId,
        at: Moment,
        rules: &Rules,
    ) {
        self.devices.push(FlameDevice::of(snapshot, symbols, device, at, rules));
    }

    /// Removes the devices without live memory. If no device had live memory, all of them are kept.
    pub fn remove_empty_devices(&mut self) {
        if !self.is_empty() {
            self.devices.retain(|device| !device.stacks.is_empty());
        }
    }

    /// Returns whether no device had live memory.
    pub fn is_empty(&self) -> bool {
        self.devices.iter().all(|device| device.stacks.is_empty())
    }

    /// Returns a line `frame;frame;… bytes` for each stack, outermost function first. If there are several devices, the
    /// outermost frame is the device. All stacks are included.
    pub fn folded(&self) -> Vec<String> {
        self.build_tree(|device| device.device.name.clone()).format_lines()
    }

    /// Returns the lines for an image of at most `rectangles` rectangles, in which the smallest functions are merged.
    pub fn bounded(&self, rectangles: usize) -> Vec<String> {
        self.build_bounded_tree(rectangles).format_lines()
    }

    /// Returns the title of the image, e.g. `Device 0 at the peak: 11.57 GiB in 1,447 blocks, 0.050 s after the first
    /// event`.
    pub fn title(&self) -> String {
        match &self.devices[..] {
            [] => "Nothing was live".into(),
            [one] => capitalised(&one.title(&format!("{} {}", one.device.name, one.at.name()))),
            [first, ..] => format!("{} devices, each {}", self.devices.len(), first.at.name()),
        }
    }

    /// Returns whether some blocks were sampled, which makes widths estimates.
    pub fn is_estimated(&self) -> bool {
        let mut stacks = self.devices.iter().flat_map(|device| &device.stacks);
        stacks.any(|stack| stack.bytes_error.low < stack.bytes_error.value)
    }

    /// Returns the tree to draw. If there are several devices, the frame of each device states its bytes and its
    /// moment.
    fn build_bounded_tree(&self, rectangles: usize) -> Tree {
        bound::bound_tree(&self.build_tree(|device| device.title(&device.device.name)), rectangles)
    }

    fn build_tree(&self, name: impl Fn(&FlameDevice) -> String) -> Tree {
        let mut tree = Tree::default();
        for device in &self.devices {
            let root = match self.devices.len() {
                1 => Tree::ROOT,
                _ => tree.get_or_add_child(Tree::ROOT, &name(device), RectangleKind::Device),
            };
            for stack in &device.stacks {
                let mut node = root;
                for FlameFrame { frame, owner } in shown_functions(&stack.frames) {
                    let colour =
                        if *owner == Owner::Mine { RectangleKind::Mine } else { RectangleKind::Framework };
                    let label = short(frame);
                    // Merge a function with its caller if both have the same label, as in recursive calls.
                    if tree.label(node) != label {
                        node = tree.get_or_add_child(node, &label, colour);
                    }
                }
                if stack.frames.is_empty() {
                    node = tree.get_or_add_child(
                        node,
                        if stack.older { OLDER_MEMORY } else { NO_STACK },
                        RectangleKind::Unknown,
                    );
                }
                if let Some(FlameFrame { frame, .. }) = &stack.freed_at {
                    node = tree.get_or_add_child(
                        node,
                        &format!("freed at {}", short(frame)),
                        RectangleKind::Unknown,
                    );
                }
                tree.add(node, stack.bytes);
            }
        }
        tree
    }
}

impl FlameDevice {
    /// Formats a title such as `name: 11.57 GiB in 1,447 blocks, 0.050 s after the first event`.
    fn title(&self, name: &str) -> String {
        let (bytes, blocks) =
            (self.bytes_error.as_bytes(self.bytes), self.blocks_error.as_counted(self.blocks, "block"));
        let when = match self.seconds {
            Some(seconds) => self.since.moment(seconds),
            None => match self.event {
                Some(event) => format!("after event {event}"),
                None if self.at == Moment::End && self.has_events => "after the last event".into(),
                None => "before the first event".into(),
            },
        };
        format!("{name}: {bytes} in {blocks}, {when}")
    }

    fn of(
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        device: DeviceId,
        at: Moment,
        rules: &Rules,
    ) -> Self {
        let lifetimes = lifetimes(snapshot, device);
        let precision = Precision::of(snapshot, device, &lifetimes);
        let peak = Peak::of(snapshot, device, &lifetimes);
        let row = if at == Moment::Peak { peak.row } else { at.row() };
        let origins = Origins::of(snapshot, &lifetimes);
        let mut owners = Owners::new(rules);
        let mut known: HashMap<Origin, usize> = HashMap::new();
        let (mut stacks, mut sums) = (Vec::<FlameStack>::new(), Vec::<StackSums>::new());
        let (mut bytes, mut blocks) = (0u64, 0.0);
        let (mut bytes_sum, mut blocks_sum) = (Sum::default(), Sum::default());
        for lifetime in lifetimes.iter().filter(|lifetime| lifetime.is_live_after(row)) {
            let origin = origins.origin(lifetime);
            let place = *known.entry(origin).or_insert_with(|| {
                stacks.push(FlameStack::of(origin, snapshot, symbols, &mut owners));
                sums.push(StackSums::default());
                stacks.len() - 1
            });
            stacks[place].bytes = stacks[place].bytes.saturating_add(lifetime.bytes);
            sums[place].blocks += lifetime.blocks;
            sums[place].blocks_sum.add(1.0, lifetime.blocks);
            sums[place].bytes_sum.add(lifetime.size_bytes as f64, lifetime.blocks);
            bytes = bytes.saturating_add(lifetime.bytes);
            blocks += lifetime.blocks;
            bytes_sum.add(lifetime.size_bytes as f64, lifetime.blocks);
            blocks_sum.add(1.0, lifetime.blocks);
        }
        let held = counted_at_end(snapshot, device, &lifetimes).filter(|_| at == Moment::End);
        let most_live =
            if is_estimate(snapshot, device, &lifetimes) { peak.recorded.high } else { f64::INFINITY };
        let of_bytes = KnownTotal::of(held.map_or(most_live, |held| held.bytes as f64), &bytes_sum);
        let of_blocks = KnownTotal::of(held.map_or(f64::INFINITY, |held| held.blocks as f64), &blocks_sum);
        let complete = snapshot.meta.complete;
        let is_complete = complete || at != Moment::End;
        for (stack, sums) in stacks.iter_mut().zip(&sums) {
            stack.bytes = of_bytes.rounded(&sums.bytes_sum, stack.bytes);
            stack.blocks = sums.blocks.round() as u64;
            let bytes = of_bytes.part(precision.bytes(&sums.bytes_sum), &sums.bytes_sum);
            let blocks = of_blocks.part(precision.blocks(&sums.blocks_sum), &sums.blocks_sum);
            (stack.bytes_error, stack.blocks_error) =
                (bytes.with_completeness(is_complete), blocks.with_completeness(is_complete));
        }
        bytes = of_bytes.rounded(&bytes_sum, bytes);
        // If the recording is incomplete, the true peak may be higher. The memory at an earlier moment is still known.
        let total_is_complete = complete || !matches!(at, Moment::End | Moment::Peak);
        let mut bytes_error = of_bytes
            .part(precision.bytes(&bytes_sum), &bytes_sum)
            .as_total()
            .with_completeness(total_is_complete);
        let mut blocks_error = precision.blocks(&blocks_sum).as_total().with_completeness(is_complete);
        if let Some(held) = held {
            (bytes, blocks) = (held.bytes, held.blocks as f64);
            (bytes_error, blocks_error) = (held.bytes_error, held.blocks_error);
        }
        let last = || {
            let ticks = snapshot.events.ticks.iter().max().filter(|_| snapshot.has_times());
            ticks.map(|&ticks| snapshot.clock.seconds_since_start(ticks))
        };
        let row = row.filter(|&row| row < snapshot.events.len());
        Self {
            device: DeviceAnswer::of(snapshot, device),
            at,
            event: row.filter(|_| at != Moment::End).map(|row| Moment::events_before(snapshot, device, row)),
            seconds: if at == Moment::End { last() } else { row.and_then(|row| snapshot.seconds_at(row)) },
            has_events: !snapshot.events.is_empty(),
            since: snapshot.seconds_since(),
            bytes,
            bytes_error,
            complete,
            blocks: blocks.round() as u64,
            blocks_error,
            stacks,
        }
    }
}

/// Running sums over the blocks with one stack.
#[derive(Default)]
struct StackSums {
    blocks: f64,
    blocks_sum: Sum,
    bytes_sum: Sum,
}

impl FlameStack {
    /// Creates an entry for the blocks of `origin`, with all numbers set to 0.
    fn of(origin: Origin, snapshot: &Snapshot, symbols: &mut Symbolizer, owners: &mut Owners<'_>) -> Self {
        let (mut frames, mut freed_at) = (Vec::new(), None);
        match origin {
            Origin::Allocated(stack) => {
                let all = owners.functions(&snapshot.frame_keys(stack), symbols).into_iter();
                frames = all.map(|(frame, owner)| FlameFrame { frame, owner }).collect();
                // A stack in which every frame only forwards a call is shown as it is.
                let is_uninformative = frames.iter().all(|frame| frame.owner == Owner::Noise);
                frames.retain(|frame| is_uninformative || frame.owner != Owner::Noise);
            }
            Origin::Freed(stack) => {
                let owned = owners.owner(&snapshot.frame_keys(stack), symbols);
                let mine = owned.mine.map(|frame| FlameFrame { frame, owner: Owner::Mine });
                let called = owned.called.map(|frame| FlameFrame { frame, owner: Owner::Framework });
                freed_at = mine.or(called);
            }
            Origin::Older | Origin::NoStack => {}
        }
        Self {
            frames,
            older: matches!(origin, Origin::Freed(_) | Origin::Older),
            freed_at,
            bytes: 0,
            bytes_error: Estimate::default(),
            blocks: 0,
            blocks_error: Estimate::default(),
        }
    }
}

/// Returns the functions of a stack that a flame graph shows, outermost first. Below a line of a script, only the C++
/// function that the line called is shown, because PyTorch's internals would otherwise take up most of the image.
fn shown_functions(stack: &[FlameFrame]) -> impl Iterator<Item = &FlameFrame> {
    let mut below_framework = false;
    let mut below_script = false;
    stack.iter().rev().filter(move |FlameFrame { frame, owner }| {
        let skipped = below_framework && *owner == Owner::Framework && !is_script(frame);
        let is_line = is_script(frame);
        below_script |= is_line;
        below_framework = below_script && *owner == Owner::Framework && !is_line;
        !skipped
    })
}

/// Replaces characters in a name that would separate frames or lines or that are not allowed in XML.
pub(crate) fn escape_label(name: &str) -> String {
    printable(name).replace(';', ":")
}

/// Returns the label of a rectangle that stands for `number` removed functions.
fn removed_label(number: usize, bytes: u64) -> String {
    format!("… {} more ({})", human_count(number as u64), human_bytes(bytes))
}
