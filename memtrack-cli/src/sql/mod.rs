//! Queries of `memtrack sql`: Apache DataFusion over the tables of a data set. `ready` has the queries that come with
//! memtrack, `tables` registers the files of a data set with the engine, `engine` runs a query on separate threads,
//! `refusal` formats the reason of a failure in one line, and `rows` writes the result.
//!
//! **Why DataFusion, and what does it cost?** It is in the command (Apache-2.0) behind a feature that nothing turns on:
//! 153 crates in addition to the command's 149. The lock file has 122 more because of it (14 MB to fetch), all under
//! permissive licences; other builds compile the same crates as without it. Version 54 is the newest that builds with the
//! command's Rust (55 needs 1.94). It brings its own `parquet` (58), beside the 60 that writes: sharing 58 would make
//! every build five crates larger, among them `thrift` and `paste`. DataFusion recurses over queries, so threads have 512
//! MiB of stack (address space, not memory) instead of a crate that switches stacks. tokio is its runtime
//! (`rt-multi-thread`), and its interface is made of `futures` and `async-trait`.
//!
//! **How is it tested?** By hand: `tests/tools/dataset.py --engine memtrack` and `tests/tools/sql.py` compare its answers
//! with DuckDB's and `memtrack ranks`'. The queries use only what DuckDB, Spark, DataFusion and Trino have in common:
//! medians by row numbers, and no aggregate that one of them rounds.

mod engine;
mod ready;
mod refusal;
mod rows;
mod tables;

pub(crate) use engine::{Query, execute};
pub(crate) use ready::{READY, Ready};
pub(crate) use rows::{SqlRows, columns, write_csv, write_text};
