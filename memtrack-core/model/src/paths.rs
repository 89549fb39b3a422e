//! Paths in files from any operating system. A snapshot from Windows may be read on Linux, so both `/` and `\` separate
//! folders.

use std::borrow::Cow;

/// Returns whether the character separates folders on any system.
pub const fn is_separator(character: char) -> bool {
    matches!(character, '/' | '\\')
}

/// Returns the last part of a path, such as `model.py` for `D:\lm\model.py`.
pub fn file_name(path: &str) -> &str {
    path.rsplit(is_separator).next().unwrap_or(path)
}

/// Splits a path into its folder and its last part. Returns `None` for a bare name.
pub fn split_file_name(path: &str) -> Option<(&str, &str)> {
    let at = path.rfind(is_separator)?;
    Some((&path[..at], &path[at + 1..]))
}

/// Returns the path with slashes between its folders. Rules that match paths compare them in this form. For example,
/// `d:\lm\model.py` becomes `D:/lm/model.py`. The prefix `\\?\`, which turns off the length limit of Windows, is
/// removed, and a drive letter becomes upper case.
pub fn with_slashes(path: &str) -> Cow<'_, str> {
    let is_lower_drive = has_drive(path) && path.starts_with(|letter: char| letter.is_ascii_lowercase());
    if !path.contains('\\') && !is_lower_drive {
        return Cow::Borrowed(path);
    }
    let mut path = path.replace('\\', "/");
    for verbatim in ["//?/UNC/", "//?/", "//./"] {
        if let Some(rest) = path.strip_prefix(verbatim) {
            path = if verbatim.contains("UNC") { format!("//{rest}") } else { rest.to_owned() };
            break;
        }
    }
    if has_drive(&path) {
        path[..1].make_ascii_uppercase();
    }
    Cow::Owned(path)
}

/// Returns whether a path is a Windows path, which starts with a drive such as `C:\` or `C:/`, or contains backslashes.
pub fn is_windows_path(path: &str) -> bool {
    has_drive(path) || path.contains('\\')
}

fn has_drive(path: &str) -> bool {
    let bytes = path.as_bytes();
    matches!(bytes, [drive, b':', b'/' | b'\\', ..] if drive.is_ascii_alphabetic())
}

/// Returns whether the path names a shared library or an extension module, such as `libz.so.1.3`,
/// `scan.cpython-312-darwin.so` or `torch_cpu.dll`.
pub fn is_library(path: &str) -> bool {
    let name = file_name(path).to_ascii_lowercase();
    if [".so", ".dylib", ".dll", ".pyd"].iter().any(|ending| name.ends_with(ending)) {
        return true;
    }
    let version = name.rsplit_once(".so.").map(|(_, version)| version);
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_both_systems_have_same_last_part() {
        for path in
            ["D:\\lm\\model.py", "D:/lm/model.py", "/home/me/lm/model.py", "lm\\sub/model.py", "model.py"]
        {
            assert_eq!(file_name(path), "model.py", "{path}");
        }
        assert_eq!(split_file_name("C:\\a/b\\c.py"), Some(("C:\\a/b", "c.py")));
        assert_eq!(split_file_name("c.py"), None);
    }

    #[test]
    fn windows_paths_are_compared_with_slashes() {
        for (path, expected) in [
            ("d:\\lm\\model.py", "D:/lm/model.py"),
            ("d:/lm/model.py", "D:/lm/model.py"),
            ("\\\\server\\share\\a.py", "//server/share/a.py"),
            ("\\\\?\\C:\\a\\b.py", "C:/a/b.py"),
            ("\\\\?\\UNC\\server\\share\\b.py", "//server/share/b.py"),
            ("/rustc/5980/library\\alloc\\src\\vec.rs", "/rustc/5980/library/alloc/src/vec.rs"),
            ("/home/kim/a.py", "/home/kim/a.py"),
            ("é:\\a", "é:/a"),
            ("", ""),
        ] {
            assert_eq!(with_slashes(path), expected);
        }
        assert!(is_windows_path("C:/a") && is_windows_path("lib\\a") && !is_windows_path("/c/a"));
    }

    #[test]
    fn libraries_are_recognised_by_their_names() {
        for library in ["/lib/libz.so.1.3", "scan.cpython-312-x86_64-linux-gnu.so", "D:\\x\\A.DLL", "a.pyd"] {
            assert!(is_library(library), "{library}");
        }
        for other in ["/home/kim/app", "app.sofa", "a.so.txt", "so", ""] {
            assert!(!is_library(other), "{other}");
        }
    }
}
