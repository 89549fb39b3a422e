//! Tracker statistics as the pickle that PyTorch's `MemoryTracker.save_stats` writes and its `load` reads. Reading goes
//! through [`memtrack_formats::document`], which executes nothing.

use super::{AllocatedPeak, Folded, Sample, StatsError, TrackerStats};
use memtrack_file::ReplacingFile;
use memtrack_formats::document::{self, Document, Value};
use memtrack_formats::pickle::Writer;
use memtrack_formats::{CountingReader, InputState, unpack};
use memtrack_model::text::decode_lossy;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Cursor, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// The key for the number of operators that ran before those in the file. Only memtrack writes it.
const FOLDED_KEY: &str = "memtrack_folded_operators";
/// The key for the earlier positions of markers that moved. Only memtrack writes it.
const EARLIER_MARKERS_KEY: &str = "memtrack_earlier_markers";
/// The key for the peak: its lower and upper bounds in MiB, its operator, and whether it was inside that operator. Only
/// memtrack writes it.
const PEAK_KEY: &str = "memtrack_peak";

impl TrackerStats {
    /// Reads a file written by PyTorch's `MemoryTracker.save_stats` or by [`TrackerStats::save_stats`], either
    /// uncompressed or compressed with gzip or Zstandard. If `op_index` is missing, as in files from older versions,
    /// the number of records in `memories_allocated` is used instead.
    ///
    /// # Errors
    /// Fails when the file cannot be read, is not a pickle of plain data, or contains other data.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, StatsError> {
        Self::load_from(File::open(path)?)
    }

    /// Reads the same files as [`TrackerStats::load`], but from any reader. The memory that the values take is limited in
    /// proportion to the bytes that `reader` returns.
    ///
    /// # Errors
    /// Fails when [`TrackerStats::load`] would.
    pub fn load_from(reader: impl Read) -> Result<Self, StatsError> {
        let document = read_pickle(reader)?;
        let root = document.root();
        if root.as_entries().is_none() {
            let found = root.type_name();
            return Err(StatsError::Shape(format!("the pickle holds {found}, not a tracker's statistics")));
        }
        let mut reader = StatsReader { root, operators: HashMap::new() };
        let mut stats = Self {
            memories_allocated: reader.read_series("memories_allocated")?,
            memories_active: reader.read_series("memories_active")?,
            memories_reserved: reader.read_series("memories_reserved")?,
            markers: reader.read_markers()?,
            earlier_markers: reader.read_earlier_markers()?,
            peak: reader.read_peak()?,
            num_alloc_retries: reader.read_count("num_alloc_retries")?,
            op_index: 0,
            folded: Folded::default(),
        };
        if root.get(FOLDED_KEY).is_some() {
            stats.folded.operators = reader.read_count(FOLDED_KEY)?;
        }
        stats.op_index = match root.get("op_index") {
            Some(_) => reader.read_count("op_index")?,
            None => stats.memories_allocated.len() as u64,
        };
        Ok(stats)
    }

    /// Saves the statistics so that PyTorch's `MemoryTracker.load` can read them. An existing file at `path` is
    /// replaced once the new one is complete. On Python 3.8 and later, PyTorch writes pickle protocol 5; memtrack
    /// writes protocol 4, which older versions can also read.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub fn save_stats(&self, path: impl AsRef<Path>) -> Result<(), StatsError> {
        let file = ReplacingFile::create_pickle(path.as_ref())?;
        self.save_to(file)?.commit()?;
        Ok(())
    }

    /// Writes the same pickle as [`TrackerStats::save_stats`], flushes `out`, and returns it.
    ///
    /// # Errors
    /// Fails when `out` cannot be written.
    pub fn save_to<W: Write>(&self, out: W) -> io::Result<W> {
        let mut writer = Writer::new(out)?;
        let keys = [
            ("memories_allocated", true),
            ("memories_active", true),
            ("memories_reserved", true),
            ("markers", true),
            ("num_alloc_retries", true),
            ("op_index", true),
            // PyTorch does not read these, so they are omitted when empty.
            (FOLDED_KEY, self.folded.operators > 0),
            (EARLIER_MARKERS_KEY, !self.earlier_markers.is_empty()),
            (PEAK_KEY, self.peak.is_some()),
        ];
        let keys: Vec<&str> = keys.into_iter().filter(|key| key.1).map(|key| key.0).collect();
        writer.write_dict(keys.iter().copied(), |writer, key| {
            writer.write_text(key)?;
            match key {
                "memories_allocated" => write_series(writer, &self.memories_allocated),
                "memories_active" => write_series(writer, &self.memories_active),
                "memories_reserved" => write_series(writer, &self.memories_reserved),
                "markers" => writer.write_default_dict(true, &self.markers, |writer, (name, index)| {
                    writer.write_text(name)?;
                    writer.write_int(saturate_to_i64(*index))
                }),
                "num_alloc_retries" => writer.write_int(saturate_to_i64(self.num_alloc_retries)),
                FOLDED_KEY => writer.write_int(saturate_to_i64(self.folded.operators)),
                EARLIER_MARKERS_KEY => writer.write_list(&self.earlier_markers, |writer, (name, index)| {
                    writer.write_tuple::<2>(|writer| {
                        writer.write_text(name)?;
                        writer.write_int(saturate_to_i64(*index))
                    })
                }),
                PEAK_KEY => write_peak(writer, self.peak.as_ref()),
                _ => writer.write_int(saturate_to_i64(self.op_index)),
            }
        })?;
        writer.finish()
    }
}

/// Writes a series as a `defaultdict` without a factory, which maps each index to its operator and MiB.
fn write_series<W: Write>(writer: &mut Writer<W>, series: &[Sample]) -> io::Result<()> {
    writer.write_default_dict(false, series.iter().enumerate(), |writer, (index, sample)| {
        writer.write_int(saturate_to_i64(index as u64))?;
        writer.write_tuple::<2>(|writer| {
            writer.write_text(&sample.operator)?;
            writer.write_float(sample.mib)
        })
    })
}

/// Writes the peak as a tuple of two amounts in MiB, the operator's index or None, and a bool.
fn write_peak<W: Write>(writer: &mut Writer<W>, peak: Option<&AllocatedPeak>) -> io::Result<()> {
    let Some(peak) = peak else { return writer.write_none() };
    writer.write_tuple::<4>(|writer| {
        writer.write_float(peak.least_mib)?;
        writer.write_float(peak.most_mib)?;
        match peak.op_index {
            Some(index) => writer.write_int(saturate_to_i64(index))?,
            None => writer.write_none()?,
        }
        writer.write_bool(peak.is_inside)
    })
}

/// Converts a count for the pickle writer. It saturates, but no real count comes near the limit.
fn saturate_to_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A converter from a pickle to statistics.
struct StatsReader<'a> {
    root: Value<'a>,
    /// Operator names by their bytes in the pickle. They are shared, because the three series refer to the same strings.
    operators: HashMap<&'a [u8], Arc<str>>,
}

fn wrong_type_error(place: &str, expected: &str, found: Value<'_>) -> StatsError {
    StatsError::Shape(format!("{place} holds {} instead of {expected}", found.type_name()))
}

fn as_count(value: Value<'_>) -> Option<u64> {
    value.as_i64().and_then(|number| u64::try_from(number).ok())
}

impl<'a> StatsReader<'a> {
    /// Returns the value under a key that must be present.
    fn required(&self, key: &str) -> Result<Value<'a>, StatsError> {
        self.root.get(key).ok_or_else(|| StatsError::Shape(format!("the key {key:?} is missing")))
    }

    /// Returns the entries of the dictionary under a key.
    fn entries(&self, key: &str) -> Result<Vec<(Value<'a>, Value<'a>)>, StatsError> {
        let value = self.required(key)?;
        value.as_entries().ok_or_else(|| wrong_type_error(key, "a dictionary", value))
    }

    /// Reads the count under a key.
    fn read_count(&self, key: &str) -> Result<u64, StatsError> {
        let value = self.required(key)?;
        as_count(value).ok_or_else(|| wrong_type_error(key, "a count", value))
    }

    /// Reads a series. Its records may be in any order, and a later record replaces an earlier one with the same index,
    /// but no index between 0 and the last may be missing.
    fn read_series(&mut self, key: &str) -> Result<Vec<Sample>, StatsError> {
        let entries = self.entries(key)?;
        let mut series: Vec<Option<Sample>> = Vec::with_capacity(entries.len());
        let count = entries.len();
        for (index, record) in entries {
            let place =
                || format!("{key}[{}]", index.as_i64().map_or("?".to_owned(), |index| index.to_string()));
            let row = as_count(index)
                .ok_or_else(|| wrong_type_error(&format!("a key of {key}"), "an index", index))?;
            // With `count` entries, a higher index means that there is a gap.
            let row = usize::try_from(row).ok().filter(|&row| row < count);
            let row = row.ok_or_else(|| {
                StatsError::Shape(format!("{key} has gaps: there are {count} records, but also {}", place()))
            })?;
            let Some(&[name, mib]) = record.as_tuple().as_deref() else {
                return Err(wrong_type_error(&place(), "a pair of operator and MiB", record));
            };
            let Some(bytes) = name.as_str_bytes() else {
                return Err(wrong_type_error(&place(), "the operator's name", name));
            };
            let Some(mib) = mib.as_f64() else {
                return Err(wrong_type_error(&place(), "a number of MiB", mib));
            };
            let operator = self.operators.entry(bytes).or_insert_with(|| decode_lossy(bytes).into()).clone();
            if series.len() <= row {
                series.resize(row + 1, None);
            }
            series[row] = Some(Sample { operator, mib });
        }
        let gap = |index| StatsError::Shape(format!("{key} has gaps: record {index} is missing"));
        series.into_iter().enumerate().map(|(index, sample)| sample.ok_or_else(|| gap(index))).collect()
    }

    /// Reads the earlier positions of markers, which PyTorch's files do not contain.
    fn read_earlier_markers(&self) -> Result<Vec<(Arc<str>, u64)>, StatsError> {
        let Some(value) = self.root.get(EARLIER_MARKERS_KEY) else { return Ok(Vec::new()) };
        let entries =
            value.as_list().ok_or_else(|| wrong_type_error(EARLIER_MARKERS_KEY, "a list", value))?;
        let mut names: HashMap<&[u8], Arc<str>> = HashMap::new();
        let mut earlier = Vec::with_capacity(entries.len());
        for entry in entries {
            let read = || {
                let &[name, index] = entry.as_tuple()?.as_slice() else { return None };
                Some((name.as_str_bytes()?, as_count(index)?))
            };
            let (name, index) = read().ok_or_else(|| {
                wrong_type_error(EARLIER_MARKERS_KEY, "pairs of a name and an index", entry)
            })?;
            let shared = names.entry(name).or_insert_with(|| decode_lossy(name).into());
            earlier.push((Arc::clone(shared), index));
        }
        Ok(earlier)
    }

    /// Reads the peak, which PyTorch's files do not contain.
    fn read_peak(&self) -> Result<Option<AllocatedPeak>, StatsError> {
        let Some(value) = self.root.get(PEAK_KEY) else { return Ok(None) };
        let read = || {
            let &[least, most, index, is_inside] = value.as_tuple()?.as_slice() else { return None };
            let index = if index.is_none() { None } else { Some(as_count(index)?) };
            Some(AllocatedPeak::new(least.as_f64()?, most.as_f64()?, index, is_inside.as_bool()?))
        };
        read().map(Some).ok_or_else(|| wrong_type_error(PEAK_KEY, "two numbers, an index and a bool", value))
    }

    /// Reads the markers. As in a Python dictionary, a repeated name keeps its first position but takes its last value.
    fn read_markers(&self) -> Result<Vec<(String, u64)>, StatsError> {
        let mut markers: Vec<(String, u64)> = Vec::new();
        let mut rows = HashMap::new();
        for (name, index) in self.entries("markers")? {
            let Some(name) = name.to_text() else {
                return Err(wrong_type_error("a key of markers", "a name", name));
            };
            let Some(index) = as_count(index) else {
                return Err(wrong_type_error(&format!("the marker {name:?}"), "an index", index));
            };
            match rows.get(&name) {
                Some(&row) => {
                    let marker: &mut (String, u64) = &mut markers[row];
                    marker.1 = index;
                }
                None => {
                    rows.insert(name.clone(), markers.len());
                    markers.push((name, index));
                }
            }
        }
        Ok(markers)
    }
}

/// Reads the pickle from a statistics file, compressed or not. If the file is of another kind, the error names that kind
/// and the commands that read it.
fn read_pickle(reader: impl Read) -> Result<Document, StatsError> {
    let stored = InputState::default();
    let (mut reader, _) = unpack(CountingReader { inner: reader, count: &stored })?;
    let mut head = Vec::with_capacity(8);
    reader.by_ref().take(8).read_to_end(&mut head)?;
    let other = match head[..] {
        [] => Some("the file is empty"),
        _ if head == b"MEMTRACK" => {
            Some("this is a recording, not a tracker's statistics; use `memtrack top`")
        }
        // Neither `{` nor `[` is a pickle opcode.
        [b'{' | b'[', ..] => Some(
            "this is JSON, not a tracker's statistics; if it is a memory snapshot, use `memtrack summary`",
        ),
        _ => None,
    };
    if let Some(other) = other {
        return Err(StatsError::Shape(other.into()));
    }
    let reader = Cursor::new(head).chain(reader);
    let document = document::load(reader, &stored)?;
    if ["segments", "device_traces"].iter().any(|key| document.root().get(key).is_some()) {
        let snapshot =
            "this is a memory snapshot, not a tracker's statistics; use `memtrack summary`, `peak` or `top`";
        return Err(StatsError::Shape(snapshot.into()));
    }
    Ok(document)
}

#[cfg(test)]
mod tests;
