//! Tracker statistics as the pickle that PyTorch's `MemoryTracker.save_stats` writes and its `load` reads. Both
//! directions go through [`memtrack_formats::pickle`], which executes nothing.

use super::stats_input;
use super::{AllocatedPeak, Folded, Sample, StatsError, TrackerStats};
use memtrack_file::ReplacingFile;
use memtrack_formats::Compression;
use memtrack_formats::pickle::{DictId, Document, Limits, Span, Value, Writer};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
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
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Self::read(file, |compression| match compression {
            Compression::None => Limits::for_input(bytes),
            _ => Limits::for_input(bytes.saturating_mul(stats_input::MAX_COMPRESSION_RATIO)),
        })
    }

    /// Reads the same files as [`TrackerStats::load`], but from any reader. The values read are limited to 256 MiB of
    /// memory, because the length is not known in advance.
    ///
    /// # Errors
    /// Fails when [`TrackerStats::load`] would.
    pub fn load_from(reader: impl Read) -> Result<Self, StatsError> {
        Self::read(reader, |_| Limits::default())
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

    fn read(reader: impl Read, limits: impl FnOnce(Compression) -> Limits) -> Result<Self, StatsError> {
        let document = stats_input::read_pickle(reader, limits)?;
        let Value::Dict(root) = document.root else {
            let found = document.type_name(document.root);
            return Err(StatsError::Shape(format!("the pickle holds {found}, not a tracker's statistics")));
        };
        let mut reader = StatsReader { document: &document, root, operators: HashMap::new() };
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
        if document.get(root, FOLDED_KEY).is_some() {
            stats.folded.operators = reader.read_count(FOLDED_KEY)?;
        }
        stats.op_index = match document.get(root, "op_index") {
            Some(_) => reader.read_count("op_index")?,
            None => stats.memories_allocated.len() as u64,
        };
        Ok(stats)
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
    document: &'a Document,
    root: DictId,
    /// Operator names by their position in the pickle. They are shared, because the three series refer to the same
    /// strings.
    operators: HashMap<Span, Arc<str>>,
}

impl StatsReader<'_> {
    /// Returns the value under a key that must be present.
    fn required(&self, key: &str) -> Result<Value, StatsError> {
        let value = self.document.get(self.root, key);
        value.ok_or_else(|| StatsError::Shape(format!("the key {key:?} is missing")))
    }

    /// Creates the error for a value of the wrong type.
    fn wrong_type_error(&self, place: &str, expected: &str, found: Value) -> StatsError {
        let found = self.document.type_name(found);
        StatsError::Shape(format!("{place} holds {found} instead of {expected}"))
    }

    /// Returns the entries of the dictionary under a key.
    fn entries(&self, key: &str) -> Result<&[(Value, Value)], StatsError> {
        match self.required(key)? {
            Value::Dict(id) => Ok(&self.document.dict(id).entries),
            other => Err(self.wrong_type_error(key, "a dictionary", other)),
        }
    }

    /// Reads the count under a key.
    fn read_count(&self, key: &str) -> Result<u64, StatsError> {
        let value = self.required(key)?;
        self.as_count(value).ok_or_else(|| self.wrong_type_error(key, "a count", value))
    }

    fn as_count(&self, value: Value) -> Option<u64> {
        self.document.as_i64(value).and_then(|number| u64::try_from(number).ok())
    }

    /// Reads a series. Its records may be in any order, and a later record replaces an earlier one with the same index,
    /// but no index between 0 and the last may be missing.
    fn read_series(&mut self, key: &str) -> Result<Vec<Sample>, StatsError> {
        let entries = self.entries(key)?.to_vec();
        let mut series: Vec<Option<Sample>> = Vec::with_capacity(entries.len());
        let count = entries.len();
        for (index, record) in entries {
            let place = || {
                format!(
                    "{key}[{}]",
                    self.document.as_i64(index).map_or("?".to_owned(), |index| index.to_string())
                )
            };
            let row = self
                .as_count(index)
                .ok_or_else(|| self.wrong_type_error(&format!("a key of {key}"), "an index", index))?;
            // With `count` entries, a higher index means that there is a gap.
            let row = usize::try_from(row).ok().filter(|&row| row < count);
            let row = row.ok_or_else(|| {
                StatsError::Shape(format!("{key} has gaps: there are {count} records, but also {}", place()))
            })?;
            let (name, mib) = match record {
                Value::Tuple(id) => match self.document.tuple(id) {
                    &[name, mib] => (name, mib),
                    _ => return Err(self.wrong_type_error(&place(), "a pair of operator and MiB", record)),
                },
                _ => return Err(self.wrong_type_error(&place(), "a pair of operator and MiB", record)),
            };
            let Value::Str(span) = name else {
                return Err(self.wrong_type_error(&place(), "the operator's name", name));
            };
            let Some(mib) = self.document.as_f64(mib) else {
                return Err(self.wrong_type_error(&place(), "a number of MiB", mib));
            };
            let document = self.document;
            let operator = self.operators.entry(span).or_insert_with(|| document.text(span).into()).clone();
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
        let entries = match self.document.get(self.root, EARLIER_MARKERS_KEY) {
            None => return Ok(Vec::new()),
            Some(Value::List(id)) => self.document.list(id),
            Some(other) => return Err(self.wrong_type_error(EARLIER_MARKERS_KEY, "a list", other)),
        };
        let mut names: HashMap<Span, Arc<str>> = HashMap::new();
        let mut earlier = Vec::with_capacity(entries.len());
        for &entry in entries {
            let pair = match entry {
                Value::Tuple(id) => self.document.tuple(id),
                _ => &[],
            };
            let wrong = || self.wrong_type_error(EARLIER_MARKERS_KEY, "pairs of a name and an index", entry);
            let &[Value::Str(name), index] = pair else { return Err(wrong()) };
            let index = self.as_count(index).ok_or_else(wrong)?;
            let shared = names.entry(name).or_insert_with(|| self.document.text(name).into());
            earlier.push((Arc::clone(shared), index));
        }
        Ok(earlier)
    }

    /// Reads the peak, which PyTorch's files do not contain.
    fn read_peak(&self) -> Result<Option<AllocatedPeak>, StatsError> {
        let Some(value) = self.document.get(self.root, PEAK_KEY) else { return Ok(None) };
        let fields = match value {
            Value::Tuple(id) => self.document.tuple(id),
            _ => &[],
        };
        let read = || match *fields {
            [least, most, index, Value::Bool(is_inside)] => {
                let index = match index {
                    Value::None => None,
                    index => Some(self.as_count(index)?),
                };
                let (least, most) = (self.document.as_f64(least)?, self.document.as_f64(most)?);
                Some(AllocatedPeak::new(least, most, index, is_inside))
            }
            _ => None,
        };
        read()
            .map(Some)
            .ok_or_else(|| self.wrong_type_error(PEAK_KEY, "two numbers, an index and a bool", value))
    }

    /// Reads the markers. As in a Python dictionary, a repeated name keeps its first position but takes its last value.
    fn read_markers(&self) -> Result<Vec<(String, u64)>, StatsError> {
        let mut markers: Vec<(String, u64)> = Vec::new();
        let mut rows = HashMap::new();
        for &(name, index) in self.entries("markers")? {
            let Value::Str(span) = name else {
                return Err(self.wrong_type_error("a key of markers", "a name", name));
            };
            let name = self.document.text(span);
            let Some(index) = self.as_count(index) else {
                return Err(self.wrong_type_error(&format!("the marker {name:?}"), "an index", index));
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

#[cfg(test)]
mod tests;
