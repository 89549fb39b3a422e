//! The report on what holds a device's memory, as JSON.

use super::{Cached, Growth, HeldAt, Holder, Refused, Untracked, WhoHolds};
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, FrameAnswer};
use serde::Serialize;

/// A report on what holds a device's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct WhoHoldsAnswer {
    /// The device whose memory is reported.
    pub device: DeviceAnswer,
    /// The moment that the report describes.
    pub at: HeldAt,
    /// The failed memory request, or null if the report does not describe one.
    pub refused: Option<Refused>,
    /// The requested bytes that the device's blocks hold at this moment.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes, or null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The number of blocks that are held at this moment.
    pub count: u64,
    /// The margin of error of the block count, or null if the count is exact.
    pub count_error: Option<ErrorAnswer>,
    /// The lines that hold the most memory, at most three, largest first.
    pub holders: Vec<HolderAnswer>,
    /// Reserved memory outside of blocks, or null if there is none or it is unknown.
    pub cached: Option<Cached>,
    /// Memory that is in use but not tracked by memtrack, or null if it is unknown.
    pub unseen: Option<Untracked>,
    /// The growth of the held memory, or null if it is unknown.
    pub grown: Option<GrownAnswer>,
    /// A sentence that says what to do first.
    pub advice: String,
    /// Other devices that hold memory, at most three, largest first.
    pub others: Vec<OtherAnswer>,
}

/// A line that holds part of the memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct HolderAnswer {
    /// The line in the user's code and the function that it called, as text; if there is no such line, an operator's
    /// name or another description of the blocks.
    pub line: String,
    /// The line in the user's code; null if there is none.
    pub frame: Option<FrameAnswer>,
    /// The requested bytes in the holder's blocks.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The number of the holder's blocks.
    pub count: u64,
    /// The holder's share of the held memory, from 0 to 1.
    pub share: f64,
    /// The module in which more than half of the holder's bytes were allocated; null if there is none.
    pub module: Option<String>,
    /// The phase in which more than half of the holder's bytes were allocated; null if there is none.
    pub phase: Option<String>,
}

/// Memory that was allocated since a given moment and is still held.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GrownAnswer {
    /// A description of the moment since which growth is counted.
    pub since: String,
    /// The time in seconds from that moment to the one that the report describes.
    pub seconds: f64,
    /// The requested bytes that were allocated since the moment that `since` describes and are still held.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The number of blocks that were allocated since the moment that `since` describes and are still held.
    pub count: u64,
    /// The line that contributed most to the growth, as text; null if nothing grew.
    pub most_line: Option<String>,
    /// The bytes that the line in `most_line` contributed to the growth; null if nothing grew.
    pub most_bytes: Option<u64>,
}

/// Another device, with the memory that it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct OtherAnswer {
    /// The device's name.
    pub name: String,
    /// The requested bytes that are held on the device.
    pub requested_bytes: u64,
}

impl WhoHolds {
    /// Returns the report for JSON.
    pub fn answer(&self) -> WhoHoldsAnswer {
        let other =
            |(name, bytes): &(String, u64)| OtherAnswer { name: name.clone(), requested_bytes: *bytes };
        WhoHoldsAnswer {
            device: self.device.clone(),
            at: self.at,
            refused: self.refused,
            requested_bytes: self.allocated_bytes,
            requested_bytes_error: self.error.answer(),
            count: self.count,
            count_error: self.count_error.answer(),
            holders: self.holders.iter().map(Holder::answer).collect(),
            cached: self.cached,
            unseen: self.unseen,
            grown: self.grown.as_ref().map(Growth::answer),
            advice: self.advice.clone(),
            others: self.others.iter().map(other).collect(),
        }
    }
}

impl Holder {
    fn answer(&self) -> HolderAnswer {
        HolderAnswer {
            line: self.line.clone(),
            frame: self.frame.as_ref().map(FrameAnswer::from),
            requested_bytes: self.allocated_bytes,
            requested_bytes_error: self.error.answer(),
            count: self.count,
            share: self.share,
            module: self.module.clone(),
            phase: self.phase.clone(),
        }
    }
}

impl Growth {
    fn answer(&self) -> GrownAnswer {
        let (most_line, most_bytes) = self.most.clone().unzip();
        GrownAnswer {
            since: self.since.clone(),
            seconds: self.seconds,
            requested_bytes: self.allocated_bytes,
            requested_bytes_error: self.error.answer(),
            count: self.count,
            most_line,
            most_bytes,
        }
    }
}
