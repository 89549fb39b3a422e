//! Reads a data set, by listing its ranks and checking whether a file is a complete table.

use crate::digest::DATASET_VERSION;
use crate::table::Table;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A rank in a data set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct RankFolder {
    /// The job's name.
    pub job: String,
    /// The rank's number.
    pub rank: u64,
    /// The rank's folder, relative to the data set's folder.
    pub folder: PathBuf,
}

/// Returns the ranks of the data set in folder `dataset`, found by their folder names and sorted by job and rank.
/// Folders that writers have not finished or have abandoned are skipped.
///
/// # Errors
/// Fails if a folder cannot be read, or with [`ErrorKind::InvalidData`] if a folder is called `rank=…` without a
/// number.
pub fn ranks(dataset: &Path) -> io::Result<Vec<RankFolder>> {
    let mut ranks = Vec::new();
    for (job_folder, job) in subfolders(dataset, "job=")? {
        for (folder, rank) in subfolders(&dataset.join(&job_folder), "rank=")? {
            let folder = job_folder.join(folder);
            let Ok(rank) = rank.parse() else {
                let why = format!("{}: a rank is a number", dataset.join(folder).display());
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            };
            ranks.push(RankFolder { job: percent_decode(&job), rank, folder });
        }
    }
    ranks.sort();
    Ok(ranks)
}

/// Returns the subfolders whose names start with `prefix`, and the rest of each name.
fn subfolders(folder: &Path, prefix: &str) -> io::Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        // A file next to the folders does not belong to the data set.
        if let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(prefix))
            && entry.path().is_dir()
        {
            found.push((PathBuf::from(&name), rest.to_owned()));
        }
    }
    Ok(found)
}

/// Decodes the percent-encoded name of a folder.
fn percent_decode(name: &str) -> String {
    let digit = |place: usize| name.as_bytes().get(place).and_then(|&byte| char::from(byte).to_digit(16));
    let mut bytes = Vec::with_capacity(name.len());
    let mut place = 0;
    while let Some(&byte) = name.as_bytes().get(place) {
        match (byte, digit(place + 1), digit(place + 2)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                place += 3;
            }
            _ => {
                bytes.push(byte);
                place += 1;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the number of rows in the file at `path`, after checking that it is complete and has the columns of `table`.
/// Only the metadata is read.
///
/// # Errors
/// Fails if the file cannot be read, or with [`ErrorKind::InvalidData`] if it is truncated or is not such a table.
pub fn check(path: &Path, table: &Table) -> io::Result<u64> {
    let wrong = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    let reader = SerializedFileReader::new(File::open(path)?)
        .map_err(|error| wrong(format!("it is not a complete Parquet file ({error})")))?;
    let meta = reader.metadata().file_metadata();
    let facts = meta.key_value_metadata().into_iter().flatten();
    let version = facts.filter(|fact| fact.key == "memtrack.dataset").find_map(|fact| fact.value.as_ref());
    if let Some(version) = version.filter(|version| version.parse() != Ok(DATASET_VERSION)) {
        return Err(wrong(format!(
            "its tables are of version {version}, and this memtrack knows {DATASET_VERSION}"
        )));
    }
    for column in table.columns {
        let found = meta.schema_descr().columns().iter().find(|found| found.name() == column.name);
        if found.is_none_or(|found| found.physical_type() != column.kind.physical()) {
            return Err(wrong(format!(
                "it is no table of {}: it has no column {} of type {}",
                table.name,
                column.name,
                column.kind.sql()
            )));
        }
    }
    Ok(u64::try_from(meta.num_rows()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::rank_folder;
    use crate::table::Rows;
    use crate::{RUNS, STEPS};

    #[test]
    fn ranks_are_found_by_folders_with_job_names() {
        let dataset = tempfile::tempdir().unwrap();
        let folders = [("b", 2), ("a b/%ü", 10), ("a b/%ü", 9), ("b", 1)];
        for (job, rank) in folders {
            fs::create_dir_all(rank_folder(dataset.path(), job, rank)).unwrap();
        }
        // These are a folder left by a killed writer, and unrelated entries.
        fs::create_dir(dataset.path().join("job=b/.rank=1.4711-0.memtrack.tmp")).unwrap();
        fs::create_dir(dataset.path().join("other")).unwrap();
        fs::write(dataset.path().join("job=notes"), "").unwrap();
        let found = ranks(dataset.path()).unwrap();
        let found: Vec<_> = found.iter().map(|rank| (rank.job.as_str(), rank.rank)).collect();
        assert_eq!(found, [("a b/%ü", 9), ("a b/%ü", 10), ("b", 1), ("b", 2)]);
        fs::create_dir(dataset.path().join("job=b/rank=x")).unwrap();
        assert_eq!(ranks(dataset.path()).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn incomplete_tables_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("steps.parquet");
        let write = |version: &str| {
            let facts = [("dataset", version.to_owned())];
            Rows::of(&STEPS).write(File::create(&path).unwrap(), &facts).unwrap();
        };
        write("1");
        assert_eq!(check(&path, &STEPS).unwrap(), 0);
        let why = |table| check(&path, table).unwrap_err().to_string();
        assert_eq!(why(&RUNS), "it is no table of runs: it has no column source of type STRING");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        assert!(why(&STEPS).starts_with("it is not a complete Parquet file ("), "{}", why(&STEPS));
        write("2");
        assert_eq!(why(&STEPS), "its tables are of version 2, and this memtrack knows 1");
    }
}
