//! Dumps that memtrack's threads write: on a signal, and when memory runs low.

use memtrack_core::recorder::Options;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_core::{__Surroundings, __dump_at, Pressure, dump_at, dump_on_signal};
use memtrack_tests::time::wait_for;
use std::fs;
use std::hint::black_box;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

fn start() {
    memtrack_core::start_monitor_with(&Options::new().exact()).unwrap();
}

/// Returns the sizes of the blocks of more than a MiB in a dump; `None` if it is not there (yet, or because it is just being
/// renamed).
fn blocks_in(path: &Path) -> Option<Vec<u64>> {
    let snapshot = Snapshot::open(path, LoadOptions::default()).ok()?.snapshot;
    Some(snapshot.blocks.iter().map(|block| block.size_bytes).filter(|&bytes| bytes >= 1 << 20).collect())
}

fn large_blocks(path: &Path) -> Vec<u64> {
    blocks_in(path).expect("the dump is there")
}

fn raise() {
    // SAFETY: a system call without pointers.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
}

/// Returns the path of the dump before `number` later ones.
fn earlier(path: &Path, number: u32) -> PathBuf {
    path.with_extension(format!("{number}.memtrack"))
}

/// Writes six dumps on signals, of which four are kept; each has one block more than the one before.
pub fn on_signal(path: &str) {
    let path = Path::new(path);
    let watch = dump_on_signal(path).unwrap();
    assert_eq!(dump_on_signal(path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    start();
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    for number in 1..=6 {
        blocks.push(black_box(Vec::with_capacity(2 << 20)));
        raise();
        wait_for("the dump is written", || blocks_in(path).is_some_and(|blocks| blocks.len() == number));
    }
    for number in 1..4 {
        assert_eq!(large_blocks(&earlier(path, number)).len(), 6 - number as usize);
    }
    // SAFETY: the child calls only functions that are allowed after a fork of a process with threads.
    unsafe {
        match libc::fork() {
            0 => {
                // It has no such thread, and the signal does not end it.
                libc::raise(libc::SIGUSR2);
                // Once the parent's watch is gone, it can have one of its own.
                drop(watch);
                let own = dump_on_signal(path.with_file_name("child.memtrack"));
                libc::_exit(if own.is_ok() { 7 } else { 1 });
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
            }
        }
    }
    drop(watch);
    // It can begin again, also for another path.
    let other = path.with_file_name("other.pickle.gz");
    let watch = dump_on_signal(&other).unwrap();
    raise();
    wait_for("the dump is written", || other.is_file());
    drop(watch);
    drop(memtrack_core::stop());
}

/// Handles or ignores SIGUSR2 first: memtrack must not.
pub fn on_signal_refused(path: &str) {
    extern "C" fn handler(_signal: libc::c_int) {}
    let handler = handler as *const () as libc::sighandler_t;
    for (disposition, verb) in [(handler, "handles"), (libc::SIG_IGN, "ignores")] {
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGUSR2, disposition) };
        let error = dump_on_signal(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&format!("the program {verb} SIGUSR2")), "{error}");
        // SAFETY: as above.
        assert_eq!(unsafe { libc::signal(libc::SIGUSR2, libc::SIG_DFL) }, disposition, "it stays");
    }
    let watch = dump_on_signal(path).unwrap();
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGUSR2, handler) };
    drop(watch);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::signal(libc::SIGUSR2, libc::SIG_DFL) }, handler, "a later handler stays, too");
}

/// Watches the files of a container in `root`, which it changes.
pub fn at_pressure(root: &str, path: &str) {
    let (root, path) = (Path::new(root), Path::new(path));
    let group = root.join("sys/fs/cgroup/app");
    let write = |name: &str, text: &str| {
        // As the kernel's files, they are complete at any moment.
        let new = root.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, group.join(name)).unwrap();
    };
    fs::create_dir_all(&group).unwrap();
    fs::create_dir_all(root.join("proc/self")).unwrap();
    fs::write(root.join("proc/self/cgroup"), "0::/app\n").unwrap();
    let mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    fs::write(root.join("proc/self/mountinfo"), mount).unwrap();
    write("memory.max", "1000000000");
    write("memory.current", "100000000");
    write("memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n");
    start();
    let _block: Vec<u8> = black_box(Vec::with_capacity(2 << 20));
    let surroundings = __Surroundings {
        root: root.to_owned(),
        with_trigger: false,
        interval: Duration::from_millis(1),
        pause: Duration::ZERO,
    };
    let second = Duration::from_secs(1);
    let signs = [
        Pressure::Limit(0.9),
        Pressure::LimitEvents,
        Pressure::Stall(second),
        Pressure::ResidentBytes(1 << 40),
    ];
    let watch = __dump_at(signs, path, surroundings).unwrap();
    let watched: Vec<String> = watch.signs().iter().map(ToString::to_string).collect();
    assert!(
        watched[0].contains("90 % of the limit: 953.7 MiB in ") && watched[0].ends_with("/app"),
        "{watched:?}"
    );
    assert!(watched[1].ends_with("/app") && !watched[1].contains("not watched"), "{watched:?}");
    assert!(
        watched[2].ends_with("not watched: the kernel has no PSI (pressure stall information)"),
        "{watched:?}"
    );
    assert!(watched[3].contains("not watched: ") && watched[3].ends_with("cannot be read"), "{watched:?}");
    write("memory.current", "950000000");
    wait_for("the dump of the limit", || path.is_file());
    assert_eq!(large_blocks(path), [2 << 20]);
    // Once per rise: the second dump has another cause.
    write("memory.events", "low 0\nhigh 0\nmax 1\noom 0\noom_kill 0\n");
    wait_for("the dump of the event", || earlier(path, 1).is_file());
    // Falls and rises until a reading has seen both.
    wait_for("the dump of the second rise", || {
        for current in ["100000000", "960000000"] {
            write("memory.current", current);
            thread::sleep(Duration::from_millis(20));
        }
        earlier(path, 2).is_file()
    });
    drop(watch);
    drop(memtrack_core::stop());
}

/// Moves into a real control group with a limit of 256 MiB, and uses more than half of it.
pub fn in_a_group(group: &str, path: &str) {
    let path = Path::new(path);
    fs::write(Path::new(group).join("cgroup.procs"), std::process::id().to_string()).unwrap();
    start();
    let watch = dump_at(Pressure::Limit(0.5), path).unwrap();
    let sign = watch.signs()[0].to_string();
    assert!(sign.contains("256.0 MiB in ") && sign.contains(group), "{sign}");
    assert!(!path.exists());
    let block = black_box(vec![1_u8; 150 << 20]);
    wait_for("the dump is written", || path.is_file());
    assert_eq!(large_blocks(path), [150 << 20]);
    drop((watch, block));
    drop(memtrack_core::stop());
}

/// Sets a trigger in the real file of the kernel.
pub fn with_a_trigger(path: &str) {
    start();
    let watch = dump_at(Pressure::Stall(Duration::from_secs(2)), path).unwrap();
    let sign = watch.signs()[0].to_string();
    assert!(sign.ends_with("pressure/memory") || sign.ends_with("memory.pressure"), "{sign}");
    drop(watch);
    drop(memtrack_core::stop());
}

/// Passes what cannot be watched or written.
pub fn bad_input(folder: &str) {
    let folder = Path::new(folder);
    let path = folder.join("dump.memtrack");
    let error = |signs: Vec<Pressure>, path: &Path| dump_at(signs, path).unwrap_err();
    let none = error(Vec::new(), &path);
    assert_eq!((none.kind(), &*none.to_string()), (ErrorKind::InvalidInput, "no sign of pressure is given"));
    let share = error(vec![Pressure::Limit(90.0)], &path);
    assert!(share.to_string().contains("at most 1, not 90"), "{share}");
    let name = error(vec![Pressure::ResidentBytes(1)], &folder.join("dump.txt"));
    assert!(name.kind() == ErrorKind::InvalidInput && name.to_string().contains("dump.txt: "), "{name}");
    assert_eq!(dump_on_signal(folder.join("dump.txt")).unwrap_err().kind(), ErrorKind::InvalidInput);
    // No control group at all.
    let surroundings = __Surroundings { root: folder.to_owned(), ..Default::default() };
    let nothing = __dump_at([Pressure::Limit(0.9), Pressure::LimitEvents], &path, surroundings).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::Unsupported);
    let text = nothing.to_string();
    assert!(
        text.contains("no control group with a limit") && text.contains("; events of the limit: "),
        "{text}"
    );
    // The folder of the dump is missing: reported, and the program goes on.
    let messages = folder.join("messages");
    let file = fs::File::create(&messages).unwrap();
    // SAFETY: both descriptors are open, and nothing else uses stderr meanwhile.
    unsafe { libc::dup2(file.as_raw_fd(), libc::STDERR_FILENO) };
    start();
    let watch = dump_at(Pressure::ResidentBytes(1), folder.join("missing/dump.memtrack")).unwrap();
    wait_for("the message", || {
        let text = fs::read_to_string(&messages).unwrap();
        text.contains(" are resident; the dump could not be written: ")
            && text.contains("missing/dump.memtrack: No such")
    });
    drop(watch);
    drop(memtrack_core::stop());
    fs::remove_file(messages).unwrap();
}
