//! The queries of `memtrack sql`, which Apache DataFusion runs over the tables of a data set. `ready` has the queries that come
//! with memtrack, `tables` provides the files of a data set to the engine, `engine` runs a query on separate threads, `refusal`
//! formats errors as one line, and `rows` writes the result.
//!
//! **Why DataFusion, and what does it cost?** DataFusion (Apache-2.0) is behind a feature that is off by default, because it
//! needs 153 crates in addition to the command's 149. It puts 122 more crates (14 MB to fetch) in the lock file, all under
//! permissive licences; builds without the feature compile none of them. Version 54 is the newest that builds with the command's
//! Rust version (55 needs 1.94). It depends on `parquet` 58, while the export uses 60; sharing 58 would make every build five
//! crates larger, among them `thrift` and `paste`. DataFusion recurses over queries, so its threads have 512 MiB of stack
//! (address space, not memory), which avoids a crate that switches stacks. It runs on tokio (`rt-multi-thread`), and its
//! interface needs `futures` and `async-trait`.
//!
//! **How is it tested?** It is tested by hand: `tests/tools/dataset.py --engine memtrack` and `tests/tools/sql.py` compare the
//! results with those of DuckDB and `memtrack ranks`. The queries use only features that DuckDB, Spark, DataFusion and Trino
//! share, so they find medians by row number and use no aggregate that any of these engines rounds.

mod engine;
mod ready;
mod refusal;
mod rows;
mod tables;

pub(crate) use engine::{Query, execute};
pub(crate) use ready::{READY_QUERIES, ReadyQuery};
pub(crate) use rows::{SqlRows, columns, write_csv, write_text};
