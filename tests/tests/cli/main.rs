//! The `memtrack` command, verb by verb.

mod convert;
mod gpus;
mod here;
mod hostile;
mod pinned_names;
mod run;
mod run_cost;
mod run_ends;
mod run_host;
mod run_libraries;
mod run_privilege;
mod run_snapshots;
mod run_unhooked;
mod simulate;
mod top;
mod viz;
