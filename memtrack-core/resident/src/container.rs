//! What a process's container, a memory cgroup, is charged for: versions 1 and 2 of Linux's control groups.

use memtrack_model::snapshot::Charged;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Where the control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Returns what the container of a process (`/proc/PID`) is charged for; `None` if there is no container with numbers, or they
/// cannot be read. In the outermost control group there are none.
pub fn charged(process: &Path) -> Option<Charged> {
    charged_in(&read_to_string(process.join("cgroup")).ok()?, Path::new(MOUNT))
}

fn charged_in(groups: &str, mount: &Path) -> Option<Charged> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        match controllers {
            "" => {
                // Beside version 1, version 2 may be mounted without memory.
                let group = Group { mount: mount.to_owned(), path, limit: "memory.max" };
                let stat = group.read("memory.stat")?;
                let stat = |name| number_of(&stat, name);
                let shared_bytes = stat("shmem").unwrap_or(0);
                Some(Charged {
                    bytes: group.number("memory.current")?,
                    limit_bytes: group.lowest_limit(),
                    anonymous_bytes: stat("anon")?,
                    file_bytes: stat("file")?.saturating_sub(shared_bytes),
                    shared_bytes,
                    kernel_bytes: stat("kernel"),
                })
            }
            _ if controllers.split(',').any(|name| name == "memory") => {
                let group = Group { mount: mount.join("memory"), path, limit: "memory.limit_in_bytes" };
                let stat = group.read("memory.stat")?;
                let stat = |name| number_of(&stat, name);
                let shared_bytes = stat("total_shmem").unwrap_or(0);
                Some(Charged {
                    bytes: group.number("memory.usage_in_bytes")?,
                    limit_bytes: group.lowest_limit(),
                    anonymous_bytes: stat("total_rss")?,
                    file_bytes: stat("total_cache")?.saturating_sub(shared_bytes),
                    shared_bytes,
                    kernel_bytes: group.number("memory.kmem.usage_in_bytes"),
                })
            }
            _ => None,
        }
    })
}

/// A control group.
struct Group<'a> {
    mount: PathBuf,
    path: &'a str,
    /// The file with the limit.
    limit: &'static str,
}

impl Group<'_> {
    /// Returns the folders of the group and of those around it, innermost first. In a container that sees its own group as the
    /// outermost one, the path may not exist, and the mount is the group.
    fn folders(&self) -> impl Iterator<Item = PathBuf> {
        let inside = self.mount.join(self.path.trim_start_matches('/'));
        let start = if inside.is_dir() { inside } else { self.mount.clone() };
        let mount = self.mount.clone();
        std::iter::successors(Some(start), |folder| folder.parent().map(Path::to_owned))
            .take_while(move |folder| folder.starts_with(&mount))
    }

    fn read(&self, name: &str) -> Option<String> {
        read_to_string(self.folders().next()?.join(name)).ok()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.read(name)?.trim().parse().ok()
    }

    fn lowest_limit(&self) -> Option<u64> {
        /// Version 1 has no word for "no limit", but the largest number of pages.
        const UNLIMITED: u64 = 1 << 60;
        let limits = self.folders().filter_map(|folder| read_to_string(folder.join(self.limit)).ok());
        limits.filter_map(|text| text.trim().parse().ok()).filter(|&limit| limit < UNLIMITED).min()
    }
}

/// Returns the number in the line `NAME NUMBER`.
fn number_of(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(folder).unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("memtrack-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn version_2_has_the_lowest_limit_of_the_groups_around() {
        let mount = folder("cgroup-2");
        let stat = "anon 100\nfile 50\nkernel 30\nshmem 20\n";
        write(
            &mount.join("a/b"),
            &[("memory.current", "180\n"), ("memory.max", "max\n"), ("memory.stat", stat)],
        );
        write(&mount.join("a"), &[("memory.max", "1000\n")]);
        let charged = charged_in("4:cpu:/x\n0::/a/b\n", &mount).unwrap();
        let expected = Charged {
            bytes: 180,
            limit_bytes: Some(1000),
            anonymous_bytes: 100,
            file_bytes: 30,
            shared_bytes: 20,
            kernel_bytes: Some(30),
        };
        assert_eq!(charged, expected);
        std::fs::remove_dir_all(mount).unwrap();
    }

    #[test]
    fn version_1_is_read_beside_an_empty_version_2() {
        let mount = folder("cgroup-1");
        let stat = "rss 1\ntotal_cache 60\ntotal_rss 100\ntotal_shmem 10\n";
        let files = [("memory.usage_in_bytes", "170\n"), ("memory.limit_in_bytes", "9223372036854771712\n")];
        write(&mount.join("memory/job"), &files);
        write(&mount.join("memory/job"), &[("memory.stat", stat)]);
        let charged = charged_in("9:cpu,memory:/job\n0::/\n", &mount).unwrap();
        let expected = Charged {
            bytes: 170,
            anonymous_bytes: 100,
            file_bytes: 50,
            shared_bytes: 10,
            ..Charged::default()
        };
        assert_eq!(charged, expected);
        std::fs::remove_dir_all(mount).unwrap();
    }

    #[test]
    fn without_numbers_nothing_is_known() {
        assert_eq!(charged_in("0::/\n", Path::new("/nowhere")), None);
        assert_eq!(charged_in("", Path::new("/nowhere")), None);
    }
}
