//! The preload libraries as files that the loader can find. They are embedded in the command, which writes them to the
//! user's cache folder, under names with checksums of their contents. The files stay there, because children of the
//! program may outlive the command.
//!
//! Their path contains the token `$LIB`, which only glibc's loader replaces (with the name of the system's library folder).
//! musl's loader finds no folder of that name and skips the libraries; otherwise it would load them, fail to find symbols that
//! only glibc has, and end the program.
#![allow(unsafe_code)]

use crate::error::CliError;
use memtrack_core::__ReplacingFile as ReplacingFile;
use std::ffi::{CStr, CString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// An embedded library.
struct Library {
    name: &'static str,
    content: &'static [u8],
    /// The checksum of the content.
    checksum: &'static str,
}

impl Library {
    fn file_name(&self) -> String {
        format!("{}-{}.so", self.name, self.checksum)
    }
}

static HOOKS: Library = Library {
    name: "preload",
    content: include_bytes!(concat!(env!("OUT_DIR"), "/preload.so")),
    checksum: env!("MEMTRACK_PRELOAD_CHECKSUM"),
};
/// The library that redirects the program's heap functions to [`HOOKS`].
static HEAP: Library = Library {
    name: "heap",
    content: include_bytes!(concat!(env!("OUT_DIR"), "/preload_heap.so")),
    checksum: env!("MEMTRACK_PRELOAD_HEAP_CHECKSUM"),
};

/// Installs the libraries, and returns their paths in the order in which they must be loaded.
///
/// # Errors
/// Fails if this command was built without the libraries, or if they cannot be written to any folder.
pub(crate) fn install_all(with_heap: bool) -> Result<Vec<PathBuf>, CliError> {
    if HOOKS.content.is_empty() || HEAP.content.is_empty() {
        let why = "this memtrack was built without its preload libraries: `run` needs Linux with glibc, and \
                   memtrack-cli's feature `run`, which is a default";
        return Err(CliError::Program(126, why.to_owned()));
    }
    let mut last_error = None;
    for folder in folders() {
        let paths = with_heap.then(|| install(&folder, &HEAP)).into_iter();
        let paths: io::Result<Vec<PathBuf>> = paths.chain([install(&folder, &HOOKS)]).collect();
        match paths.and_then(|paths| paths.iter().map(|path| glibc_only_path(path)).collect()) {
            Ok(paths) => return Ok(paths),
            Err(error) => last_error = Some(CliError::output(&folder, error)),
        }
    }
    Err(last_error.unwrap_or_else(|| {
        let why = "no folder for the preload library: set XDG_CACHE_HOME to one without spaces or colons in its path";
        CliError::Io(why.to_owned())
    }))
}

/// Returns the folders to try for the libraries, the preferred one first. Their paths contain no spaces or colons, which
/// separate paths in `LD_PRELOAD`.
fn folders() -> impl Iterator<Item = PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let own = cache.map(|cache| cache.join("memtrack"));
    // A program that root starts can switch to another user and start further programs. The loader preloads the libraries into
    // those too, so a folder that only root can reach is tried last.
    let (own, last) = match own {
        Some(own) if rustix::process::getuid().is_root() && !is_open_to_others(&own) => (None, Some(own)),
        own => (own, None),
    };
    let temporary = env::temp_dir().join(format!("memtrack-{}", rustix::process::getuid().as_raw()));
    let nameable =
        |path: &PathBuf| !path.as_os_str().as_bytes().iter().any(|byte| b" \t\n:;$".contains(byte));
    own.into_iter().chain([temporary]).chain(last).filter(nameable)
}

/// Returns whether other users can reach a folder. Folders on its path that do not exist yet count as reachable.
fn is_open_to_others(folder: &Path) -> bool {
    let is_open = |folder: &Path| fs::metadata(folder).map_or(true, |data| data.mode() & 0o001 != 0);
    folder.ancestors().all(is_open)
}

/// The values that `$LIB` has with glibc: each distribution uses one of these.
const LIB_VALUES: [&str; 3] = ["lib", "lib64", concat!("lib/", env!("MEMTRACK_MULTIARCH"))];

/// The name of an empty file, which shows whether the loader replaces `$LIB`.
const PROBE: &str = "probe";

/// Returns a path that leads to the library in programs with glibc, and to no file in others.
fn glibc_only_path(library: &Path) -> io::Result<PathBuf> {
    let (Some(folder), Some(file)) = (library.parent(), library.file_name()) else {
        return Ok(library.to_owned());
    };
    // Create a link for each value, because a program can come with another distribution's loader.
    for name in LIB_VALUES {
        let mut at = folder.to_owned();
        for part in Path::new(name) {
            at.push(part);
            ensure_private_folder(&at)?;
        }
        match symlink(library, at.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if !at.join(PROBE).exists() {
            fs::write(at.join(PROBE), "")?;
        }
    }
    let everywhere = folder.join("$LIB");
    Ok(if loader_finds(&everywhere.join(PROBE)) { everywhere.join(file) } else { library.to_owned() })
}

/// Returns whether this command's loader finds the empty file `probe`. If so, the loader reports that the file is too
/// short.
fn loader_finds(probe: &Path) -> bool {
    let Ok(path) = CString::new(probe.as_os_str().as_bytes()) else { return false };
    // SAFETY: the argument is a C string, and an empty file runs no code. The loader's message stays valid until this thread
    // calls the loader again.
    let message = unsafe {
        libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
        let message = libc::dlerror();
        if message.is_null() {
            return false;
        }
        CStr::from_ptr(message).to_bytes()
    };
    message.ends_with(b"file too short")
}

/// Ensures that the folder exists, that others can read it, and that no other user can write to it.
fn ensure_private_folder(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // A file that others can write to must not be loaded into the user's programs.
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != rustix::process::getuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(io::Error::other("it belongs to another user, or others can write to it"));
    }
    if found.mode() & 0o055 != 0o055 {
        // The umask, or an earlier version of memtrack, has denied others access.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Returns the names of the libraries' files.
pub(crate) fn file_names() -> Vec<String> {
    [&HOOKS, &HEAP].map(Library::file_name).into()
}

fn install(folder: &Path, library: &Library) -> io::Result<PathBuf> {
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    ensure_private_folder(folder)?;
    let path = folder.join(library.file_name());
    // The file is not read again, which would take a millisecond: its name contains the checksum of its content, it appeared
    // complete, and no other user can write to the folder.
    if fs::symlink_metadata(&path)
        .is_ok_and(|there| there.is_file() && there.len() == library.content.len() as u64)
    {
        return Ok(path);
    }
    let mut file = ReplacingFile::create(&path)?;
    file.write_all(library.content)?;
    file.commit()?;
    Ok(path)
}
