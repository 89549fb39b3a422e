//! Every export, one row each: its name, its content, and its writer. A new export is a file and a row.

use crate::{blocks, collapsed, firefox, parquet, perfetto, pprof, speedscope};
use memtrack_formats::{Compression, write_compressed};
use memtrack_model::Snapshot;
use memtrack_model::event::DeviceId;
use memtrack_report::analysis::moment::Moment;
use memtrack_report::analysis::ownership::Rules;
use memtrack_symbols::Symbolizer;
use std::io::{self, Write};

/// The parts of a snapshot to write.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExportOptions {
    /// The devices, each with the moment whose live memory counts. Exports that describe no moment
    /// ([`Export::of_a_moment`]) ignore it.
    pub devices: Vec<(DeviceId, Moment)>,
    /// The owners of code, for exports that distinguish own lines from those of frameworks.
    pub rules: Rules,
}

impl ExportOptions {
    /// Selects all devices of `snapshot`, each at its peak, with the built-in rules.
    pub fn of(snapshot: &Snapshot) -> Self {
        let devices = snapshot.device_ids().into_iter().map(|device| (device, Moment::Peak)).collect();
        Self { devices, rules: Rules::new() }
    }

    /// Selects only these devices, each with the moment whose live memory counts.
    #[must_use]
    pub fn devices(self, devices: Vec<(DeviceId, Moment)>) -> Self {
        Self { devices, ..self }
    }

    /// Sets the rules for the owners of code.
    #[must_use]
    pub fn rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }
}

type WriteExport = fn(&Snapshot, &mut Symbolizer, &ExportOptions, &mut dyn Write) -> io::Result<()>;

/// The compression of files by the rules of their format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// They are not: `.gz` and `.zst` after their name compress them.
    None,
    /// They are gzip.
    Gzip,
    /// The content of the files is compressed.
    Inside,
}

/// A format that other tools read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Export {
    /// Its name, in lower case.
    pub name: &'static str,
    /// The endings of its files' names, the usual one first; several parts are allowed, such as `pb.gz`.
    pub suffixes: &'static [&'static str],
    /// Its content, and the tools that open it, in a line.
    pub about: &'static str,
    /// The compression of its files by its own rules.
    pub packing: Packing,
    /// Whether its content depends on a moment.
    pub of_a_moment: bool,
    /// The feature of memtrack that it needs, where this build is without it.
    pub missing_feature: Option<&'static str>,
    pub(crate) write: WriteExport,
}

impl Export {
    /// Writes a snapshot, whose events are in the order of time ([`Snapshot::order_by_time`]), compressed that way.
    /// Files that are compressed already are not compressed again.
    ///
    /// # Errors
    /// Fails when `output` cannot be written, the format cannot hold a number, or this build has a [missing feature](Self::missing_feature).
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

/// All exports, in the order in which sentences list them. Of endings that fit, the longest decides.
pub static EXPORTS: [Export; 7] = [
    Export {
        name: "pprof",
        suffixes: &["pb.gz", "pprof"],
        about: "allocated and in use, by stack, for `go tool pprof`",
        packing: Packing::Gzip,
        of_a_moment: true,
        missing_feature: None,
        write: pprof::write,
    },
    Export {
        name: "speedscope",
        suffixes: &["speedscope.json"],
        about: "in use at the peak and at the end, and allocated, by stack, for speedscope.app",
        packing: Packing::None,
        of_a_moment: false,
        missing_feature: None,
        write: speedscope::write,
    },
    Export {
        name: "collapsed",
        suffixes: &["folded", "collapsed"],
        about: "stacks with the bytes in use, a line each, for flame graphs",
        packing: Packing::None,
        of_a_moment: true,
        missing_feature: None,
        write: collapsed::write,
    },
    Export {
        name: "csv",
        suffixes: &["csv"],
        about: "a row for each block, for tables and databases",
        packing: Packing::None,
        of_a_moment: false,
        missing_feature: None,
        write: blocks::write,
    },
    Export {
        name: "parquet",
        suffixes: &["parquet"],
        about: "a row for each event, for DuckDB, pandas, Polars and Spark",
        packing: Packing::Inside,
        of_a_moment: false,
        missing_feature: if cfg!(feature = "parquet") { None } else { Some("parquet") },
        write: parquet::write,
    },
    Export {
        name: "perfetto",
        suffixes: &["pftrace", "perfetto-trace"],
        about: "counters, what was running and heap profiles over time, for ui.perfetto.dev",
        packing: Packing::None,
        of_a_moment: false,
        missing_feature: None,
        write: perfetto::write,
    },
    Export {
        name: "firefox",
        suffixes: &["fxprof.json"],
        about: "every allocation with its stack, memory and what was running over time, for profiler.firefox.com",
        packing: Packing::None,
        of_a_moment: false,
        missing_feature: None,
        write: firefox::write,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_export_takes_an_empty_snapshot() {
        let snapshot = Snapshot::default();
        let mut symbols = Symbolizer::of(&snapshot);
        for export in EXPORTS.iter().filter(|export| export.missing_feature.is_none()) {
            let mut out = Vec::new();
            (export.write)(&snapshot, &mut symbols, &ExportOptions::of(&snapshot), &mut out).unwrap();
        }
    }
}
