//! The paths of the pages that `memtrack ranks` writes: the page for all ranks and, with `--pages`, a page for each rank, along
//! with the links to those pages.

use super::prelude::*;
use super::ranks::RanksArgs;
use memtrack_core::snapshot::Format;
use memtrack_core::snapshot::pytorch::Compression;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Component;

/// The maximum number of characters in a page's name. File systems limit names to 255 bytes.
const MAX_NAME_CHARS: usize = 60;

/// The pages for individual ranks.
#[derive(Debug, Default)]
pub(super) struct RankPages {
    folder: PathBuf,
    /// For each input, the path of its page and the link to that page from the page for all ranks.
    pages: HashMap<PathBuf, (PathBuf, String)>,
}

/// Checks the path of the page for all ranks.
///
/// # Errors
/// Returns a usage error if the name does not end in `.html` or `.htm`, or if the file already exists.
pub(super) fn check_page(args: &RanksArgs) -> Result<(), CliError> {
    let Some(output) = &args.output else { return Ok(()) };
    let is_page = output
        .extension()
        .is_some_and(|suffix| suffix.eq_ignore_ascii_case("html") || suffix.eq_ignore_ascii_case("htm"));
    if !is_page {
        return Err(CliError::Usage(format!("{}: end the name in .html", output.display())));
    }
    check_targets([output.as_path()], args.force)
}

impl RankPages {
    /// Chooses the names of the pages for `files`, if pages are requested. Nothing is written yet.
    ///
    /// # Errors
    /// Returns a usage error if a page already exists or would replace the page for all ranks.
    pub(super) fn plan(args: &RanksArgs, files: &[PathBuf]) -> Result<Self, CliError> {
        let (Some(folder), Some(output)) = (&args.pages, &args.output) else { return Ok(Self::default()) };
        check_folder(folder)?;
        let from = absolute_path(output.parent().unwrap_or(Path::new("")));
        let mut pages = HashMap::new();
        for (file, name) in files.iter().zip(page_names(files, args.scrub.scrub)) {
            let target = folder.join(name);
            if absolute_path(&target) == absolute_path(output) {
                return Err(CliError::Usage(format!(
                    "{} would be the page of all ranks and that of {}: choose another name",
                    output.display(),
                    file.display()
                )));
            }
            let link = relative_link(&from, &absolute_path(&target));
            pages.insert(file.clone(), (target, link));
        }
        let mut targets: Vec<&Path> = pages.values().map(|(target, _)| &**target).collect();
        targets.sort_unstable();
        check_targets(targets, args.force)?;
        Ok(Self { folder: folder.clone(), pages })
    }

    /// Returns the path of an input's page and the link to it from the page for all ranks, or `None` if no pages are requested.
    pub(super) fn page_of(&self, file: &Path) -> Option<(&Path, &str)> {
        self.pages.get(file).map(|(target, link)| (&**target, &**link))
    }

    /// Creates the folder for the pages.
    pub(super) fn make_folder(&self) -> Result<(), CliError> {
        fs::create_dir_all(&self.folder).map_err(|error| CliError::output(&self.folder, error))
    }
}

/// Returns the names of the pages, one for each file. A page's name is derived from the path of its file, without the leading
/// folders that all files share. If `are_hidden` is set, paths must not be revealed, and the pages are numbered instead.
fn page_names(files: &[PathBuf], are_hidden: bool) -> Vec<String> {
    if are_hidden {
        return (1..=files.len()).map(|number| format!("file-{number}.html")).collect();
    }
    let parts: Vec<Vec<String>> = files.iter().map(|file| parts(&absolute_path(file))).collect();
    let common = |at: usize| parts.iter().all(|one| at + 1 < one.len() && one[at] == parts[0][at]);
    let from = (0..).take_while(|&at| !parts.is_empty() && common(at)).count();
    let mut taken = HashSet::new();
    let named = |one: &Vec<String>| {
        let stem = stem(&one[from.min(one.len())..].join("-"));
        let numbers = std::iter::once(String::new()).chain((2..).map(|number| format!("-{number}")));
        // Compare names in lower case, because some file systems ignore case.
        let mut candidates = numbers.map(|number| format!("{stem}{number}.html"));
        candidates.find(|name| taken.insert(name.to_lowercase())).unwrap_or_default()
    };
    parts.iter().map(named).collect()
}

/// Returns a name without input format suffixes, using only characters that every file system allows.
fn stem(name: &str) -> String {
    let mut stem = name;
    while let Some((shorter, end)) = stem.rsplit_once('.')
        && (Compression::named(end).is_some() || Format::named(end).is_some() || end == "raw")
    {
        stem = shorter;
    }
    let plain = |letter: char| match letter {
        letter if letter.is_alphanumeric() || "._-=+@".contains(letter) => letter,
        _ => '_',
    };
    // The end of a path is more informative than its beginning.
    let surplus = stem.chars().count().saturating_sub(MAX_NAME_CHARS);
    let stem: String = stem.chars().skip(surplus).map(plain).collect();
    match stem.trim_start_matches('.') {
        "" => "rank".into(),
        stem => stem.to_owned(),
    }
}

/// Returns the names of a path's folders, followed by the name of the file.
fn parts(path: &Path) -> Vec<String> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

/// Returns the absolute path, with `.` and `..` resolved as browsers resolve them in links.
fn absolute_path(path: &Path) -> PathBuf {
    // The empty path is the current folder.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let mut absolute = PathBuf::new();
    for part in std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).components() {
        match part {
            Component::ParentDir => drop(absolute.pop()),
            Component::CurDir => {}
            part => absolute.push(part),
        }
    }
    absolute
}

/// Returns the link from a page in the folder `from` to the file `to`. Both paths must be absolute.
fn relative_link(from: &Path, to: &Path) -> String {
    let (from, to) = (parts(from), parts(to));
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..".to_owned(), from.len() - common);
    up.chain(to[common..].iter().map(|part| percent_encode(part))).collect::<Vec<_>>().join("/")
}

/// Percent-encodes part of a URL.
fn percent_encode(part: &str) -> String {
    let letter = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    part.bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_for(files: &[&str]) -> Vec<String> {
        page_names(&files.iter().map(PathBuf::from).collect::<Vec<_>>(), false)
    }

    #[test]
    fn pages_are_named_after_their_files_and_unique() {
        assert_eq!(names_for(&["run/rank0.pickle", "run/rank10.pickle.gz"]), ["rank0.html", "rank10.html"]);
        assert_eq!(
            names_for(&["run/rank0/snapshot.pickle", "run/rank1/snapshot.pickle"]),
            ["rank0-snapshot.html", "rank1-snapshot.html"]
        );
        assert_eq!(
            names_for(&["a.pickle", "a.pickle.zstd", "A.memtrack"]),
            ["a.html", "a-2.html", "A-3.html"]
        );
        assert_eq!(names_for(&["x/\"<b>&.pickle"]), ["__b__.html"]);
        assert_eq!(names_for(&[".pickle"]), ["rank.html"]);
        assert!(names_for(&["é".repeat(200).as_str()])[0].len() < 200);
        assert!(names_for(&[]).is_empty());
        assert_eq!(page_names(&[PathBuf::from("secret.pickle")], true), ["file-1.html"]);
    }

    #[test]
    fn links_are_relative_and_encoded() {
        let at = |from: &str, to: &str| relative_link(Path::new(from), Path::new(to));
        assert_eq!(at("/a/b", "/a/b/pages/rank0.html"), "pages/rank0.html");
        assert_eq!(at("/a/b", "/a/c/rank0.html"), "../c/rank0.html");
        assert_eq!(at("/a", "/a/a b/ä#?%.html"), "a%20b/%C3%A4%23%3F%25.html");
        assert_eq!(at("/a", "/a/javascript:x.html"), "javascript%3Ax.html");
        assert_eq!(absolute_path(Path::new("/a/../b/./c")), Path::new("/b/c"));
    }
}
