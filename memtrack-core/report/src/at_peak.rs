//! The memory that was live at a device's peak, grouped by stack, largest first, as printed by `memtrack peak`. The
//! ranking comes from [`top`](crate::top); this module adds the time of the peak and the complete stacks.

use crate::layout::{Layout, MIN_NAME_CHARS};
use crate::top::frames::format_frames;
use crate::top::groups::NO_CATEGORY;
use crate::top::{By, RowText, TopOptions, TopReport, TopRow, top_with};
use memtrack_blocks::estimate::Estimate;
use memtrack_blocks::moment::Moment;
use memtrack_blocks::reserved::{ReservedPeak, has_reserved_bytes, reserved_after};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::{Since, Snapshot};
use memtrack_model::units::{counted, human_bytes, printable, shorten_middle};
use memtrack_symbols::Symbolizer;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::fmt;

/// The indentation for a group's frames.
const INDENT: &str = "     ";

/// The quantity whose peak a report describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeakKind {
    /// Live requested bytes: the sum of the sizes in the trace.
    #[default]
    Requested,
    /// Reserved bytes: the sum of all segments.
    Reserved,
}

impl PeakKind {
    /// Returns the name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Reserved => "reserved",
        }
    }
}

memtrack_model::serialize_as!(PeakKind => &'static str: |kind| kind.name());

/// The memory that was live at a device's peak, as `memtrack peak --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AtPeak {
    /// The memory that was live at the peak, by stack or, in a [`summary`](crate::summary), by line in the user's code.
    #[serde(flatten)]
    pub live: TopReport,
    /// The size and time of the peak.
    pub highest: Highest,
    /// The memory that was live at the peak, by category; null if the file has no categories.
    #[serde(rename = "categories", serialize_with = "serialize_rows")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<TopRow>>"))]
    pub by_category: Option<TopReport>,
}

/// A device's highest amount of memory, and when it was reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Highest {
    /// The quantity whose peak this is: `requested` or `reserved`.
    #[serde(rename = "of")]
    pub kind: PeakKind,
    /// The event that reached the peak, as its index in the device's trace; null if the peak was before the first
    /// event.
    pub event: Option<usize>,
    /// The time of the peak in seconds; null if the peak was before the first event or the file does not record times.
    pub seconds: Option<f64>,
    /// The origin from which the seconds are counted: `start` of the recording, `first_event`, or `first_timed_event`.
    #[serde(rename = "seconds_since")]
    pub since: Since,
    /// Requested bytes that were live at the peak. If small blocks were sampled, this is the recorder's own count, and
    /// the peak is at least this high.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes, or null if they are exact. The true peak lies within its interval.
    #[serde(rename = "requested_bytes_error")]
    pub error: Estimate,
    /// Whether the peak may have been higher than reported because small blocks were sampled.
    pub estimated: bool,
    /// Reserved bytes at the peak, 0 if the snapshot has no segments; null for a heap, which reserves nothing.
    pub reserved_bytes: Option<u64>,
}

impl Highest {
    /// Formats the moment of the peak: the event that reached it and, if the file records times, the time in seconds.
    pub(crate) fn format_when(&self) -> String {
        let Some(event) = self.event else { return "before the first event".to_owned() };
        let counted = if self.error.counted { "counted " } else { "" };
        let time = self.seconds.map(|seconds| format!(", {}", self.since.moment(seconds)));
        format!("{counted}after event {event}{}", time.unwrap_or_default())
    }
}

/// Serializes only the rows of a ranking.
pub(crate) fn serialize_rows<S: Serializer>(report: &Option<TopReport>, to: S) -> Result<S::Ok, S::Error> {
    report.as_ref().map(|report| &report.rows).serialize(to)
}

impl AtPeak {
    /// Finds the peak of `device` and returns its largest groups, at most `limit` of them.
    pub fn find(
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        device: DeviceId,
        kind: PeakKind,
        limit: usize,
    ) -> Self {
        Self::find_with(snapshot, symbols, device, kind, &TopOptions::new().limit(limit))
    }

    /// Finds the peak of `device` using `options`. [`TopOptions::at`] is ignored, because the moment is that of the
    /// peak.
    pub fn find_with(
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        device: DeviceId,
        kind: PeakKind,
        options: &TopOptions,
    ) -> Self {
        Self::find_grouped(snapshot, symbols, device, kind, By::Stack, options)
    }

    /// Finds the peak of `device` and groups the memory that was live at the peak by `by`.
    pub(super) fn find_grouped(
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        device: DeviceId,
        kind: PeakKind,
        by: By,
        options: &TopOptions,
    ) -> Self {
        let at = match kind {
            PeakKind::Requested => Moment::Peak,
            PeakKind::Reserved => Moment::Reserved(ReservedPeak::of(snapshot, device).row),
        };
        let options = options.clone().at(at);
        let live = top_with(snapshot, symbols, by, device, &options);
        let by_category = has_categories(snapshot, device).then(|| {
            let options = TopOptions::new().limit(usize::MAX).at(at);
            top_with(snapshot, symbols, By::Category, device, &options)
        });
        let row = if kind == PeakKind::Requested { live.peak.row } else { at.row() };
        let (is_peak, totals) = (kind == PeakKind::Requested, live.totals);
        let event = |row| Moment::last_event_of(snapshot, device, row);
        let reserved =
            || if has_reserved_bytes(snapshot, device) { reserved_after(snapshot, device, row) } else { 0 };
        let highest = Highest {
            kind,
            event: row.map(event),
            seconds: if is_peak { live.peak.seconds } else { row.and_then(|row| snapshot.seconds_at(row)) },
            since: snapshot.seconds_since(),
            requested_bytes: if is_peak { live.peak.bytes } else { totals.allocated_bytes },
            error: if is_peak { live.peak.error } else { totals.bytes_error },
            estimated: if is_peak { live.peak.estimated } else { totals.estimated },
            reserved_bytes: live.device.kind.has_segments().then(reserved),
        };
        Self { live, highest, by_category }
    }

    /// Formats the categories of the memory that was live at the peak, as in `parameter 110.9 KiB (3.4 %), …`. The
    /// largest category comes first and blocks without a category come last. Returns `None` if no categories are known.
    pub fn categories_text(&self) -> Option<String> {
        let report = self.by_category.as_ref().filter(|report| !report.rows.is_empty())?;
        let part = |row: &TopRow| {
            let error = &row.allocated_error;
            let (bytes, share) = (error.as_bytes(row.allocated_bytes), error.as_share(row.share));
            format!("{} {bytes} ({share})", printable(&row.name))
        };
        let (unknown, known): (Vec<_>, Vec<_>) = report.rows.iter().partition(|row| row.name == NO_CATEGORY);
        Some(known.into_iter().chain(unknown).map(part).collect::<Vec<_>>().join(", "))
    }

    /// Returns whether nothing was ever live or reserved.
    pub fn is_empty(&self) -> bool {
        let highest = &self.highest;
        highest.event.is_none()
            && highest.requested_bytes == 0
            && highest.reserved_bytes.unwrap_or_default() == 0
    }

    /// Returns the report as JSON, as `memtrack peak --json` prints it.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Returns whether the snapshot has categories for at least some of the device's memory.
fn has_categories(snapshot: &Snapshot, device: DeviceId) -> bool {
    let mut rows = snapshot.events.rows_of(device);
    match (snapshot.categories.get(), snapshot.pytorch.as_deref()) {
        (Some(categories), _) => rows.any(|row| categories.of_event(row).is_some()),
        (None, Some(pytorch)) => rows.any(|row| pytorch.events.has(row, Key::Category)),
        (None, None) => false,
    }
}

impl fmt::Display for AtPeak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, Layout::default())
    }
}

impl AtPeak {
    /// Formats the report as text.
    pub fn to_text(&self, layout: impl Into<Layout>) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, layout.into());
        text
    }

    fn write(&self, f: &mut dyn fmt::Write, layout: Layout) -> fmt::Result {
        let room = layout.width.map_or(usize::MAX, |width| width.saturating_sub(INDENT.len()));
        let live = &self.live;
        let name = &live.device.name;
        let highest = &self.highest;
        let (of, requested) = (highest.kind.name(), highest.error.as_bytes(highest.requested_bytes));
        write!(f, "Highest {of} of {name}: {requested} requested")?;
        if let Some(reserved) = highest.reserved_bytes.filter(|&bytes| bytes > 0) {
            let at_least =
                if live.complete || highest.kind == PeakKind::Requested { "" } else { "at least " };
            write!(f, ", {at_least}{} reserved", human_bytes(reserved))?;
        }
        writeln!(f, ", {}", highest.format_when())?;
        if let Some(categories) = self.categories_text() {
            writeln!(f, "Made of {categories}")?;
        }
        for (place, row) in live.rows.iter().enumerate() {
            let error = &row.allocated_error;
            let (bytes, share) = (error.as_bytes(row.allocated_bytes), error.as_share(row.share));
            let blocks = row.count_error.as_counted(row.count, "block");
            writeln!(f, "\n{:>3}. {bytes}  {share}  {blocks}", place + 1)?;
            if row.stack.is_empty() {
                writeln!(f, "{INDENT}{}", printable(&row.name))?;
            }
            if row.owned.mine.is_some() {
                writeln!(f, "{INDENT}{}", shorten_middle(&printable(&row.owned.to_string()), room))?;
            }
            for line in format_texts(row, room) {
                writeln!(f, "{INDENT}{line}")?;
            }
            for line in format_frames(&row.stack, layout.frames, room) {
                writeln!(f, "{INDENT}{line}")?;
            }
        }
        let shown = live.rows.iter().map(|row| row.allocated_bytes).sum::<u64>();
        let more = live.rows_in_all - live.rows.len();
        if more > 0 {
            let rest = match highest.estimated {
                true => String::new(),
                false => format!(", {}", human_bytes(highest.requested_bytes.saturating_sub(shown))),
            };
            writeln!(f, "\n… and {}{rest}", counted(more as u64, "more group"))?;
        }
        if !live.complete {
            writeln!(f, "\n{}", crate::top::NOT_ENDED_NOTE)?;
        }
        Ok(())
    }
}

/// The maximum number of `user_metadata` texts to show per group.
const MAX_TEXTS: usize = 3;

/// Formats the `user_metadata` of a group's blocks; if the blocks have different texts, each text is shown with its
/// bytes.
fn format_texts(row: &TopRow, room: usize) -> Vec<String> {
    const TITLE: &str = "user_metadata: ";
    let shown = |text: &str, left: usize| shorten_middle(&printable(text), left.max(MIN_NAME_CHARS));
    let left = room.saturating_sub(TITLE.len());
    match &row.texts[..] {
        [one] if one.bytes == row.allocated_bytes => vec![format!("{TITLE}{}", shown(&one.text, left))],
        texts => {
            let line = |(place, one): (usize, &RowText)| {
                let (bytes, blocks) = (human_bytes(one.bytes), counted(one.blocks, "block"));
                let title = if place == 0 { TITLE.to_owned() } else { " ".repeat(TITLE.len()) };
                let numbers = format!("  {bytes} in {blocks}");
                let text = shown(&one.text, left.saturating_sub(numbers.len()));
                format!("{title}{text}{numbers}")
            };
            let mut lines: Vec<String> = texts.iter().take(MAX_TEXTS).enumerate().map(line).collect();
            let more = row.texts_in_all.saturating_sub(MAX_TEXTS);
            if more > 0 {
                lines.push(format!("{}… and {}", " ".repeat(TITLE.len()), counted(more as u64, "more text")));
            }
            lines
        }
    }
}
