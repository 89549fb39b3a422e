//! Arguments for `memtrack sql`.

#[cfg(feature = "sql")]
pub(crate) use with::SqlArgs;
#[cfg(not(feature = "sql"))]
pub(crate) use without::{SqlArgs, missing_text};

#[cfg(feature = "sql")]
mod with {
    use crate::args::ranks::parse_jobs;
    use crate::args::{FormatArgs, RowsArgs};
    use crate::sizes::parse_bytes;
    use clap::Args;
    use std::ffi::OsString;
    use std::num::NonZero;
    use std::path::PathBuf;

    /// Arguments for `memtrack sql`.
    #[derive(Clone, Debug, Args)]
    #[command(
        override_usage = "\
memtrack sql [OPTIONS] 'SELECT …' DIR
       memtrack sql [OPTIONS] --query NAME DIR
       memtrack sql [OPTIONS] --file QUERY.sql DIR",
        after_help = "\
Examples:
  memtrack sql 'SELECT rank, peak_bytes FROM devices' memory    a table of the ranks in the folder memory
  memtrack sql --query why memory                    the ready query: why the odd ranks are odd
  memtrack sql --list                                the ready queries
  memtrack sql 'SHOW COLUMNS FROM groups' memory     the columns of a table
  memtrack sql --file mine.sql memory --csv > mine.csv
  memtrack sql - memory --json < mine.sql | jq '.rows[0]'

DIR is what memtrack export --parquet wrote. The tables are runs, devices, timeline, groups, steps, out_of_memory, live, stacks,
frames and events; each has the columns job and rank. The engine is Apache DataFusion. Queries are read-only: one that would
write or define something is refused.
Exit codes: 0 success, 2 wrong usage or a query with an error, 3 unreadable data or unwritable output."
    )]
    pub(crate) struct SqlArgs {
        /// The query; `-` reads it from standard input
        #[arg(value_name = "SQL", allow_hyphen_values = true)]
        pub(crate) first: Option<OsString>,
        /// The folder of the data set
        #[arg(value_name = "DIR")]
        pub(crate) second: Option<OsString>,
        /// Run one of the ready queries
        #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "list"])]
        pub(crate) query: Option<String>,
        /// Read the query from a file
        #[arg(long, value_name = "QUERY.sql", conflicts_with = "list")]
        pub(crate) file: Option<PathBuf>,
        /// List the ready queries
        #[arg(long, conflicts_with_all = ["first", "json", "csv"])]
        pub(crate) list: bool,
        #[command(flatten)]
        pub(crate) rows: RowsArgs,
        /// Do not leave out columns or shorten text; by default, lines are as wide as COLUMNS, else the terminal, else 120
        /// characters
        #[arg(long)]
        pub(crate) wide: bool,
        #[command(flatten)]
        pub(crate) format: FormatArgs,
        /// Print all rows as CSV
        #[arg(long, conflicts_with = "json")]
        pub(crate) csv: bool,
        /// How much memory sorting, grouping and joining may use in total; beyond that, they spill to files in TMPDIR where
        /// possible
        #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes)]
        pub(crate) memory: u64,
        /// How many threads to use [default: the number of cores]
        #[arg(short, long, value_name = "N", value_parser = parse_jobs)]
        pub(crate) jobs: Option<NonZero<usize>>,
    }
}

#[cfg(not(feature = "sql"))]
mod without {
    use clap::Args;
    use std::ffi::OsString;

    /// The arguments for `memtrack sql` in a build without the `sql` feature. Anything is accepted.
    #[derive(Clone, Debug, Args)]
    pub(crate) struct SqlArgs {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        pub(crate) _all: Vec<OsString>,
    }

    /// Returns the help and error text of `memtrack sql` in a build without the feature. The text starts with `this` and
    /// explains how to install the feature.
    pub(crate) fn missing_text(this: &str) -> String {
        format!(
            "{this} memtrack is built without `sql`: install it with `cargo install --path memtrack-cli --features sql`, or run \
             the same queries in DuckDB, Spark or another engine"
        )
    }
}
