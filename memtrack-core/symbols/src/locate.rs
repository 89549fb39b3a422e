//! Finds the file of a recorded binary, either at its recorded path or in the user's `--symbols` folder. A file is used
//! only if its identity matches the recorded one, so that a rebuilt program never leads to wrong names.

use crate::build_id::{self, BinaryId};
use memtrack_model::snapshot::Module;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The maximum depth of the search in a symbol folder.
const MAX_DEPTH: usize = 32;
/// The maximum number of files to read.
const MAX_FILES: usize = 200_000;

/// The folders and individual files to search for binaries.
#[derive(Debug, Default)]
pub(super) struct Locator {
    folders: Vec<PathBuf>,
    /// The files in `folders`, keyed by build id, or by code id if they have no build id. Built on first use.
    index: Option<HashMap<String, Vec<(PathBuf, BinaryId)>>>,
}

impl Locator {
    pub(super) fn add_folder(&mut self, folder: PathBuf) {
        self.folders.push(folder);
        self.index = None;
    }

    /// Returns the best file for `module`, which is the first one with line tables or, if there is none, simply the
    /// first one. The recorded path comes before the symbol folders.
    pub(super) fn find(&mut self, module: &Module) -> Option<PathBuf> {
        let key = index_key(&module.build_id, &module.code_id)?.to_owned();
        let matches = |id: &BinaryId| index_key(&id.build_id, &id.code_id) == Some(key.as_str());
        let mut fallback = None;
        // The vDSO, an image provided by the kernel, has no path.
        let recorded = Path::new(&module.path);
        if recorded.is_absolute()
            && let Some(id) = build_id::read(recorded).filter(matches)
        {
            if id.has_lines {
                return Some(recorded.to_owned());
            }
            fallback = Some(recorded.to_owned());
        }
        for folder in &self.folders {
            if let Some(path) = debug_file_path(folder, &module.build_id)
                && let Some(id) = build_id::read(&path).filter(matches)
            {
                if id.has_lines {
                    return Some(path);
                }
                fallback.get_or_insert(path);
            }
        }
        let candidates = self.load_index().get(&key).map_or(&[][..], Vec::as_slice);
        let best = candidates.iter().find(|(_, id)| id.has_lines).map(|(path, _)| path.clone());
        best.or(fallback).or_else(|| candidates.first().map(|(path, _)| path.clone()))
    }

    fn load_index(&mut self) -> &HashMap<String, Vec<(PathBuf, BinaryId)>> {
        let folders = &self.folders;
        self.index.get_or_insert_with(|| {
            let mut index: HashMap<_, Vec<_>> = HashMap::new();
            let mut files = Vec::new();
            for folder in folders {
                if folder.is_dir() {
                    collect_files(folder, 0, &mut files);
                } else {
                    files.push(folder.clone());
                }
            }
            for path in files {
                if let Some(id) = build_id::read(&path)
                    && let Some(key) = index_key(&id.build_id, &id.code_id)
                {
                    index.entry(key.to_owned()).or_default().push((path, id));
                }
            }
            index
        })
    }
}

/// Returns a binary's key in the index, or `None` if the binary has no identity.
fn index_key<'a>(build_id: &'a str, code_id: &'a str) -> Option<&'a str> {
    [build_id, code_id].into_iter().find(|id| !id.is_empty())
}

/// Returns the path of a separate debug file in the layout used by Linux distributions: `.build-id/ab/cdef….debug`.
fn debug_file_path(folder: &Path, build_id: &str) -> Option<PathBuf> {
    // The id comes from an untrusted file, so only hex digits may become part of a path.
    if !build_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let (first, rest) = build_id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    let name = format!("{rest}.debug");
    [folder.join(".build-id"), folder.to_owned()]
        .into_iter()
        .map(|base| base.join(first).join(&name))
        .find(|path| path.exists())
}

/// Collects all files in and below `folder`, sorted by name. Symbolic links to folders are not followed, because they
/// could form cycles.
fn collect_files(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = folder.read_dir() else { return };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        if files.len() >= MAX_FILES {
            return;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => collect_files(&entry.path(), depth + 1, files),
            Ok(kind) if !kind.is_dir() => files.push(entry.path()),
            _ => {}
        }
    }
}
