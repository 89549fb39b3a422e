//! The data behind a flame graph as JSON: every stack with its bytes, largest first.

use super::{LiveFlame, LiveStack, LiveStacks};
use memtrack_frames::ownership::Owner;
use memtrack_model::Frame;
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, FrameAnswer};
use serde::Serialize;
use std::cmp::Reverse;

/// The memory that was live at a given moment, by device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FlameMoment {
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
    pub at: String,
    /// The moment at which the memory was live, in seconds since [`Self::seconds_since`]; null if it was before the
    /// first event or the file does not record times.
    pub seconds: Option<f64>,
    /// The origin from which the seconds are counted: `start` or `first_event`.
    pub seconds_since: &'static str,
    /// The requested bytes that were live.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The number of blocks that were live.
    pub count: u64,
    /// The margin of error of the number of blocks; null if it is exact.
    pub count_error: Option<ErrorAnswer>,
    /// Whether the recording is complete. If not, the true peak and the memory that was live at the end are at least as
    /// large as these numbers.
    pub complete: bool,
    /// The stacks that allocated the live blocks, those with the most bytes first.
    pub stacks: Vec<FlameStack>,
}

/// The live blocks with one stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FlameStack {
    /// The functions in the stack, innermost first, without those that only forward a call; empty if no stack is known.
    pub stack: Vec<FlameFrame>,
    /// Whether the blocks were allocated before the trace started, so that their origin is unknown.
    pub before_the_trace: bool,
    /// The line that freed the blocks, if they were allocated before the trace; null otherwise or if the line is
    /// unknown.
    pub freed_at: Option<FlameFrame>,
    /// The requested bytes in the live blocks with this stack.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The number of live blocks with this stack.
    pub count: u64,
    /// The margin of error of the number of blocks; null if it is exact.
    pub count_error: Option<ErrorAnswer>,
}

/// A function in a stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FlameFrame {
    /// The function.
    #[serde(flatten)]
    pub frame: FrameAnswer,
    /// Whether the function is in the user's code.
    pub mine: bool,
}

impl LiveFlame {
    /// Returns all data behind the flame graph.
    pub fn rows(&self) -> FlameMoment {
        FlameMoment { devices: self.devices.iter().map(device_to_flame).collect() }
    }
}

fn device_to_flame(device: &LiveStacks) -> FlameDevice {
    let mut stacks: Vec<FlameStack> = device.stacks.iter().map(stack_to_flame).collect();
    // Stacks with equal bytes keep the order in which they first appeared.
    stacks.sort_by_key(|stack| Reverse(stack.requested_bytes));
    FlameDevice {
        device: DeviceAnswer::new(device.device, &device.name, device.kind),
        at: device.at.name(),
        seconds: device.seconds,
        seconds_since: device.since.name(),
        requested_bytes: device.bytes,
        requested_bytes_error: device.error.answer(),
        count: device.blocks,
        count_error: device.blocks_error.answer(),
        complete: device.complete,
        stacks,
    }
}

fn stack_to_flame(stack: &LiveStack) -> FlameStack {
    let frame = |(frame, owner): &(Frame, Owner)| {
        let mut answer = FrameAnswer::from(frame);
        // PyTorch writes `??` for an unknown file and 0 for an unknown line.
        answer.file = answer.file.filter(|file| file != "??");
        answer.line = answer.line.filter(|&line| line > 0);
        FlameFrame { frame: answer, mine: *owner == Owner::Mine }
    };
    FlameStack {
        stack: stack.frames.iter().map(frame).collect(),
        before_the_trace: stack.older,
        freed_at: stack.freed_at.as_ref().map(frame),
        requested_bytes: stack.bytes,
        requested_bytes_error: stack.bytes_error.answer(),
        count: stack.blocks.round() as u64,
        count_error: stack.blocks_error.answer(),
    }
}
