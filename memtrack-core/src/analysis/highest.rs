//! Everything that was live at the highest point of a device, grouped by stack, biggest first. `memtrack peak` prints
//! it. The ranking is [`top`](super::top)'s; here is when it was, and the stacks in full.

use super::layout::Layout;
use super::moment::Moment;
use super::reserved::{ReservedPeak, reserved_after};
use super::top::frames::frame_lines;
use super::top::{By, TopOptions, TopReport, top_with};
use super::units::{counted, human_bytes, human_share, printable};
use crate::event::DeviceId;
use crate::snapshot::Snapshot;
use crate::stack::symbols::Symbolizer;
use serde_json::{Value, json};
use std::fmt;

/// Before the frames of a group.
const INDENT: &str = "     ";

/// Of what the highest point is sought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HighestOf {
    /// Requested bytes that were live: what the sizes of a trace add up to.
    #[default]
    Requested,
    /// Bytes of segments.
    Reserved,
}

impl HighestOf {
    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Reserved => "reserved",
        }
    }
}

/// The highest point of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Highest {
    /// Of what.
    pub of: HighestOf,
    /// The event that reached it, by its number in the device's trace; none: it was before the first.
    pub event: Option<usize>,
    /// Seconds from the first event of the snapshot.
    pub seconds: Option<f64>,
    /// Requested bytes that were live then.
    pub requested_bytes: u64,
    /// Whether sampled blocks were among them, so that the number is an estimate.
    pub estimated: bool,
    /// Reserved bytes then; 0 where the snapshot has no segments.
    pub reserved_bytes: u64,
    /// What was live then, by stack.
    pub live: TopReport,
}

impl Highest {
    /// The highest point of `device`, with at most `limit` groups.
    pub fn find(
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        device: DeviceId,
        of: HighestOf,
        limit: usize,
    ) -> Self {
        let at = match of {
            HighestOf::Requested => Moment::Peak,
            HighestOf::Reserved => Moment::Reserved(ReservedPeak::of(snapshot, device).row),
        };
        let options = TopOptions { limit, at: Some(at), ..TopOptions::default() };
        let live = top_with(snapshot, symbols, By::Stack, device, &options);
        let row = if of == HighestOf::Requested { live.peak.row } else { at.row() };
        let before = |row| Moment::events_before(snapshot, device, row);
        Self {
            of,
            event: row.map(before),
            seconds: row.map(|row| snapshot.clock.seconds_since_start(snapshot.events.ticks[row])),
            requested_bytes: live.totals.allocated_bytes,
            estimated: live.totals.estimated,
            reserved_bytes: reserved_after(snapshot, device, row),
            live,
        }
    }

    /// Whether nothing was ever live or reserved.
    pub fn is_empty(&self) -> bool {
        self.event.is_none() && self.requested_bytes == 0 && self.reserved_bytes == 0
    }

    /// The report as JSON: bytes as integers, times in seconds.
    pub fn to_json(&self) -> Value {
        let mut value = self.live.to_json();
        value["highest"] = json!({
            "of": self.of.name(),
            "event": self.event,
            "seconds": self.seconds,
            "requested_bytes": self.requested_bytes,
            "estimated": self.estimated,
            // A heap reserves nothing.
            "reserved_bytes": (!self.live.is_host).then_some(self.reserved_bytes),
        });
        value
    }
}

impl fmt::Display for Highest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, Layout::default())
    }
}

impl Highest {
    /// The report as text.
    pub fn to_text(&self, layout: impl Into<Layout>) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, layout.into());
        text
    }

    fn write(&self, f: &mut dyn fmt::Write, layout: Layout) -> fmt::Result {
        let room = layout.width.map_or(usize::MAX, |width| width.saturating_sub(INDENT.len()));
        let live = &self.live;
        let name = &live.device_name;
        let (of, requested) = (self.of.name(), live.totals.bytes_error.as_bytes(self.requested_bytes));
        write!(f, "Highest {of} of {name}: {requested} requested")?;
        if self.reserved_bytes > 0 && !live.is_host {
            write!(f, ", {} reserved", human_bytes(self.reserved_bytes))?;
        }
        match (self.event, self.seconds) {
            (Some(event), Some(seconds)) => {
                writeln!(f, ", after event {event}, {seconds:.3} s after the first")?;
            }
            _ => writeln!(f, ", before the first event")?,
        }
        for (place, row) in live.rows.iter().enumerate() {
            let bytes = row.errors.allocated_bytes.as_bytes(row.allocated_bytes);
            let blocks = row.errors.count.as_counted(row.count, "block");
            writeln!(f, "\n{:>3}. {bytes}  {}  {blocks}", place + 1, human_share(row.share))?;
            if row.stack.is_empty() {
                writeln!(f, "{INDENT}{}", printable(&row.name))?;
            }
            for line in frame_lines(&row.stack, layout.frames, room) {
                writeln!(f, "{INDENT}{line}")?;
            }
        }
        let shown = live.rows.iter().map(|row| row.allocated_bytes).sum::<u64>();
        let more = live.rows_in_all - live.rows.len();
        if more > 0 {
            let rest = match self.estimated {
                true => String::new(),
                false => format!(", {}", human_bytes(self.requested_bytes.saturating_sub(shown))),
            };
            writeln!(f, "\n… and {}{rest}", counted(more as u64, "more group"))?;
        }
        Ok(())
    }
}
