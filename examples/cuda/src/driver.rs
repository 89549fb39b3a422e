//! Opens the CUDA driver of this machine or, if there is none, the mock that was built next to the program, so that the
//! CUDA examples run everywhere.
#![allow(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use libloading::Library;

/// The driver that the program uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The machine's CUDA driver.
    Real,
    /// The mock at this path: its memory is host memory, and its kernels do nothing.
    Mock(PathBuf),
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real => f.write_str("the machine's CUDA driver"),
            Self::Mock(_) => f.write_str("the mock CUDA driver (this machine has none)"),
        }
    }
}

/// Opens the driver for the rest of the program. The mock has the driver's soname, so that a later search for `libcuda.so.1`
/// finds it.
///
/// # Errors
/// If there is no driver, and the mock is not next to the program, where cargo puts it.
pub fn open() -> Result<Driver, Box<dyn Error>> {
    if open_library("libcuda.so.1".into()).is_ok() {
        return Ok(Driver::Real);
    }
    let program = std::env::current_exe()?;
    let folder = program.parent().ok_or("the program is in no folder")?;
    let name = "libmemtrack_mock_cuda.so";
    let mock = [folder.join("deps").join(name), folder.join(name)].into_iter().find(|path| path.exists());
    let mock = mock.ok_or_else(|| format!("no CUDA driver, and no {name} beside {}", program.display()))?;
    open_library(mock.clone())?;
    Ok(Driver::Mock(mock))
}

fn open_library(path: PathBuf) -> Result<(), libloading::Error> {
    // SAFETY: every CUDA program runs the driver's initialisers, and the mock has none.
    let library = unsafe { Library::new(path) }?;
    // Never closed: a later search by soname finds only loaded libraries.
    std::mem::forget(library);
    Ok(())
}
