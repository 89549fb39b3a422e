//! The list of exports, with one row for each: its name, its content, and its writer. To add an export, add a file and
//! a row.

use crate::options::ExportOptions;
use crate::{blocks, collapsed, firefox, parquet, perfetto, pprof, speedscope};
use memtrack_formats::{Compression, write_compressed};
use memtrack_model::Snapshot;
use memtrack_symbols::Symbolizer;
use std::io::{self, Write};

type WriteExport = fn(&Snapshot, &mut Symbolizer, &ExportOptions, &mut dyn Write) -> io::Result<()>;

/// The compression that a file format itself requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// The format requires none, but `.gz` or `.zst` after the name compresses a file.
    None,
    /// Files are compressed with gzip.
    Gzip,
    /// The contents of files are compressed within the format.
    Internal,
}

/// A format that other tools read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Export {
    /// The name of the format, in lower case.
    pub name: &'static str,
    /// The suffixes of file names, starting with the usual one. A suffix may have several parts, such as `pb.gz`.
    pub suffixes: &'static [&'static str],
    /// The contents of files and the tools that open them, on one line.
    pub about: &'static str,
    /// The compression that the format itself requires.
    pub packing: Packing,
    /// Whether the content depends on the moments in [`ExportOptions::devices`].
    pub depends_on_moment: bool,
    /// The memtrack feature that the export needs but this build lacks, if any.
    pub missing_feature: Option<&'static str>,
    pub(crate) write: WriteExport,
}

impl Export {
    /// Writes a snapshot, compressed with `compression` unless the format is already compressed. The snapshot's events
    /// must be in chronological order ([`Snapshot::order_by_time`]).
    ///
    /// # Errors
    /// Fails if `output` cannot be written, a number is too large for the format, or this build has a [missing
    /// feature](Self::missing_feature).
    pub fn write(
        &self,
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        options: &ExportOptions,
        output: impl Write,
        compression: Compression,
    ) -> io::Result<()> {
        let compression = if self.packing == Packing::None { compression } else { Compression::None };
        write_compressed(output, compression, |output| (self.write)(snapshot, symbols, options, output))
    }
}

/// All exports, in the order in which messages list them. If several suffixes match a file name, the longest one
/// counts.
pub static EXPORTS: [Export; 7] = [
    Export {
        name: "pprof",
        suffixes: &["pb.gz", "pprof"],
        about: "allocated and in use, by stack, for `go tool pprof`",
        packing: Packing::Gzip,
        depends_on_moment: true,
        missing_feature: None,
        write: pprof::write,
    },
    Export {
        name: "speedscope",
        suffixes: &["speedscope.json"],
        about: "in use at the peak and at the end, and allocated, by stack, for speedscope.app",
        packing: Packing::None,
        depends_on_moment: false,
        missing_feature: None,
        write: speedscope::write,
    },
    Export {
        name: "collapsed",
        suffixes: &["folded", "collapsed"],
        about: "stacks with the bytes in use, a line each, for flame graphs",
        packing: Packing::None,
        depends_on_moment: true,
        missing_feature: None,
        write: collapsed::write,
    },
    Export {
        name: "csv",
        suffixes: &["csv"],
        about: "a row for each block, for tables and databases",
        packing: Packing::None,
        depends_on_moment: false,
        missing_feature: None,
        write: blocks::write,
    },
    Export {
        name: "parquet",
        suffixes: &["parquet"],
        about: "a row for each event, for DuckDB, pandas, Polars and Spark",
        packing: Packing::Internal,
        depends_on_moment: false,
        missing_feature: if cfg!(feature = "parquet") { None } else { Some("parquet") },
        write: parquet::write,
    },
    Export {
        name: "perfetto",
        suffixes: &["pftrace", "perfetto-trace"],
        about: "counters, what was running and heap profiles over time, for ui.perfetto.dev",
        packing: Packing::None,
        depends_on_moment: false,
        missing_feature: None,
        write: perfetto::write,
    },
    Export {
        name: "firefox",
        suffixes: &["fxprof.json"],
        about: "every allocation with its stack, memory and what was running over time, for profiler.firefox.com",
        packing: Packing::None,
        depends_on_moment: false,
        missing_feature: None,
        write: firefox::write,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_export_accepts_empty_snapshot() {
        let snapshot = Snapshot::default();
        let mut symbols = Symbolizer::of(&snapshot);
        for export in EXPORTS.iter().filter(|export| export.missing_feature.is_none()) {
            let mut out = Vec::new();
            (export.write)(&snapshot, &mut symbols, &ExportOptions::of(&snapshot), &mut out).unwrap();
        }
    }
}
