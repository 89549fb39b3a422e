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
    /// Allocated bytes, as they were asked for.
    #[default]
    Allocated,
    /// Bytes of segments.
    Reserved,
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
    /// Allocated bytes then.
    pub allocated_bytes: u64,
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
            HighestOf::Allocated => Moment::Peak,
            HighestOf::Reserved => Moment::Reserved(ReservedPeak::of(snapshot, device).row),
        };
        let options = TopOptions { limit, at: Some(at), ..TopOptions::default() };
        let live = top_with(snapshot, symbols, By::Stack, device, &options);
        let row = if of == HighestOf::Allocated { live.peak.row } else { at.row() };
        let before = |row| snapshot.events.rows_of(device).take_while(|&other| other < row).count();
        Self {
            of,
            event: row.map(before),
            seconds: row.map(|row| snapshot.clock.seconds_since_start(snapshot.events.ticks[row])),
            allocated_bytes: live.totals.allocated_bytes,
            reserved_bytes: reserved_after(snapshot, device, row),
            live,
        }
    }

    /// The report as JSON: bytes as integers, times in seconds.
    pub fn to_json(&self) -> Value {
        let mut value = self.live.to_json();
        value["highest"] = json!({
            "of": if self.of == HighestOf::Allocated { "allocated" } else { "reserved" },
            "event": self.event,
            "seconds": self.seconds,
            "allocated_bytes": self.allocated_bytes,
            "reserved_bytes": self.reserved_bytes,
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
        let of = if self.of == HighestOf::Allocated { "allocated" } else { "reserved" };
        write!(f, "Highest {of} of {name}: {} allocated", human_bytes(self.allocated_bytes))?;
        if self.reserved_bytes > 0 {
            write!(f, ", {} reserved", human_bytes(self.reserved_bytes))?;
        }
        match (self.event, self.seconds) {
            (Some(event), Some(seconds)) => {
                writeln!(f, ", after event {event}, {seconds:.3} s after the first")?;
            }
            _ => writeln!(f, ", before the first event")?,
        }
        for (place, row) in live.rows.iter().enumerate() {
            let mark = if row.estimated { "~" } else { "" };
            let (bytes, blocks) = (human_bytes(row.allocated_bytes), counted(row.count, "block"));
            let share = human_share(row.share);
            writeln!(f, "\n{:>3}. {mark}{bytes}  {share}  {mark}{blocks}", place + 1)?;
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
            let rest = human_bytes(self.allocated_bytes.saturating_sub(shown));
            writeln!(f, "\n… and {}, {rest}", counted(more as u64, "more group"))?;
        }
        Ok(())
    }
}
