//! What some tests compare with, and not every machine has. The build script looks for it, because libtest cannot ignore
//! a test that runs already: a test that needs one of these says so to the compiler,
//! `#[cfg_attr(not(shared_oracle), ignore = "needs …")]`. It then counts as ignored where there is nothing to compare with.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What there is: the name of the `cfg` that the build script sets for it, and the file that shows that it is there.
pub fn look(workspace: &Path) -> [(&'static str, Option<PathBuf>); 5] {
    // The list of its files, not its folder: cargo would look at all thousand of them before every build.
    let data = workspace.join("../shared/oracle/MANIFEST.tsv");
    [
        ("shared_oracle", data.is_file().then_some(data)),
        ("python3", tool("python3")),
        ("bash", tool("bash")),
        ("aarch64_assembler", tool("aarch64-linux-gnu-as")),
        ("musl_gcc", tool("musl-gcc")),
    ]
}

/// Where a tool is that can be run: there are some that only say that they are not installed.
fn tool(name: &str) -> Option<PathBuf> {
    let mut command = Command::new(name);
    let status = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.ok().filter(|status| status.success())?;
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}
