//! The preload libraries as files that the loader can find. They are embedded in the command and lie in the user's cache
//! folder under names that hold their contents' checksums: they stay there, because children of the program may outlive
//! the command.
//!
//! Their path has the loader's token `$LIB` in it, which only glibc replaces, by the name of the folder that libraries lie
//! in. To musl's loader it is a folder that is not there, so it leaves the libraries out; it would load them otherwise,
//! miss what only glibc has, and end the program.
#![allow(unsafe_code)]

use crate::error::CliError;
use memtrack_core::__ReplacingFile as ReplacingFile;
use std::ffi::{CStr, CString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));
/// The library that redirects the program's heap to the other one.
static HEAP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload_heap.so"));

/// Returns the libraries' paths in the order in which they are to be loaded.
///
/// # Errors
/// Fails when this command was built without the libraries, or no folder takes them.
pub(crate) fn installed(with_heap: bool) -> Result<Vec<PathBuf>, CliError> {
    if LIBRARY.is_empty() || HEAP.is_empty() {
        let why = "this memtrack was built without its preload libraries: `run` needs Linux with glibc, and \
                   memtrack-cli's feature `run`, which is a default";
        return Err(CliError::Program(126, why.to_owned()));
    }
    let mut refused = None;
    for folder in folders() {
        let paths = with_heap.then(|| install(&folder, "heap", HEAP)).into_iter();
        let paths: io::Result<Vec<PathBuf>> = paths.chain([install(&folder, "preload", LIBRARY)]).collect();
        match paths.and_then(|paths| paths.iter().map(|path| glibcs_only(path)).collect()) {
            Ok(paths) => return Ok(paths),
            Err(error) => refused = Some(CliError::output(&folder, error)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        let why = "no folder for the preload library: set XDG_CACHE_HOME to one without spaces or colons in its path";
        CliError::Io(why.to_owned())
    }))
}

/// Returns where it may lie. The loader's list of libraries is separated by spaces and colons.
fn folders() -> impl Iterator<Item = PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let own = cache.map(|cache| cache.join("memtrack"));
    let temporary = env::temp_dir().join(format!("memtrack-{}", rustix::process::getuid().as_raw()));
    let nameable =
        |path: &PathBuf| !path.as_os_str().as_bytes().iter().any(|byte| b" \t\n:;$".contains(byte));
    own.into_iter().chain([temporary]).filter(nameable)
}

/// The values of `$LIB` in loaders of glibc's: distributions choose one of these.
const USUAL: [&str; 3] = ["lib", "lib64", concat!("lib/", env!("MEMTRACK_MULTIARCH"))];

/// A file that is no library.
const PROBE: &str = "probe";

/// Returns a path of the library that leads to it in programs with glibc, and nowhere in others.
fn glibcs_only(library: &Path) -> io::Result<PathBuf> {
    let (Some(folder), Some(file)) = (library.parent(), library.file_name()) else {
        return Ok(library.to_owned());
    };
    // All of them: programs may bring a loader of another distribution.
    for name in USUAL {
        let mut at = folder.to_owned();
        for part in Path::new(name) {
            at.push(part);
            own_folder(&at)?;
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
    Ok(if leads_somewhere(&everywhere.join(PROBE)) { everywhere.join(file) } else { library.to_owned() })
}

/// Returns whether this command's loader finds the file, which it refuses then, since it is empty.
fn leads_somewhere(probe: &Path) -> bool {
    let Ok(path) = CString::new(probe.as_os_str().as_bytes()) else { return false };
    // SAFETY: a C string of a file that cannot be loaded. The loader's text is the thread's until the next request.
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

/// Ensures that there is a folder that no other user can write to.
fn own_folder(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // A file that others can write to must not be loaded into the user's programs.
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != rustix::process::getuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(io::Error::other("it belongs to another user, or others can write to it"));
    }
    Ok(())
}

fn install(folder: &Path, name: &str, library: &[u8]) -> io::Result<PathBuf> {
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    own_folder(folder)?;
    let path = folder.join(format!("{name}-{:08x}.so", crc32fast::hash(library)));
    if fs::read(&path).is_ok_and(|there| there == library) {
        return Ok(path);
    }
    let mut file = ReplacingFile::create(&path)?;
    file.write_all(library)?;
    file.commit()?;
    Ok(path)
}
