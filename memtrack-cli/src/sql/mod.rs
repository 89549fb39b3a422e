//! Queries of `memtrack sql`: Apache DataFusion over the tables of a data set. `ready` has the queries that come with
//! memtrack, `tables` makes the files of a data set known to the engine, `engine` runs a query on separate threads,
//! `refusal` formats in a line why one failed, and `rows` writes the result.

mod engine;
mod ready;
mod refusal;
mod rows;
mod tables;

pub(crate) use engine::{Query, ask};
pub(crate) use ready::{READY, Ready};
pub(crate) use rows::{SqlRows, columns, write_csv, write_text};
