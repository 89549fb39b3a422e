//! The recorder: the events that it keeps, their order, and the recording after every kind of exit.

mod allocators;
mod context;
mod dumps;
mod endings;
mod files;
mod fork;
mod holds;
mod host_safety;
mod host_totals;
mod kills;
mod order;
mod packages;
mod parts;
mod plugins;
mod probes;
mod ring;
mod serve;
mod serve_tools;
mod stream;
mod tracing_candle;
mod trackers;
mod unsafe_code;
mod watched_dumps;

memtrack_tests::tests_wait!();
