//! `memtrack sql`: queries a data set of ranks in SQL.

#[cfg(not(feature = "sql"))]
pub(crate) use disabled::run;
#[cfg(feature = "sql")]
pub(crate) use enabled::run;

#[cfg(feature = "sql")]
mod enabled {
    use crate::Streams;
    use crate::answers::{self, SqlAnswer};
    use crate::args::SqlArgs;
    use crate::error::{CliError, Exit};
    use crate::sql::{Query, READY_QUERIES, ReadyQuery, SqlRows, columns, execute, write_csv, write_text};
    use std::ffi::OsStr;
    use std::io::Read;
    use std::num::NonZero;
    use std::path::{Path, PathBuf};
    use std::{fs, thread};

    /// The maximum length of a query in bytes. The engine recurses into nested parts, and takes time quadratic in their
    /// number.
    const MAX_QUERY_BYTES: u64 = 64 << 10;

    /// Runs the query and prints the rows as the engine yields them.
    pub(crate) fn run(args: &SqlArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
        if args.list {
            list_queries(streams)?;
            return Ok(Exit::Success);
        }
        let (sql, folder) = query_and_folder(args, streams)?;
        let jobs =
            args.jobs.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZero::<usize>::MIN);
        let result = execute(Query { sql, folder, memory: args.memory, jobs })?;
        if args.format.json {
            let (rows, failed) = SqlRows::of(result.batches);
            let answer = SqlAnswer { columns: columns(&result.schema), rows };
            let printed = answers::SQL.print(&answer, streams);
            // The reason why the rows ended early takes precedence over a failure to print.
            failed.take().map_or(printed, Err)?;
        } else if args.csv {
            write_csv(&result.schema, result.batches, streams)?;
        } else {
            let width = (!args.wide).then(memtrack_core::__report_width);
            write_text(&result.schema, result.batches, args.rows.limit(), width, streams)?;
        }
        Ok(Exit::Success)
    }

    /// Returns the query and the folder of the data set.
    fn query_and_folder(args: &SqlArgs, streams: &mut Streams<'_>) -> Result<(String, PathBuf), CliError> {
        let words: Vec<&OsStr> =
            [&args.first, &args.second].into_iter().flatten().map(|word| &**word).collect();
        // clap accepts an unknown option as the query.
        let is_option = |word: &&&OsStr| {
            word.to_str().is_some_and(|word| word.starts_with("--") && !word.contains([' ', '\n']))
        };
        if let Some(option) = words.iter().find(is_option) {
            return Err(CliError::Usage(format!(
                "there is no option {}; see memtrack sql --help",
                option.display()
            )));
        }
        let (given, words) = match (&args.query, &args.file) {
            (Some(name), _) => (Some(find_ready_query(name)?.sql.to_owned()), &words[..]),
            (None, Some(file)) => (Some(read(file, streams)?), &words[..]),
            (None, None) => match words.split_first() {
                Some((&word, rest)) if word == "-" => (Some(read(Path::new("-"), streams)?), rest),
                Some((word, rest)) => {
                    let sql =
                        word.to_str().ok_or_else(|| CliError::Usage("the query is not UTF-8".into()))?;
                    (Some(sql.to_owned()), rest)
                }
                None => (None, &words[..]),
            },
        };
        let how = "memtrack sql 'SELECT …' DIR, or --query NAME DIR for a ready query (--list)";
        let (sql, folder) = match (given, words) {
            (None, _) => return Err(CliError::Usage(format!("give a query: {how}"))),
            (Some(_), []) => {
                return Err(CliError::Usage(format!(
                    "give the data set, a folder that memtrack export --parquet wrote: {how}"
                )));
            }
            (Some(_), [_, ..]) if words.len() > 1 => {
                return Err(CliError::Usage(format!("there are two queries; leave one out: {how}")));
            }
            (Some(sql), words) => (sql, PathBuf::from(words[0])),
        };
        if sql.len() as u64 > MAX_QUERY_BYTES {
            return Err(CliError::Usage("the query is longer than 64 KiB".into()));
        }
        Ok((sql, folder))
    }

    /// Reads the query from a file or standard input.
    fn read(file: &Path, streams: &mut Streams<'_>) -> Result<String, CliError> {
        let mut text = String::new();
        let stdin = &mut *streams.stdin;
        let read = match file == Path::new("-") {
            true => Read::take(stdin, MAX_QUERY_BYTES + 1).read_to_string(&mut text),
            false => {
                fs::File::open(file).and_then(|file| file.take(MAX_QUERY_BYTES + 1).read_to_string(&mut text))
            }
        };
        read.map_err(|error| CliError::input(file, error))?;
        // Some Windows editors start files with a byte order mark.
        Ok(text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned))
    }

    fn find_ready_query(name: &str) -> Result<&'static ReadyQuery, CliError> {
        READY_QUERIES.iter().find(|ready| ready.name == name.trim_end_matches(".sql")).ok_or_else(|| {
            let names: Vec<_> = READY_QUERIES.iter().map(|ready| ready.name).collect();
            CliError::Usage(format!(
                "--query {name}: there is no such query; the ready ones are {}",
                names.join(", ")
            ))
        })
    }

    fn list_queries(streams: &mut Streams<'_>) -> Result<(), CliError> {
        for ready in &READY_QUERIES {
            writeln!(streams.stdout, "{:<10} {}", ready.name, ready.about())?;
        }
        Ok(())
    }
}

#[cfg(not(feature = "sql"))]
mod disabled {
    use crate::Streams;
    use crate::args::{SqlArgs, sql_missing};
    use crate::error::{CliError, Exit};

    /// Reports the missing feature.
    pub(crate) fn run(_: &SqlArgs, _: &mut Streams<'_>) -> Result<Exit, CliError> {
        Err(CliError::Usage(sql_missing("this")))
    }
}
