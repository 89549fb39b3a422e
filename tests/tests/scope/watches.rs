//! Cycle watches are notified when a root scope ends; memtrack's thread notifies them about values that threads share.

use memtrack_core::cycles::{self, NotScanned, Scan, Tracked, Watch, WatchOptions};
use memtrack_core::event::DeviceId;
use memtrack_core::references::{DeviceMemory, References, Visitor};
use memtrack_core::{scope, track_memory};
use memtrack_tests::child::{assert_passed, ends_well, this_program};
use memtrack_tests::time::HANG;
use memtrack_tests::{alone, requirements};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// An owner of 1 KiB of device memory at this address.
struct Buffer(u64);

impl Buffer {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed) as u64 * 1024)
    }
}

impl References for Buffer {
    fn references(&self, to: &mut Visitor<'_>) {
        to.memory(DeviceMemory { device: DeviceId(0), address: self.0, size_bytes: 1024 });
    }
}

#[derive(References)]
struct Layer {
    owner: RefCell<Option<Rc<Layer>>>,
    other: RefCell<Option<Rc<Layer>>>,
    buffer: Buffer,
}

fn layer() -> Rc<Layer> {
    let layer =
        Rc::new(Layer { owner: RefCell::default(), other: RefCell::default(), buffer: Buffer::new() });
    cycles::register(&layer);
    layer
}

/// Leaks this many layers, each of which owns itself.
fn leak(count: usize) {
    for _ in 0..count {
        let layer = layer();
        *layer.owner.borrow_mut() = Some(Rc::clone(&layer));
    }
}

/// Leaks a layer that owns itself through the field `other`, which is another kind of cycle.
fn leak_other_kind() {
    let layer = layer();
    *layer.other.borrow_mut() = Some(Rc::clone(&layer));
}

#[derive(References)]
struct Shared {
    owner: Mutex<Option<Arc<Shared>>>,
    buffer: Buffer,
}

fn leak_shared() {
    let shared = Arc::new(Shared { owner: Mutex::default(), buffer: Buffer::new() });
    cycles::register(&shared);
    *shared.owner.lock().unwrap() = Some(Arc::clone(&shared));
}

#[track_memory(root)]
fn step(work: impl FnOnce()) {
    work();
}

/// Returns a watch, and the number of findings that the watch was notified of.
fn counting() -> (Watch, Arc<AtomicUsize>) {
    let found = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&found);
    let watch = cycles::observe_cycles(move |observed| {
        assert!(!observed.new.is_empty() && observed.findings.leaks() > 0);
        count.fetch_add(observed.new.len(), Ordering::Relaxed);
    });
    (watch, found)
}

#[test]
fn a_kind_is_reported_once_and_again_at_ten_times_as_many() {
    alone!();
    let (_watch, found) = counting();
    let check = |leaks: &dyn Fn()| {
        leaks();
        let before = found.load(Ordering::Relaxed);
        let new = cycles::check();
        assert_eq!(found.load(Ordering::Relaxed) - before, new);
        new
    };
    assert_eq!(check(&|| ()), 0);
    assert_eq!(check(&|| leak(1)), 1);
    assert_eq!(check(&|| ()), 0);
    assert_eq!(check(&|| leak(8)), 0);
    assert_eq!(check(&|| leak(1)), 1, "ten");
    assert_eq!(check(&leak_other_kind), 1);
    assert_eq!(check(&|| leak(89)), 0);
    assert_eq!(check(&|| leak(1)), 1, "a hundred");
}

#[test]
fn only_the_end_of_a_root_scope_notifies_watches_while_nothing_is_monitored() {
    alone!();
    let (_watch, found) = counting();
    step(|| {
        {
            let _module = scope::module("block");
            leak(1);
        }
        assert_eq!(found.load(Ordering::Relaxed), 0);
    });
    assert_eq!(found.load(Ordering::Relaxed), 1);
}

#[test]
fn nothing_is_registered_before_the_first_watch() {
    alone!();
    let layer = layer();
    assert_eq!(Rc::weak_count(&layer), 0);
    step(|| leak(1));
    assert_eq!(cycles::find().unwrap_err(), NotScanned::Off);
    assert_eq!(cycles::check(), 0);
}

#[test]
fn nothing_is_reported_or_registered_after_the_last_watch() {
    alone!();
    let (first, found) = counting();
    let (second, _) = counting();
    leak(1);
    first.stop();
    assert_eq!(cycles::check(), 1, "the other one still watches");
    assert_eq!(found.load(Ordering::Relaxed), 0);
    second.stop();
    step(|| leak(1));
    assert_eq!((cycles::check(), cycles::find().unwrap_err()), (0, NotScanned::Off));
    // Registration that `enable` turned on continues after a watch stops.
    cycles::enable();
    counting().0.stop();
    leak(1);
    assert_eq!(cycles::find().unwrap().unreachable, 1);
}

#[test]
fn cycles_of_shared_values_are_found_by_memtracks_thread() {
    alone!();
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let _watch = cycles::observe_cycles(move |observed| {
        let thread = thread::current().name().unwrap_or_default().to_owned();
        let _ = sender.lock().unwrap().send((thread, observed.findings.leaked.known_bytes));
    });
    // The interval of the first watch is ten seconds. A shorter interval applies at once.
    let options = WatchOptions::new().shared_every(Duration::from_millis(20)).pages(0);
    let _warn = cycles::warn_device_cycles_with(options);
    thread::spawn(leak_shared).join().unwrap();
    let scan = receiver.recv_timeout(HANG).expect("a scan");
    assert_eq!(scan, ("memtrack-cycles".to_owned(), 1024));
}

#[test]
fn a_check_ignores_values_of_other_threads() {
    alone!();
    let (_watch, found) = counting();
    leak(1);
    thread::spawn(|| assert_eq!(cycles::check(), 0)).join().unwrap();
    assert_eq!(found.load(Ordering::Relaxed), 0);
    assert_eq!(cycles::check(), 1);
}

#[test]
fn a_callback_can_use_the_whole_api() {
    alone!();
    let watch = Arc::new(Mutex::new(None::<Watch>));
    let to_stop = Arc::clone(&watch);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    *watch.lock().unwrap() = Some(cycles::observe_cycles(move |observed| {
        count.fetch_add(1, Ordering::Relaxed);
        assert!(observed.report.to_string().contains(".owner → Layer"), "{}", observed.report);
        // The cycle has already been reported.
        assert_eq!(cycles::check(), 0);
        step(|| ());
        if let Some(watch) = to_stop.lock().unwrap().take() {
            watch.stop();
        }
    }));
    step(|| leak(1));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(cycles::find().unwrap_err(), NotScanned::Off);
}

#[test]
fn a_panicking_callback_is_reported_and_other_watches_are_notified() {
    let errors = assert_passed(&this_program(panics).output().unwrap()).errors;
    assert!(errors.contains("memtrack: a callback of observe_cycles panicked\n"), "{errors}");
}

#[test]
#[ignore = "is run by the test above"]
fn panics() {
    cycles::observe_cycles(|_| panic!("oh"));
    let (_watch, found) = counting();
    step(|| leak(1));
    assert_eq!(found.load(Ordering::Relaxed), 1);
}

#[test]
fn a_warning_names_the_reference_to_make_weak_and_a_saved_page() {
    let folder = tempfile::tempdir().unwrap();
    let errors = assert_passed(&this_program(warns).env(FOLDER, folder.path()).output().unwrap()).errors;
    let lines: Vec<&str> = errors.lines().filter(|line| !line.is_empty()).collect();
    let [first, see, second, second_see, third] = lines[..] else { panic!("{errors}") };
    assert_eq!(
        first,
        "memtrack: 1 cycle that nothing else holds keeps 1.0 KiB (1 device buffer) until the program ends: \
         Layer .owner → Layer; make that reference weak"
    );
    assert!(second.contains("Layer .other → Layer"), "{errors}");
    let pages: Vec<PathBuf> =
        [see, second_see].map(|line| line.strip_prefix("  see ").expect("a path").into()).into();
    for page in &pages {
        assert!(page.starts_with(folder.path()), "{errors}");
        let html = fs::read_to_string(page).unwrap();
        assert!(html.trim_end().ends_with("</html>") && html.contains("Layer"), "{}", page.display());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "two pages at most");
    assert!(third.starts_with("memtrack: 10 cycles that nothing else holds keep 10.0 KiB"), "{errors}");
}

const FOLDER: &str = "MEMTRACK_TESTS_FOLDER";

#[test]
#[ignore = "is run by the test above"]
fn warns() {
    let folder = std::env::var_os(FOLDER).expect("the test above sets it");
    cycles::warn_device_cycles_with(WatchOptions::new().folder(folder).pages(2));
    step(|| leak(1));
    step(|| ());
    leak_other_kind();
    cycles::check();
    leak(9);
    cycles::check();
}

#[test]
fn a_warning_reports_that_its_page_cannot_be_written() {
    let errors = assert_passed(&this_program(cannot_write).output().unwrap()).errors;
    assert!(errors.contains("Layer .owner → Layer") && errors.contains("\n  no page about it: "), "{errors}");
}

#[test]
#[ignore = "is run by the test above"]
fn cannot_write() {
    cycles::warn_device_cycles_with(WatchOptions::new().folder(Path::new("/no/such/folder")));
    step(|| leak(1));
}

#[test]
#[ignore = "is run by the test below"]
fn warns_in_any_folder() {
    cycles::warn_device_cycles();
    step(|| leak(1));
}

/// A program with more privileges than its caller must not let the caller choose where the program writes.
#[test]
#[cfg_attr(
    not(programs_with_rights),
    ignore = "needs root, and a temporary folder that gives rights to programs"
)]
fn a_setgid_program_writes_no_pages_to_a_folder_of_its_caller() {
    if !requirements::can_give_rights() {
        println!("skipped: the tests were built by root, and are not run by root");
        return;
    }
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    // The user `nobody`, and a group that this user is not in.
    const NOBODY: u32 = 65_534;
    const OTHER_GROUP: u32 = 4;
    let folder = tempfile::tempdir().unwrap();
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(folder.path(), 0o777);
    let program = folder.path().join("program");
    let test = this_program(warns_in_any_folder);
    ends_well(Command::new("cp").arg(test.get_program()).arg(&program));
    chown(&program, None, Some(OTHER_GROUP)).unwrap();
    for (mode, place) in [(0o755, folder.path()), (0o2755, Path::new("/tmp"))] {
        set_mode(&program, mode);
        let mut command = Command::new(&program);
        command.args(test.get_args()).envs(test.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("TMPDIR", folder.path()).current_dir("/").uid(NOBODY).gid(NOBODY);
        let errors = assert_passed(&command.output().unwrap()).errors;
        let page = errors.lines().find_map(|line| line.trim_start().strip_prefix("see ")).unwrap_or_default();
        assert_eq!(Path::new(page).parent(), Some(place), "{mode:o}: {errors}");
        fs::remove_file(page).unwrap();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_forked_child_reports_nothing_until_it_starts_a_watch() {
    alone!();
    let (_watch, found) = counting();
    leak(1);
    let in_child = || {
        step(|| leak(1));
        let silent = cycles::check() == 0 && cycles::find().is_err() && found.load(Ordering::Relaxed) == 0;
        let (_watch, found) = counting();
        step(leak_other_kind);
        silent && found.load(Ordering::Relaxed) > 0
    };
    assert_eq!(memtrack_tests::forked::forked(in_child), Some(true));
    assert_eq!(cycles::check(), 1);
}

#[test]
fn forgotten_handles_are_distinguished_from_cycles_without_a_watch() {
    alone!();
    cycles::enable();
    step(|| std::mem::forget(Tracked::new(layer())));
    let report = cycles::find().unwrap();
    assert_eq!(report.findings().leaks(), 0);
    assert_eq!(report.graph.unexplained.len(), 1, "{report}");
    assert!(report.graph.unexplained[0].site.contains("watches.rs:"), "{report}");
    assert!(report.to_string().contains("These are not cycles."), "{report}");
    // While the scope is open, a handle created in it may still be in a variable.
    step(|| {
        let _used = Tracked::new(layer());
        assert_eq!(cycles::find().unwrap().graph.unexplained.len(), 1);
        assert_eq!(Scan::new().all_handles(true).find().unwrap().graph.unexplained.len(), 2);
    });
    assert_eq!(cycles::find().unwrap().graph.unexplained.len(), 1);
}

#[test]
fn a_report_is_printed_and_saved_as_a_page() {
    alone!();
    cycles::enable();
    assert_eq!(cycles::find().unwrap().to_string(), "No cycle.");
    leak(2);
    let report = cycles::find().unwrap();
    assert_eq!(report.findings().leaks(), 2);
    assert!(report.to_string().starts_with("2 cycles that nothing else holds keep 2.0 KiB"), "{report}");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("cycles.html");
    report.save_page(&page).unwrap();
    report.save_page(&page).expect("it replaces its own file");
    assert!(fs::read_to_string(page).unwrap().contains("Layer"));
    assert!(report.save_page(folder.path().join("none/cycles.html")).is_err());
}
