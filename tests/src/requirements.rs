//! Requirements of tests that not every machine meets. The build script checks them, because libtest cannot ignore a test that is
//! already running: a test with a requirement has `#[cfg_attr(not(real_snapshots), ignore = "needs …")]`, and counts as ignored
//! where the requirement is not met.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns each requirement's `cfg` name and, if the requirement is met, the file that proves it (an empty path if no file
/// does).
pub fn look(workspace: &Path) -> [(&'static str, Option<PathBuf>); 16] {
    // This is one file in the folder, not the folder itself: cargo checks before every build whether the path has changed, and
    // for a folder it would check all files in it.
    let real = workspace.join("../shared/oracle/snapshots/real/origins.json");
    [
        ("real_snapshots", real.is_file().then_some(real)),
        ("python3", tool("python3")),
        ("node", tool("node")),
        ("bash", tool("bash")),
        ("git", tool("git")),
        ("perl", tool("perl")),
        ("go", tool_with("go", "version")),
        ("promtool", tool("promtool")),
        ("prometheus", tool("prometheus")),
        ("aarch64_assembler", tool("aarch64-linux-gnu-as")),
        ("musl_gcc", tool("musl-gcc")),
        ("jemalloc", library("libjemalloc.a")),
        ("bpftrace", tool("bpftrace").filter(|path| can_attach(path))),
        ("control_group", can_make_group().then(PathBuf::new)),
        ("pressure_trigger", can_set_trigger().then(PathBuf::new)),
        ("programs_with_rights", can_give_rights().then(PathBuf::new)),
    ]
}

/// Returns whether bpftrace can attach to programs: the kernel supports it, and this process has the right.
fn can_attach(bpftrace: &Path) -> bool {
    // bpftrace runs `BEGIN` by attaching to itself.
    let mut command = Command::new(bpftrace);
    let status =
        command.args(["-e", "BEGIN { exit(); }"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The folder in which a test makes a control group for memory.
pub const GROUPS: [&str; 2] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];

/// Returns whether this process can make a control group with a limit of memory.
fn can_make_group() -> bool {
    GROUPS.iter().any(|folder| {
        let group = Path::new(folder).join(format!("memtrack-probe-{}", std::process::id()));
        let limits = ["memory.limit_in_bytes", "memory.max"].map(|name| group.join(name));
        let made = fs::create_dir(&group).is_ok();
        let limited = made && limits.iter().any(|limit| fs::write(limit, "67108864").is_ok());
        made && fs::remove_dir(&group).is_ok() && limited
    })
}

/// Returns whether the kernel accepts a trigger for stalls of memory.
fn can_set_trigger() -> bool {
    let file = fs::File::options().read(true).write(true).open("/proc/pressure/memory");
    file.is_ok_and(|mut file| std::io::Write::write_all(&mut file, b"some 2000000 2000000\0").is_ok())
}

/// Returns whether this process can make a program with the set-user-ID or set-group-ID bit and start it as another user: as
/// root with the needed capabilities, in a temporary folder that is not mounted `nosuid`.
///
/// The tests may run as a different user from the one who built them, so a test with this requirement checks again.
pub fn can_give_rights() -> bool {
    // CAP_CHOWN, CAP_SETGID and CAP_SETUID.
    const NEEDED: u64 = 1 | 1 << 6 | 1 << 7;
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let capabilities = value("CapEff:").and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let may = capabilities.is_some_and(|capabilities| capabilities & NEEDED == NEEDED)
        && value("NoNewPrivs:").is_none_or(|text| text.trim() == "0");
    let Ok(mounts) = fs::read_to_string("/proc/self/mounts") else { return false };
    let Ok(folder) = env::temp_dir().canonicalize() else { return false };
    // The innermost mount that contains the folder; the last one if several have the same mount point.
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

/// Returns the path of a tool if it can be run: some files in `PATH` only report that the tool is not installed.
fn tool(name: &str) -> Option<PathBuf> {
    tool_with(name, "--version")
}

/// Returns the path of a tool if it can be run with this argument.
fn tool_with(name: &str, argument: &str) -> Option<PathBuf> {
    let mut command = Command::new(name);
    let status = command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.ok().filter(|status| status.success())?;
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Returns the path of a static library that the C compiler would link.
fn library(name: &str) -> Option<PathBuf> {
    let output = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    // A library that is not found is printed as it was passed.
    path.is_absolute().then_some(path).filter(|path| path.is_file())
}
