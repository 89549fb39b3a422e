//! The preload libraries as files that the loader can find. They are embedded in the command and lie in the user's cache
//! folder under names that hold their contents' checksums: they stay there, because children of the program may outlive
//! the command.

use crate::error::CliError;
use memtrack_core::ReplacingFile;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));
/// What has the program's heap go through the other one.
static HEAP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload_heap.so"));

/// What to say of the library, if something is wrong with it: in a released command, that it was not optimised. Cargo
/// does not optimise build-dependencies, and where the command is installed without its workspace, nothing tells it to.
pub(crate) fn shortcoming() -> Option<&'static str> {
    (cfg!(unoptimised_preload) && !cfg!(debug_assertions)).then_some(
        "this memtrack's recorder was built without optimisation, so recording takes several times as long; install \
         it again with CARGO_PROFILE_RELEASE_BUILD_OVERRIDE_OPT_LEVEL=3 in the environment",
    )
}

/// The libraries' paths in the order in which they are to be loaded.
///
/// # Errors
/// When this command was built without the libraries, or no folder takes them.
pub(crate) fn installed(with_heap: bool) -> Result<Vec<PathBuf>, CliError> {
    if LIBRARY.is_empty() || HEAP.is_empty() {
        let why = "this memtrack was built without its preload library: `run` needs Linux with glibc";
        return Err(CliError::Program(126, why.to_owned()));
    }
    let mut refused = None;
    for folder in folders() {
        let paths = with_heap.then(|| install(&folder, "heap", HEAP)).into_iter();
        match paths.chain([install(&folder, "preload", LIBRARY)]).collect() {
            Ok(paths) => return Ok(paths),
            Err(error) => refused = Some(CliError::output(&folder, error)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        let why = "no folder for the preload library: set XDG_CACHE_HOME to one without spaces or colons in its path";
        CliError::Io(why.to_owned())
    }))
}

/// Where it may lie. The loader's list of libraries is separated by spaces and colons.
fn folders() -> impl Iterator<Item = PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let own = cache.map(|cache| cache.join("memtrack"));
    let temporary = env::temp_dir().join(format!("memtrack-{}", rustix::process::getuid().as_raw()));
    let nameable =
        |path: &PathBuf| !path.as_os_str().as_bytes().iter().any(|byte| b" \t\n:;$".contains(byte));
    own.into_iter().chain([temporary]).filter(nameable)
}

fn install(folder: &Path, name: &str, library: &[u8]) -> io::Result<PathBuf> {
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // What others can write to must not be loaded into the user's programs.
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != rustix::process::getuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(io::Error::other("it belongs to another user, or others can write to it"));
    }
    let path = folder.join(format!("{name}-{:08x}.so", crc32fast::hash(library)));
    if fs::read(&path).is_ok_and(|there| there == library) {
        return Ok(path);
    }
    let mut file = ReplacingFile::create(&path)?;
    file.write_all(library)?;
    file.commit()?;
    Ok(path)
}
