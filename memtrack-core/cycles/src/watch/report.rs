//! Operations on the [`Report`] of a scan: analyzing and printing it, and writing it as a graph file or a page.

use super::allocated::name_allocations;
use crate::live::Report;
use crate::{Findings, Graph, json, page, text};
use memtrack_file::ReplacingFile;
use memtrack_model::units::counted;
use memtrack_recorder::reentry;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The maximum number of kinds of cycles that are printed.
const MAX_ROWS: usize = 20;

impl Report {
    /// Returns the cycles in the graph, with the memory that each holds and the references to make weak.
    pub fn findings(&self) -> Findings {
        let _inside = reentry::enter();
        Findings::of(&self.graph)
    }

    /// Writes the graph and its findings to a file for `memtrack cycles`, replacing any existing file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written. In that case, an existing file is left unchanged.
    pub fn save_graph(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let _inside = reentry::enter();
        let graph = with_named_allocations(&self.graph);
        let mut file = ReplacingFile::create(path.as_ref())?;
        json::write(&graph, &Findings::of(&graph), &mut file)?;
        file.commit()
    }

    /// Writes the findings as a page for the browser, replacing any existing file. The page is one file that needs no
    /// network, and it shows where the device memory was allocated.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written. In that case, an existing file is left unchanged.
    pub fn save_page(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let _inside = reentry::enter();
        let graph = with_named_allocations(&self.graph);
        write_page(&graph, &Findings::of(&graph), path.as_ref())
    }
}

/// Formats the summary on one line, followed by each kind of cycle with a path around it, its certainty, the memory
/// that it keeps, the references to make weak, and, if it was recorded, the place where that memory was allocated.
/// Formatting such a place reads debug information.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _inside = reentry::enter();
        let graph = with_named_allocations(&self.graph);
        f.write_str(text::text(&graph, &Findings::of(&graph), MAX_ROWS).trim_end())?;
        if self.incomplete > 0 {
            let values = counted(self.incomplete, "value");
            write!(
                f,
                "\n{values} could not be inspected: what they refer to counts as held, and cycles through \
                 them are not seen."
            )?;
        }
        Ok(())
    }
}

fn with_named_allocations(graph: &Graph) -> Graph {
    let mut graph = graph.clone();
    name_allocations(&mut graph);
    graph
}

/// Writes a page with the program's name as its title.
pub(super) fn write_page(graph: &Graph, findings: &Findings, path: &Path) -> io::Result<()> {
    let program = PathBuf::from(std::env::args_os().next().unwrap_or_default());
    let title = program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut file = ReplacingFile::create(path)?;
    file.write_all(page::html(graph, findings, &title).as_bytes())?;
    file.commit()
}
