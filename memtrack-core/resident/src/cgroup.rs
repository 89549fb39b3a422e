//! The memory in use and the limits of a process's control group (a container's), and of the groups around it, as far as they
//! are visible: those of version 2, and those of version 1.

use memtrack_model::snapshot::Charged;
use std::fs;
use std::path::{Path, PathBuf};

/// Limits of at least this many bytes are none: version 1 writes the largest number of pages.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// A control group with a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    folder: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Version {
    /// Returns the names of the files with the bytes in use, with the limits, and of the row of `memory.stat` with file pages
    /// that can be dropped.
    fn names(self) -> (&'static str, &'static [&'static str], &'static str) {
        match self {
            Self::V1 => ("memory.usage_in_bytes", &["memory.limit_in_bytes"], "total_inactive_file"),
            Self::V2 => ("memory.current", &["memory.max", "memory.high"], "inactive_file"),
        }
    }
}

/// The bytes in use of a group, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The bytes in use without the pages of files that have not been used lately: the kernel drops these first.
    pub bytes: u64,
    /// The lower one of the limit above which the kernel ends processes and the one above which it slows them down.
    pub limit_bytes: u64,
}

impl Usage {
    /// Returns the bytes in use as a share of the limit.
    pub fn share(&self) -> f64 {
        self.bytes as f64 / self.limit_bytes as f64
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the number in the row `name` of a file with rows `NAME NUMBER`.
pub fn row(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let mut rows = text.lines().filter_map(|line| line.split_once(' '));
    rows.find(|(found, _)| *found == name).and_then(|(_, number)| number.trim().parse().ok())
}

impl Group {
    /// Reads the group's usage; `None` if it has no limit, or if a file cannot be read.
    pub fn usage(&self) -> Option<Usage> {
        let (used, limits, inactive) = self.version.names();
        let limits = limits.iter().filter_map(|name| number(&self.folder.join(name)));
        let limit_bytes = limits.filter(|&limit| limit > 0 && limit < NO_LIMIT_BYTES).min()?;
        let used = number(&self.folder.join(used))?;
        let inactive = row(&self.folder.join("memory.stat"), inactive).unwrap_or(0);
        Some(Usage { bytes: used.saturating_sub(inactive), limit_bytes })
    }

    /// Returns the limit above which the kernel ends processes of the group; `None` if there is none.
    fn hard_limit(&self) -> Option<u64> {
        let limit = number(&self.folder.join(self.version.names().1[0]))?;
        Some(limit).filter(|&limit| limit < NO_LIMIT_BYTES)
    }

    /// Returns what the group is charged for, without its limit; `None` if that cannot be read.
    fn charged(&self) -> Option<Charged> {
        let stat = |name| row(&self.folder.join("memory.stat"), name);
        let (anonymous, file, shared) = match self.version {
            Version::V1 => ("total_rss", "total_cache", "total_shmem"),
            Version::V2 => ("anon", "file", "shmem"),
        };
        let shared_bytes = stat(shared).unwrap_or(0);
        let kernel_bytes = match self.version {
            Version::V1 => number(&self.folder.join("memory.kmem.usage_in_bytes")),
            Version::V2 => stat("kernel"),
        };
        Some(Charged {
            bytes: number(&self.folder.join(self.version.names().0))?,
            limit_bytes: None,
            anonymous_bytes: stat(anonymous)?,
            file_bytes: stat(file)?.saturating_sub(shared_bytes),
            shared_bytes,
            kernel_bytes,
        })
    }

    /// Returns the group's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns how often the group has reached a limit, or run out of memory, since it exists; `None` if that cannot be read.
    pub fn limit_events(&self) -> Option<u64> {
        match self.version {
            Version::V1 => number(&self.folder.join("memory.failcnt")),
            Version::V2 => {
                let path = self.folder.join("memory.events");
                let counts = ["high", "max", "oom", "oom_kill"].map(|name| row(&path, name));
                counts.iter().any(Option::is_some).then(|| counts.iter().flatten().sum())
            }
        }
    }
}

/// Returns what the container of a process (`/proc/PID` or `/proc/self`) is charged for: the innermost group that accounts for
/// memory, with the lowest limit of the groups around it. `None` if there is none, or its numbers cannot be read; the outermost
/// group has none.
pub fn charged(process: &Path) -> Option<Charged> {
    let groups = groups_of(process, Path::new("/"));
    let limit_bytes = groups.iter().filter_map(Group::hard_limit).min();
    Some(Charged { limit_bytes, ..groups.first()?.charged()? })
}

/// Returns the groups of this process that account for memory, the innermost first. `root` is the folder in which the system's
/// files are: `/`.
pub fn groups(root: &Path) -> Vec<Group> {
    groups_of(&root.join("proc/self"), root)
}

fn groups_of(process: &Path, root: &Path) -> Vec<Group> {
    let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
    // The mounts are those that this process sees, which may be others than those of the process.
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let memberships = read("cgroup");
    let mut groups = Vec::new();
    for (version, kind) in [(Version::V2, "cgroup2"), (Version::V1, "cgroup")] {
        let Some(group) = membership(&memberships, version) else { continue };
        let Some((mount_root, mount)) = mount_of(&mounts, kind) else { continue };
        // A group outside what is mounted is not visible: a container sees its own group as the mount's root.
        let inside = group.strip_prefix(mount_root.trim_end_matches('/')).unwrap_or("");
        let mount = root.join(mount.trim_start_matches('/'));
        let mut folder = mount.join(inside.trim_start_matches('/'));
        if !folder.is_dir() {
            folder.clone_from(&mount);
        }
        while folder.starts_with(&mount) {
            if folder.join(version.names().0).is_file() {
                groups.push(Group { folder: folder.clone(), version });
            }
            if !folder.pop() {
                break;
            }
        }
    }
    groups
}

/// Returns the path of the process's group: in `0::/PATH` for version 2, in `N:CONTROLLERS:/PATH` for version 1.
fn membership(text: &str, version: Version) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let fits = match version {
            Version::V1 => controllers.split(',').any(|name| name == "memory"),
            Version::V2 => controllers.is_empty(),
        };
        fits.then_some(path)
    })
}

/// Returns the root within the hierarchy, and the mount point, of the first mount of this kind (for version 1, with the
/// memory controller).
fn mount_of<'a>(mounts: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    mounts.lines().find_map(|line| {
        let (place, details) = line.split_once(" - ")?;
        let mut details = details.split(' ');
        let (found, options) = (details.next()?, details.nth(1).unwrap_or(""));
        let fits = found == kind && (kind == "cgroup2" || options.split(',').any(|name| name == "memory"));
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        fits.then_some((root, point))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_limits_of_version_2_are_those_of_the_group_and_the_groups_around_it() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("proc/self/cgroup", "0::/pod/app\n"),
                (
                    "proc/self/mountinfo",
                    "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
                ),
                ("sys/fs/cgroup/cgroup.procs", ""),
                ("sys/fs/cgroup/pod/memory.current", "900\n"),
                ("sys/fs/cgroup/pod/memory.max", "1000\n"),
                ("sys/fs/cgroup/pod/memory.high", "max\n"),
                ("sys/fs/cgroup/pod/app/memory.current", "700\n"),
                ("sys/fs/cgroup/pod/app/memory.max", "max\n"),
                ("sys/fs/cgroup/pod/app/memory.high", "800\n"),
                ("sys/fs/cgroup/pod/app/memory.stat", "anon 500\nfile 150\ninactive_file 100\n"),
                ("sys/fs/cgroup/pod/app/memory.events", "low 9\nhigh 1\nmax 2\noom 3\noom_kill 0\n"),
            ],
        );
        let groups = groups(root.path());
        let usages: Vec<_> = groups.iter().map(Group::usage).collect();
        let usage = |bytes, limit_bytes| Some(Usage { bytes, limit_bytes });
        assert_eq!(usages, [usage(600, 800), usage(900, 1000)]);
        assert_eq!((groups[0].limit_events(), groups[1].limit_events()), (Some(6), None));
        assert_eq!((groups[0].hard_limit(), groups[1].hard_limit()), (None, Some(1000)));
        let stat = "anon 500\nfile 150\ninactive_file 100\nshmem 20\nkernel 30\n";
        write(root.path(), &[("sys/fs/cgroup/pod/app/memory.stat", stat)]);
        let charged = Charged {
            bytes: 700,
            limit_bytes: None,
            anonymous_bytes: 500,
            file_bytes: 130,
            shared_bytes: 20,
            kernel_bytes: Some(30),
        };
        assert_eq!(groups[0].charged(), Some(charged));
    }

    #[test]
    fn a_container_of_version_1_sees_its_group_as_the_root_of_the_mount() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("proc/self/cgroup", "9:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n"),
                (
                    "proc/self/mountinfo",
                    "31 30 0:27 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n\
                     32 30 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
                ),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "500\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
                (
                    "sys/fs/cgroup/memory/memory.stat",
                    "inactive_file 1\ntotal_inactive_file 50\ntotal_rss 300\ntotal_cache 90\ntotal_shmem 10\n",
                ),
                ("sys/fs/cgroup/memory/memory.failcnt", "7\n"),
            ],
        );
        let [group] = &groups(root.path())[..] else { panic!("one group") };
        assert_eq!(group.usage(), Some(Usage { bytes: 450, limit_bytes: 1000 }));
        assert_eq!((group.limit_events(), group.hard_limit()), (Some(7), Some(1000)));
        let charged = Charged {
            bytes: 500,
            anonymous_bytes: 300,
            file_bytes: 80,
            shared_bytes: 10,
            ..Charged::default()
        };
        assert_eq!(group.charged(), Some(charged));
        write(root.path(), &[("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")]);
        assert_eq!(group.usage(), None, "that is no limit");
    }

    #[test]
    fn a_system_without_control_groups_has_none() {
        assert_eq!(groups(tempfile::tempdir().unwrap().path()), []);
    }
}
