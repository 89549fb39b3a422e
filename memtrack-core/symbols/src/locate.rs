//! Finds the file of a recorded binary: at its recorded path, or under the user's `--symbols` folder. A file
//! is used only if its identity equals the recorded one, so that a rebuilt program never gives wrong names.

use crate::build_id::{self, BinaryId};
use memtrack_model::snapshot::Module;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The maximum depth of folders below the symbol folder that are searched.
const MAX_DEPTH: usize = 32;
/// The maximum number of files that are read.
const MAX_FILES: usize = 200_000;

/// The places to search for binaries: folders, or single files.
#[derive(Debug, Default)]
pub(super) struct Locator {
    folders: Vec<PathBuf>,
    /// Files under `folders` by build id, or by code id if they have none; read when first needed.
    index: Option<HashMap<String, Vec<(PathBuf, BinaryId)>>>,
}

impl Locator {
    pub(super) fn add_folder(&mut self, folder: PathBuf) {
        self.folders.push(folder);
        self.index = None;
    }

    /// Returns the best file for `module`: the first with line tables, else the first, in the order recorded
    /// path, symbol folders.
    pub(super) fn find(&mut self, module: &Module) -> Option<PathBuf> {
        let key = key(&module.build_id, &module.code_id)?.to_owned();
        let matches = |id: &BinaryId| self::key(&id.build_id, &id.code_id) == Some(key.as_str());
        let mut second_best = None;
        // Images provided by the kernel (the vdso) have no path.
        let recorded = Path::new(&module.path);
        if recorded.is_absolute()
            && let Some(id) = build_id::read(recorded).filter(matches)
        {
            if id.has_lines {
                return Some(recorded.to_owned());
            }
            second_best = Some(recorded.to_owned());
        }
        for folder in &self.folders {
            if let Some(path) = in_build_id_layout(folder, &module.build_id)
                && let Some(id) = build_id::read(&path).filter(matches)
            {
                if id.has_lines {
                    return Some(path);
                }
                second_best.get_or_insert(path);
            }
        }
        let candidates = self.index().get(&key).map_or(&[][..], Vec::as_slice);
        let best = candidates.iter().find(|(_, id)| id.has_lines).map(|(path, _)| path.clone());
        best.or(second_best).or_else(|| candidates.first().map(|(path, _)| path.clone()))
    }

    fn index(&mut self) -> &HashMap<String, Vec<(PathBuf, BinaryId)>> {
        let folders = &self.folders;
        self.index.get_or_insert_with(|| {
            let mut index: HashMap<_, Vec<_>> = HashMap::new();
            let mut files = Vec::new();
            for folder in folders {
                if folder.is_dir() {
                    collect(folder, 0, &mut files);
                } else {
                    files.push(folder.clone());
                }
            }
            for path in files {
                if let Some(id) = build_id::read(&path)
                    && let Some(key) = key(&id.build_id, &id.code_id)
                {
                    index.entry(key.to_owned()).or_default().push((path, id));
                }
            }
            index
        })
    }
}

/// Returns the key under which a binary is found; `None` if it has no identity.
fn key<'a>(build_id: &'a str, code_id: &'a str) -> Option<&'a str> {
    [build_id, code_id].into_iter().find(|id| !id.is_empty())
}

/// Returns the path of a separate file of symbols in the layout of distributions: `.build-id/ab/cdef….debug`.
fn in_build_id_layout(folder: &Path, build_id: &str) -> Option<PathBuf> {
    // The id comes from a file: only hex digits may become part of a path.
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

/// Collects all files below `folder`, sorted by name. Links to folders are not followed: they may lead back.
fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = folder.read_dir() else { return };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        if files.len() >= MAX_FILES {
            return;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => collect(&entry.path(), depth + 1, files),
            Ok(kind) if !kind.is_dir() => files.push(entry.path()),
            _ => {}
        }
    }
}
