//! Flame graphs of the memory that was live at a given moment, such as the peak. Frames that only forward a call are
//! omitted according to the rules of [`ownership`](memtrack_frames::ownership). `memtrack memory --at` draws them.
//!
//! `tree` adds up the stacks, `bound` keeps the largest functions and merges the others, and `draw` creates the image.

pub(crate) mod bound;
#[cfg(feature = "plot")]
mod draw;
mod json;
pub(crate) mod tree;

#[cfg(feature = "plot")]
pub use draw::flame_graph;
pub use json::{FlameDevice, FlameFrame, FlameMoment, FlameStack};

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
use memtrack_model::event::{DeviceId, DeviceKind};
use memtrack_model::snapshot::{Since, Snapshot};
use memtrack_model::units::{capitalised, human_bytes, human_count, printable};
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;
use tree::{RectangleKind, Tree};

/// The maximum number of rectangles in an image, including those that stand for removed functions.
pub const MAX_RECTANGLES: usize = 1000;

/// The memory that was live on some devices, each at its own moment.
#[derive(Debug, Default)]
pub struct LiveFlame {
    devices: Vec<LiveStacks>,
}

/// The memory that was live on one device.
#[derive(Debug)]
struct LiveStacks {
    device: u16,
    name: String,
    kind: DeviceKind,
    at: Moment,
    /// The number of the event that the moment follows; `None` before the first event and at the end.
    event: Option<usize>,
    /// The time in seconds since `since`; `None` before the first event or if the file does not record times.
    seconds: Option<f64>,
    since: Since,
    has_events: bool,
    bytes: u64,
    error: Estimate,
    complete: bool,
    blocks: u64,
    blocks_error: Estimate,
    stacks: Vec<LiveStack>,
}

/// The blocks with one stack.
#[derive(Debug)]
struct LiveStack {
    /// The frames, innermost first, without those that only forward a call.
    frames: Vec<(Frame, Owner)>,
    /// Whether the blocks were allocated before the trace started, so that their stack is unknown.
    older: bool,
    /// If the blocks were allocated before the trace, the line that freed them, if known.
    freed_at: Option<(Frame, Owner)>,
    bytes: u64,
    blocks: f64,
    bytes_sum: Sum,
    bytes_error: Estimate,
    blocks_sum: Sum,
    blocks_error: Estimate,
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
        self.devices.push(LiveStacks::of(snapshot, symbols, device, at, rules));
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
        self.build_tree(|device| device.name.clone()).format_lines()
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
            [one] => capitalised(&one.title(&format!("{} {}", one.name, one.at.name()))),
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
        bound::bound_tree(&self.build_tree(|device| device.title(&device.name)), rectangles)
    }

    fn build_tree(&self, name: impl Fn(&LiveStacks) -> String) -> Tree {
        let mut tree = Tree::default();
        for device in &self.devices {
            let root = match self.devices.len() {
                1 => Tree::ROOT,
                _ => tree.get_or_add_child(Tree::ROOT, &name(device), RectangleKind::Device),
            };
            for stack in &device.stacks {
                let mut node = root;
                for (frame, owner) in shown_functions(&stack.frames) {
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
                if let Some((frame, _)) = &stack.freed_at {
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

impl LiveStacks {
    /// Formats a title such as `name: 11.57 GiB in 1,447 blocks, 0.050 s after the first event`.
    fn title(&self, name: &str) -> String {
        let (bytes, blocks) =
            (self.error.as_bytes(self.bytes), self.blocks_error.as_counted(self.blocks, "block"));
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
        let mut stacks: Vec<LiveStack> = Vec::new();
        let (mut bytes, mut blocks) = (0u64, 0.0);
        let (mut bytes_sum, mut blocks_sum) = (Sum::default(), Sum::default());
        for lifetime in lifetimes.iter().filter(|lifetime| lifetime.is_live_after(row)) {
            let origin = origins.origin(lifetime);
            let place = *known.entry(origin).or_insert_with(|| {
                stacks.push(LiveStack::of(origin, snapshot, symbols, &mut owners));
                stacks.len() - 1
            });
            let stack = &mut stacks[place];
            stack.bytes = stack.bytes.saturating_add(lifetime.bytes);
            stack.blocks += lifetime.blocks;
            stack.blocks_sum.add(1.0, lifetime.blocks);
            stack.bytes_sum.add(lifetime.size_bytes as f64, lifetime.blocks);
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
        for stack in &mut stacks {
            stack.bytes = of_bytes.rounded(&stack.bytes_sum, stack.bytes);
            let bytes = of_bytes.part(precision.bytes(&stack.bytes_sum), &stack.bytes_sum);
            let blocks = of_blocks.part(precision.blocks(&stack.blocks_sum), &stack.blocks_sum);
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
            device: snapshot.ordinal(device),
            name: snapshot.device_name(device),
            kind: snapshot.device_kind(device),
            at,
            event: row.filter(|_| at != Moment::End).map(|row| Moment::events_before(snapshot, device, row)),
            seconds: if at == Moment::End { last() } else { row.and_then(|row| snapshot.seconds_at(row)) },
            has_events: !snapshot.events.is_empty(),
            since: snapshot.seconds_since(),
            bytes,
            error: bytes_error,
            complete,
            blocks: blocks.round() as u64,
            blocks_error,
            stacks,
        }
    }
}

impl LiveStack {
    /// Creates an entry for the blocks of `origin`, with all numbers set to 0.
    fn of(origin: Origin, snapshot: &Snapshot, symbols: &mut Symbolizer, owners: &mut Owners<'_>) -> Self {
        let (mut frames, mut freed_at) = (Vec::new(), None);
        match origin {
            Origin::Allocated(stack) => {
                let all = owners.functions(&snapshot.frame_keys(stack), symbols);
                let is_uninformative = all.iter().all(|(_, owner)| *owner == Owner::Noise);
                // A stack in which every frame only forwards a call is shown as it is.
                frames = all;
                frames.retain(|(_, owner)| is_uninformative || *owner != Owner::Noise);
            }
            Origin::Freed(stack) => {
                let owned = owners.owner(&snapshot.frame_keys(stack), symbols);
                let mine = owned.mine.map(|line| (line, Owner::Mine));
                freed_at = mine.or(owned.called.map(|line| (line, Owner::Framework)));
            }
            Origin::Older | Origin::NoStack => {}
        }
        Self {
            frames,
            older: matches!(origin, Origin::Freed(_) | Origin::Older),
            freed_at,
            bytes: 0,
            blocks: 0.0,
            bytes_sum: Sum::default(),
            bytes_error: Estimate::default(),
            blocks_sum: Sum::default(),
            blocks_error: Estimate::default(),
        }
    }
}

/// Returns the functions of a stack that a flame graph shows, outermost first. Below a line of a script, only the C++
/// function that the line called is shown, because PyTorch's internals would otherwise take up most of the image.
fn shown_functions(stack: &[(Frame, Owner)]) -> impl Iterator<Item = &(Frame, Owner)> {
    let mut below_framework = false;
    let mut below_script = false;
    stack.iter().rev().filter(move |(frame, owner)| {
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
