//! pprof's profiles, as tests read them.
#![allow(missing_docs)]

use flate2::read::GzDecoder;
use prost::Message;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

/// The part of `profile.proto` that these tests read. It is declared separately, because mistakes in the writer's declaration
/// would otherwise go unnoticed.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<Pair>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// A value type with its unit, or a label's key with its text.
#[derive(Clone, PartialEq, Message)]
pub struct Pair {
    #[prost(int64, tag = "1")]
    pub first: i64,
    #[prost(int64, tag = "2")]
    pub second: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Pair>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
}

impl Profile {
    /// Reads a file.
    ///
    /// # Panics
    /// When it is no profile.
    pub fn read(path: &Path) -> Self {
        Self::parse(&fs::read(path).expect("the profile can be read"))
    }

    /// Reads a compressed profile.
    ///
    /// # Panics
    /// When it is no profile.
    pub fn parse(compressed: &[u8]) -> Self {
        let mut bytes = Vec::new();
        GzDecoder::new(compressed).read_to_end(&mut bytes).expect("the profile is compressed with gzip");
        Self::decode(&bytes[..]).expect("the message is a profile")
    }

    pub fn text(&self, row: i64) -> &str {
        &self.string_table[usize::try_from(row).unwrap()]
    }

    pub fn label(&self, sample: &Sample, key: &str) -> Option<&str> {
        let label = sample.label.iter().find(|label| self.text(label.first) == key)?;
        Some(self.text(label.second))
    }

    /// Returns, by device, the sums of each of the four values over all samples of the device.
    pub fn sums(&self) -> BTreeMap<String, [i64; 4]> {
        let mut sums: BTreeMap<String, [i64; 4]> = BTreeMap::new();
        for sample in &self.sample {
            let sum = sums.entry(self.label(sample, "device").unwrap().to_owned()).or_default();
            sum.iter_mut().zip(&sample.value).for_each(|(sum, value)| *sum += value);
        }
        sums
    }

    /// Returns the functions of a sample, innermost first.
    pub fn functions(&self, sample: &Sample) -> Vec<(&str, &str, i64)> {
        let locations = sample.location_id.iter().map(|&id| &self.location[id as usize - 1]);
        let lines = locations.flat_map(|location| &location.line);
        lines
            .map(|line| {
                let function = &self.function[line.function_id as usize - 1];
                (self.text(function.name), self.text(function.filename), line.line)
            })
            .collect()
    }

    pub fn comments(&self) -> Vec<&str> {
        self.comment.iter().map(|&row| self.text(row)).collect()
    }
}
