//! The queries in `queries/`, which come with memtrack and run unchanged in every engine.

/// A query that comes with memtrack.
pub(crate) struct ReadyQuery {
    /// The query's name, which is the name of its file without the suffix.
    pub(crate) name: &'static str,
    /// The query in SQL, preceded by a comment that describes it.
    pub(crate) sql: &'static str,
}

macro_rules! ready {
    ($($name:literal)+) => {
        [$(ReadyQuery { name: $name, sql: include_str!(concat!("../../queries/", $name, ".sql")) }),+]
    };
}

/// The queries, in the order of docs/RANKS.md.
pub(crate) static READY_QUERIES: [ReadyQuery; 8] =
    ready!["ranks" "usual" "outliers" "why" "skew" "timeline" "stacks" "lifetimes"];

impl ReadyQuery {
    /// Returns the query's description.
    pub(crate) fn about(&self) -> String {
        let comment = self.sql.lines().map_while(|line| line.strip_prefix("--"));
        comment.map(str::trim).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_query_exists_and_describes_its_result() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("queries");
        let names = folder.read_dir().unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut queries: Vec<String> =
            names.filter(|name| !name.starts_with("tables.")).map(|name| name.replace(".sql", "")).collect();
        queries.sort();
        let mut known: Vec<_> = READY_QUERIES.iter().map(|ready| ready.name).collect();
        known.sort_unstable();
        assert_eq!(known, queries);
        for ready in &READY_QUERIES {
            assert!(
                ready.about().len() > 20 && ready.about().ends_with('.'),
                "{}: {}",
                ready.name,
                ready.about()
            );
        }
    }
}
