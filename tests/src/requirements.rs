//! What some tests need, and not every machine has. The build script looks for it, because libtest cannot ignore a test that
//! runs already: a test that needs one of these says so to the compiler, `#[cfg_attr(not(real_snapshots), ignore = "needs …")]`.
//! It then counts as ignored where there is nothing to compare with.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What there is: the name of the `cfg` that the build script sets for it, and the file that shows that it is there (an empty
/// path where no file does).
pub fn look(workspace: &Path) -> [(&'static str, Option<PathBuf>); 9] {
    // One file of the folder, not the folder: cargo would look at all of them before every build.
    let real = workspace.join("../shared/oracle/snapshots/real/origins.json");
    [
        ("real_snapshots", real.is_file().then_some(real)),
        ("python3", tool("python3")),
        ("node", tool("node")),
        ("bash", tool("bash")),
        ("git", tool("git")),
        ("perl", tool("perl")),
        ("aarch64_assembler", tool("aarch64-linux-gnu-as")),
        ("musl_gcc", tool("musl-gcc")),
        ("programs_with_rights", can_give_rights().then(PathBuf::new)),
    ]
}

/// Whether this process can make a program that has more rights than who starts it, and start it as another user: as root
/// with all of root's rights, in a temporary folder whose file system gives rights to programs.
///
/// Who built the tests may not be who runs them: such a test looks again.
pub fn can_give_rights() -> bool {
    // Changing owners, groups and users.
    const NEEDED: u64 = 1 | 1 << 6 | 1 << 7;
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let rights = value("CapEff:").and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let may = rights.is_some_and(|rights| rights & NEEDED == NEEDED)
        && value("NoNewPrivs:").is_none_or(|text| text.trim() == "0");
    let Ok(mounts) = fs::read_to_string("/proc/self/mounts") else { return false };
    let Ok(folder) = env::temp_dir().canonicalize() else { return false };
    // The innermost file system that the folder lies in; of two at one place the last.
    let mut at = (0, "");
    for mount in mounts.lines() {
        let mut words = mount.split(' ').skip(1);
        let (Some(place), Some(_), Some(options)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if folder.starts_with(place) && place.len() >= at.0 {
            at = (place.len(), options);
        }
    }
    may && !at.1.split(',').any(|option| option == "nosuid")
}

/// Where a tool is that can be run: there are some that only say that they are not installed.
fn tool(name: &str) -> Option<PathBuf> {
    let mut command = Command::new(name);
    let status = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.ok().filter(|status| status.success())?;
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}
