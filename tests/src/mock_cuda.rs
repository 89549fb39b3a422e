//! Places the mock CUDA driver and the mock NVML where a program finds them.

use crate::child::{self, TestOutput};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The files of the mock libraries, each with the names under which programs open the library. Both names of the driver are
/// needed: cudarc tries `libcuda.so` first, so with only `libcuda.so.1` in the folder, it would find a real driver on the
/// machine.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("libmemtrack_mock_cuda.so", &["libcuda.so.1", "libcuda.so"]),
    ("libmemtrack_mock_nvml.so", &["libnvidia-ml.so.1", "libnvidia-ml.so"]),
];

/// Makes a temporary folder with the mock driver as `libcuda.so.1` and `libcuda.so`, and the mock NVML.
///
/// # Panics
/// When the mock is not next to the running test, where cargo puts it as a dependency, or cannot be linked to.
pub fn driver_dir() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (file, names) in LIBRARIES {
        let library = beside_the_test(file);
        for name in *names {
            std::os::unix::fs::symlink(&library, folder.path().join(name))
                .expect("the mock can be linked to");
        }
    }
    folder
}

/// Returns a command whose program finds the drivers in a folder before any others.
pub fn with_driver(program: impl AsRef<std::ffi::OsStr>, driver: &Path) -> Command {
    let mut command = Command::new(program);
    find_driver(&mut command, driver);
    command
}

/// Makes a command's program find the drivers in a folder before any others.
pub fn find_driver<'a>(command: &'a mut Command, driver: &Path) -> &'a mut Command {
    let mut path = driver.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(others);
    }
    command.env("LD_LIBRARY_PATH", path)
}

/// Returns the path of a library that cargo built for this test, by its file name.
///
/// # Panics
/// When the library is not a dependency of the test.
pub fn beside_the_test(file: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of the running test");
    // Tests and benches are in PROFILE/deps, examples in PROFILE/examples, programs in PROFILE.
    let folders = test.ancestors().skip(1).take(2);
    let found = folders
        .flat_map(|folder| [folder.join(file), folder.join("deps").join(file)])
        .find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{file} is not beside {}: is it a dependency?", test.display()))
}

/// Runs an ignored test of the running program in a child process that finds the mock driver, and returns its output.
///
/// # Panics
/// When it fails.
pub fn run_ignored_test(test: impl Fn(), settings: &[(&str, &str)]) -> TestOutput {
    let drivers = driver_dir();
    let mut command = child::this_program(test);
    let output = find_driver(&mut command, drivers.path()).envs(settings.iter().copied()).output();
    let output = output.expect("the test can be run");
    child::assert_passed(&output)
}
