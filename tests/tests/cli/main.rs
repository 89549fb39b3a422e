//! The `memtrack` command, verb by verb.

#[path = "../../src/cuda/books.rs"]
mod books;
#[path = "../../src/cuda/client.rs"]
mod client;
mod convert;
mod cycles;
mod diff;
mod docs;
mod export;
mod export_cycles;
mod export_script;
mod exports;
mod gpus;
mod hostile;
mod lacking;
mod leaks;
mod live_flame;
mod manual;
mod neighbours;
mod page;
mod pinned_names;
#[path = "../../src/cuda/pool_blocks.rs"]
mod pool_blocks;
mod profile;
mod ranks;
mod ranks_page;
mod recorded_operators;
mod requirements;
mod run;
mod run_cost;
mod run_ends;
mod run_exec;
mod run_guests;
mod run_holds;
mod run_host;
mod run_inherited;
mod run_jemalloc;
#[cfg(target_arch = "x86_64")]
mod run_jit;
mod run_large_tables;
mod run_libraries;
mod run_linked;
mod run_mapped;
mod run_plugins;
mod run_privilege;
mod run_processes;
mod run_python;
mod run_python_marks;
mod run_python_objects;
mod run_resident;
mod run_slow_collector;
mod run_snapshots;
mod run_symbols;
mod run_together;
mod run_unhooked;
mod schema;
mod simulate;
mod top;
mod viz;

memtrack_tests::tests_wait!();
