//! Determines what keeps a device buffer alive. It builds graphs of the references between values in Rust and Python
//! programs, finds the cycles in these graphs, measures the memory that the cycles hold, and suggests which references
//! to make weak.
//!
//! [`Graph`] is the common type: a scan of the running program (`live`) and the reader of graph files ([`read`]) both
//! produce one, and [`Findings`] and every output (`dot`, `page`, `text`, `json`) consume one.
//!
//! The modules:
//!
//! - `live` covers the running program: registered values, tracked handles, declared roots, and `scan`, which has one
//!   file per step. `watch` decides when scans run and handles their results.
//! - `graph` defines the graph that a scan and `read` produce and that `json` and `dot` write, and selects the part that
//!   leads to device memory. `format` is what `read` and `json` share.
//! - `findings` determines components, shortest paths, storages, and which field to make weak. `words` and `text` put
//!   the findings into words.
//! - `picture` lays out the boxes and draws them as SVG. `page` presents the findings as one HTML page. A test checks
//!   that `page.sha256`, the hash in the page's content security policy, matches the script.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

pub mod dot;
pub mod findings;
mod format;
pub mod graph;
pub mod json;
mod live;
pub mod page;
pub mod picture;
mod read;
#[cfg(test)]
mod testing;
pub mod text;
mod watch;
pub mod words;

pub use findings::Findings;
pub use graph::Graph;
pub use live::{
    NotScanned, Register, RegisterDyn, RegisterOptions, Report, Scan, Tracked, declare_root, find, register,
    register_dyn,
};
pub use read::{ReadError, begins_like_graph, is_graph, read};
pub use watch::{
    Observation, Watch, WatchOptions, check, disable, enable, enable_with, name_allocations, observe_cycles,
    warn_device_cycles, warn_device_cycles_with,
};
