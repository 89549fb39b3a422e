//! PyTorch's two timeline exports, identical to the JSON that `MemoryProfileTimeline` writes.

use crate::analysis::{Action, Change, Profile};
use crate::category::Category;
use memtrack_model::optrace::DeviceIndex;
use std::io::{self, Write};

/// The number of columns in a row: one that is always 0, and one for each of PyTorch's categories.
pub const COLUMNS: usize = 1 + Category::COMPATIBLE;

/// Bytes by category over time, with times in µs. This is the data behind PyTorch's chart.
///
/// Changes within the same microsecond are merged into one row, so short peaks may be missing. Use
/// [`crate::series::walk`] to visit every change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoalescedTimeline {
    /// The times in µs. The first two are equal if any memory existed before the trace.
    pub times_us: Vec<i64>,
    /// For each time, a 0 followed by the bytes of each category, in the order of [`Category::index`].
    pub rows: Vec<[i64; COLUMNS]>,
}

impl CoalescedTimeline {
    /// Computes the timeline of a single device.
    pub fn of(profile: &Profile<'_>, device: DeviceIndex) -> Self {
        let mut coalesced = Self::default();
        let mut first = -1;
        for change in profile.changes_on(device) {
            let time = if change.time_ns == -1 { -1 } else { to_microseconds(change.time_ns) };
            if first == -1 || (time < first && time > 0) {
                first = time;
            }
            if coalesced.times_us.last() != Some(&time) {
                let row = coalesced.rows.last().copied().unwrap_or_default();
                coalesced.times_us.push(time);
                coalesced.rows.push(row);
            }
            let Some(row) = coalesced.rows.last_mut() else { continue };
            for (category, bytes) in category_deltas(profile, change) {
                let slot = &mut row[1 + category.index()];
                *slot = slot.saturating_add(bytes);
            }
        }
        for time in &mut coalesced.times_us {
            if *time < 0 {
                *time = first;
            }
        }
        coalesced
    }

    /// Writes the timeline as a JSON array that holds the times and the rows. The output uses PyTorch's
    /// separators and has no trailing newline.
    ///
    /// # Errors
    /// Fails if writing to `out` fails.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        out.write_all(b"[")?;
        write_list(&mut out, &self.times_us, |out, time| write!(out, "{time}"))?;
        out.write_all(b", ")?;
        write_list(&mut out, &self.rows, |out, row| {
            write_list(out, row, |out, bytes| write!(out, "{bytes}"))
        })?;
        out.write_all(b"]")?;
        out.flush()
    }
}

/// Writes every change on a device as JSON. The array has one `[time in ns, action, bytes, category]` entry
/// per change in a category's bytes.
///
/// # Errors
/// Fails if writing to `out` fails.
pub fn write_raw(profile: &Profile<'_>, device: DeviceIndex, mut out: impl Write) -> io::Result<()> {
    let changes = profile.changes_on(device);
    let records = changes.flat_map(|change| {
        category_deltas(profile, change)
            .map(move |(category, bytes)| (change.time_ns, change.action as u8, bytes, category.index()))
    });
    write_list(&mut out, records, |out, (time, action, bytes, category)| {
        write!(out, "[{time}, {action}, {bytes}, {category}]")
    })?;
    out.flush()
}

/// Returns the bytes that a change adds to each category. Amounts that it subtracts are negative.
pub(crate) fn category_deltas(
    profile: &Profile<'_>,
    change: &Change,
) -> impl Iterator<Item = (Category, i64)> + use<> {
    let bytes = i64::try_from(change.bytes).unwrap_or(i64::MAX);
    let before = profile.category_at(change, change.version);
    let deltas = match change.action {
        Action::Preexisting | Action::Create => [Some((before, bytes)), None],
        Action::Destroy => [Some((before, -bytes)), None],
        Action::IncrementVersion => {
            [Some((before, -bytes)), Some((profile.category_at(change, change.version + 1), bytes))]
        }
    };
    deltas.into_iter().flatten()
}

/// Converts nanoseconds to µs the way PyTorch does, by rounding the quotient to a double and then truncating
/// it. At present-day Unix times, doubles are a quarter of a µs apart, so 875 ns and above round up to the
/// next µs.
fn to_microseconds(time_ns: i64) -> i64 {
    let (whole, rest) = (time_ns / 1000, time_ns % 1000);
    (whole as f64 + rest as f64 / 1000.0) as i64
}

fn write_list<T, W: Write>(
    out: &mut W,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut W, T) -> io::Result<()>,
) -> io::Result<()> {
    out.write_all(b"[")?;
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            out.write_all(b", ")?;
        }
        write(out, item)?;
    }
    out.write_all(b"]")
}
