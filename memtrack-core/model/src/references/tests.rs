//! Tests for the reports that a visitor receives from standard library types, and from locked, deep or long values.

use super::type_probe::never_refers;
use super::{Capturing, Counted, DeviceMemory, Path, References, Sink, Step, TypeProbe, Visitor};
use crate::event::DeviceId;
use std::borrow::Cow;
use std::cell::{Cell, LazyCell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::fmt;
use std::mem::ManuallyDrop;
use std::num::Wrapping;
use std::ops::{Bound, ControlFlow};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, RwLock, mpsc};

/// A sink that records one line per report.
#[derive(Default)]
struct ReportLines {
    lines: Vec<String>,
    /// Clones of the strong pointers.
    targets: Vec<Box<dyn Counted>>,
    without_paths: bool,
}

impl Sink for ReportLines {
    fn wants_paths(&self) -> bool {
        !self.without_paths
    }

    fn strong(&mut self, path: &Path, target: &dyn Counted, handle: Option<u64>) {
        let handle = handle.map_or_else(String::new, |handle| format!(" by handle {handle}"));
        self.lines.push(format!("{path} strong{handle}"));
        self.targets.push(target.clone_boxed());
    }

    fn weak(&mut self, path: &Path, _address: usize) {
        self.lines.push(format!("{path} weak"));
    }

    fn memory(&mut self, path: &Path, memory: DeviceMemory) {
        self.lines.push(format!("{path} holds {} bytes", memory.size_bytes));
    }

    fn opaque(&mut self, path: &Path, why: &str) {
        self.lines.push(format!("{path}: {why}"));
    }

    fn show(&mut self, path: &Path, value: &dyn fmt::Debug) {
        self.lines.push(format!("{path} = {value:?}"));
    }
}

fn lines_of(value: &(impl References + ?Sized)) -> Vec<String> {
    let mut sink = ReportLines::default();
    value.references(&mut Visitor::new(&mut sink));
    sink.lines
}

const NO_LINES: [&str; 0] = [];

fn new_pointer() -> Rc<u8> {
    Rc::new(1)
}

#[test]
fn counted_pointers_are_reported_and_not_followed() {
    let inner = Arc::new(Mutex::new(Arc::new(1)));
    let value = (new_pointer(), Arc::clone(&inner), Rc::downgrade(&new_pointer()), Arc::downgrade(&inner));
    assert_eq!(lines_of(&value), [".0 strong", ".1 strong", ".3 weak"]);
    assert_eq!(lines_of(&*value.1), [" strong"]);
    assert_eq!(Rc::strong_count(&value.0), 1);
}

#[test]
fn target_is_reported_with_its_address_counts_and_type() {
    let shared: Rc<[Rc<u8>]> = Rc::new([new_pointer(), new_pointer()]);
    let (_weak, _another) = (Rc::downgrade(&shared), Rc::clone(&shared));
    let mut sink = ReportLines::default();
    shared.references(&mut Visitor::new(&mut sink));
    let target = sink.targets.pop().expect("one was reported");
    assert_eq!(target.address(), shared.as_ptr().addr());
    assert_eq!((target.strong_count(), target.weak_count()), (3, 1));
    assert_eq!(target.type_name(), "[alloc::rc::Rc<u8>]");
    assert!(!target.is_shared_by_threads());
    let mut behind = ReportLines::default();
    target.visit(&mut Visitor::new(&mut behind));
    assert_eq!(behind.lines, ["[0] strong", "[1] strong"]);
}

#[test]
fn type_behind_trait_object_is_reported() {
    struct Layer;
    impl References for Layer {
        fn references(&self, to: &mut Visitor<'_>) {
            to.opaque("a layer");
        }
    }
    let object: Arc<dyn References> = Arc::new(Layer);
    let mut sink = ReportLines::default();
    object.references(&mut Visitor::new(&mut sink));
    assert!(sink.targets[0].type_name().ends_with("::Layer"));
    assert!(sink.targets[0].is_shared_by_threads());
}

#[test]
fn containers_report_indexes_and_keys() {
    assert_eq!(lines_of(&vec![Some(new_pointer()), None, Some(new_pointer())]), ["[0] strong", "[2] strong"]);
    assert_eq!(lines_of(&VecDeque::from([new_pointer()])), ["[0] strong"]);
    assert_eq!(lines_of(&LinkedList::from([new_pointer()])), ["[0] strong"]);
    assert_eq!(lines_of(&BinaryHeap::from([new_pointer()])), ["[0] strong"]);
    assert_eq!(lines_of(&BTreeSet::from([new_pointer()])), [" key strong"]);
    assert_eq!(lines_of(&HashSet::from([new_pointer()])), [" key strong"]);
    assert_eq!(lines_of(&HashMap::from([(3, new_pointer())])), ["[3] strong"]);
    assert_eq!(lines_of(&BTreeMap::from([(new_pointer(), new_pointer())])), [" key strong", "[1] strong"]);
    assert_eq!(lines_of(&Ok::<_, ()>(new_pointer())), ["::Ok.0 strong"]);
    assert_eq!(lines_of(&ControlFlow::<Rc<u8>>::Break(new_pointer())), ["::Break.0 strong"]);
    assert_eq!(lines_of(&Bound::Excluded(new_pointer())), ["::Excluded.0 strong"]);
    assert_eq!(lines_of(&(new_pointer()..new_pointer())), [".start strong", ".end strong"]);
    assert_eq!(lines_of(&(new_pointer()..=new_pointer())), [".start strong", ".end strong"]);
    assert_eq!(lines_of(&std::task::Poll::Ready(new_pointer())), ["::Ready.0 strong"]);
}

#[test]
fn wrappers_add_no_step_to_path() {
    assert_eq!(lines_of(&Box::new([new_pointer()])), ["[0] strong"]);
    assert_eq!(lines_of(&Pin::new(Box::new(new_pointer()))), [" strong"]);
    assert_eq!(lines_of(&RefCell::new(OnceCell::from(new_pointer()))), [" strong"]);
    assert_eq!(lines_of(&RwLock::new(OnceLock::from(new_pointer()))), [" strong"]);
    assert_eq!(lines_of(&Cow::<[Rc<u8>]>::Owned(vec![new_pointer()])), ["[0] strong"]);
    assert_eq!(lines_of(&std::cmp::Reverse(new_pointer())), [" strong"]);
    let mut never_dropped = ManuallyDrop::new(new_pointer());
    assert_eq!(lines_of(&never_dropped), [" strong"]);
    drop(std::mem::replace(&mut *never_dropped, new_pointer()));
    drop(ManuallyDrop::into_inner(never_dropped));
}

#[test]
fn borrowed_values_are_not_held() {
    let (value, mut other) = ([new_pointer()], new_pointer());
    assert_eq!(lines_of(&(&value, &mut other)), NO_LINES);
    assert_eq!(lines_of(&Cow::Borrowed(&value[..])), NO_LINES);
    assert_eq!(lines_of(&Pin::new(&value)), NO_LINES);
}

#[test]
fn opaque_values_are_reported_with_reason() {
    let channel = mpsc::channel::<Rc<u8>>();
    assert_eq!(lines_of(&channel), [".0: a channel", ".1: a channel"]);
    assert_eq!(lines_of(&mpsc::channel::<f32>()), NO_LINES);
    assert_eq!(
        lines_of(&Cell::new(Some(new_pointer()))),
        [": the value of a Cell cannot be borrowed (a RefCell's can)"]
    );
    assert_eq!(lines_of(&Cell::new(1)), NO_LINES);
    let lazy = "initialised on first use, and reading it would do that";
    assert_eq!(lines_of(&LazyCell::<u8>::new(|| unreachable!())), [format!(": {lazy}")]);
    assert_eq!(lines_of(&LazyLock::<u8>::new(|| unreachable!())), [format!(": {lazy}")]);
    assert_eq!(lines_of(&Pin::new(new_pointer())), [": a pinned counted pointer"]);
    assert_eq!(lines_of(&std::thread::spawn(|| {})), [": the values of a thread"]);
    assert_eq!(lines_of(&(Box::new(new_pointer()) as Box<dyn std::any::Any>)), [": a value of any type"]);
    assert_eq!(lines_of(&std::io::Error::other("full")), [": an error of any type"]);
    assert_eq!(lines_of(&std::io::Error::from(std::io::ErrorKind::Other)), NO_LINES);
}

#[test]
fn locked_or_borrowed_values_do_not_block() {
    let cell = RefCell::new(new_pointer());
    let reading = cell.borrow();
    assert_eq!(lines_of(&cell), [" strong"]);
    drop(reading);
    let writing = cell.borrow_mut();
    assert_eq!(lines_of(&cell), [": borrowed for writing"]);
    drop(writing);
    assert_eq!(lines_of(&cell), [" strong"]);

    let mutex = Mutex::new(new_pointer());
    let locked = mutex.lock();
    assert_eq!(lines_of(&mutex), [": locked"]);
    drop(locked);
    assert_eq!(lines_of(&mutex), [" strong"]);

    let lock = RwLock::new(new_pointer());
    let reading = lock.read();
    assert_eq!(lines_of(&lock), [" strong"]);
    drop(reading);
    let writing = lock.write();
    assert_eq!(lines_of(&lock), [": locked for writing"]);
    drop(writing);
}

#[test]
fn poisoned_locks_are_inspected() {
    let (mutex, lock) = (Arc::new(Mutex::new(Arc::new(1))), Arc::new(RwLock::new(Arc::new(1))));
    let (in_mutex, in_lock) = (Arc::clone(&mutex), Arc::clone(&lock));
    let poisoning = std::thread::spawn(move || {
        let _both = (in_mutex.lock(), in_lock.write());
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(poisoning.join().is_err());
    assert!(mutex.is_poisoned() && lock.is_poisoned());
    assert_eq!(lines_of(&*mutex), [" strong"]);
    assert_eq!(lines_of(&*lock), [" strong"]);
}

/// A linked list of boxes.
struct Boxes(Option<Box<Boxes>>, Rc<u8>);

impl References for Boxes {
    fn references(&self, to: &mut Visitor<'_>) {
        to.field("rc", &self.1);
        to.field("next", &self.0);
    }
}

#[test]
fn values_nested_too_deeply_are_reported() {
    let mut boxes = Boxes(None, new_pointer());
    for _ in 0..10_000 {
        boxes = Boxes(Some(Box::new(boxes)), new_pointer());
    }
    let lines = lines_of(&boxes);
    let (pointers, too_deep): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.ends_with(".rc strong"));
    assert!(pointers.len() >= 30, "{pointers:?}");
    assert_eq!(pointers[1], ".next.rc strong");
    // These are the fields of the first box that is nested too deeply.
    assert_eq!(too_deep.len(), 2);
    assert!(too_deep.iter().all(|line| line.ends_with(": nested too deeply")), "{too_deep:?}");
    // Drop the boxes iteratively, because dropping so many of them recursively would overflow the stack.
    let mut next = boxes.0;
    while let Some(mut boxes) = next {
        next = boxes.0.take();
    }
}

#[test]
fn depth_counts_nested_values_and_not_siblings() {
    let wide: Vec<Box<Box<Rc<u8>>>> = (0..1_000).map(|_| Box::new(Box::new(new_pointer()))).collect();
    assert_eq!(lines_of(&wide).len(), 1_000);
}

#[test]
fn types_without_references_are_recognised() {
    assert!(never_refers::<Vec<f32>>());
    assert!(never_refers::<Option<(u8, String, [f64; 3])>>());
    assert!(never_refers::<HashMap<String, BTreeMap<u64, Vec<Wrapping<u8>>>>>());
    assert!(never_refers::<(&Rc<u8>, fn(Rc<u8>) -> Rc<u8>, Result<char, std::path::PathBuf>)>());
    assert!(never_refers::<Cow<'_, [u8]>>());
    assert!(!never_refers::<Vec<Rc<u8>>>());
    assert!(!never_refers::<(u8, Option<Arc<str>>)>());
    assert!(!never_refers::<HashMap<Rc<u8>, u8>>());
    assert!(!never_refers::<RefCell<u8>>());
    assert!(!never_refers::<Capturing<(), fn()>>());
}

#[test]
fn containers_of_types_without_references_are_skipped() {
    // Visiting each element would take centuries.
    assert_eq!(lines_of(&[(); usize::MAX][..]), NO_LINES);
    assert_eq!(lines_of(&[((), [1_u8; 0]); usize::MAX]), NO_LINES);
    assert_eq!(lines_of(&vec![(); usize::MAX]), NO_LINES);
}

/// A type that contains itself twice.
struct Endless;

impl References for Endless {
    fn references(&self, to: &mut Visitor<'_>) {
        to.opaque("endless");
    }

    fn never_refers(probe: &mut TypeProbe) -> bool {
        probe.never_refers::<Vec<Self>>() && probe.never_refers::<Option<Self>>()
    }
}

#[test]
fn recursive_type_is_inspected() {
    assert!(!never_refers::<Endless>());
    assert_eq!(lines_of(&vec![Endless]), ["[0]: endless"]);
}

/// A key with a very long text, whose formatting ignores writer errors.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct EndlessKey(u32);

impl fmt::Debug for EndlessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for _ in 0..self.0 {
            let _ = f.write_str("key after key, ");
        }
        Ok(())
    }
}

impl References for EndlessKey {
    fn references(&self, _to: &mut Visitor<'_>) {}
}

#[test]
fn long_keys_are_cut() {
    let long = "é".repeat(1 << 20);
    let cut = format!("[\"{}…] strong", "é".repeat(39));
    assert_eq!(lines_of(&BTreeMap::from([(long, new_pointer())])), [cut]);
    let cut = format!("[{}…] strong", &"key after key, ".repeat(3)[..40]);
    assert_eq!(lines_of(&BTreeMap::from([(EndlessKey(1 << 16), new_pointer())])), [cut]);
    let fits = "x".repeat(38);
    assert_eq!(lines_of(&BTreeMap::from([(fits.as_str(), new_pointer())])), [format!("[{fits:?}] strong")]);
}

/// A key whose formatting panics.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PanickingKey;

impl fmt::Debug for PanickingKey {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unreachable!("paths are not wanted")
    }
}

impl References for PanickingKey {
    fn references(&self, _to: &mut Visitor<'_>) {}
}

#[test]
fn keys_are_not_formatted_without_paths() {
    let mut sink = ReportLines { without_paths: true, ..ReportLines::default() };
    let to = &mut Visitor::new(&mut sink);
    to.field("map", &BTreeMap::from([(PanickingKey, new_pointer())]));
    to.show("name", &PanickingKey);
    to.opaque("closed");
    assert_eq!(sink.lines, [" strong", ": closed"]);
}

#[test]
fn paths_are_formatted_like_rust_expressions() {
    let path = Path(vec![
        Step::Field("layers"),
        Step::Index(3),
        Step::Variant("Add", "left"),
        Step::Field("0"),
        Step::Value("\"relu\"".to_owned()),
        Step::Key,
    ]);
    assert_eq!(path.to_string(), ".layers[3]::Add.left.0[\"relu\"] key");
    assert_eq!(Path::default().to_string(), "");
}

#[test]
fn paths_return_to_parent_after_each_value() {
    let mut sink = ReportLines::default();
    let to = &mut Visitor::new(&mut sink);
    to.field("first", &vec![new_pointer()]);
    to.show("id", &7);
    to.memory(DeviceMemory { device: DeviceId::HOST, address: 4096, size_bytes: 8 });
    to.step(|| Step::Field("handle"), |to| to.handle(&new_pointer(), 3));
    to.key(&new_pointer());
    let expected =
        [".first[0] strong", ".id = 7", " holds 8 bytes", ".handle strong by handle 3", " key strong"];
    assert_eq!(sink.lines, expected);
}

#[test]
fn values_are_shown_down_to_maximum_depth() {
    struct Deep(usize);
    impl References for Deep {
        fn references(&self, to: &mut Visitor<'_>) {
            match self.0 {
                0 => to.show("id", &1),
                left => to.owned(&Deep(left - 1)),
            }
        }
    }
    assert_eq!(lines_of(&Deep(64)), [".id = 1"]);
    assert_eq!(lines_of(&Deep(65)), [": nested too deeply"]);
}

#[test]
fn closure_is_inspected_through_its_handles() {
    let (first, second) = (new_pointer(), new_pointer());
    let mut sum = Capturing::of((first, second), |handles: &(Rc<u8>, Rc<u8>), third: u8| {
        *handles.0 + *handles.1 + third
    });
    assert_eq!(sum.call(5), 7);
    assert_eq!(lines_of(&sum), [".handles.0 strong", ".handles.1 strong"]);
    sum.parts_mut().0.0 = Rc::new(10);
    assert_eq!(*sum.handles().0, 10);
    let (handles, call) = sum.into_parts();
    let captures = Capturing::of((), move || call(&handles, 1));
    assert_eq!(lines_of(&captures), [".call: a closure that captures values of its own"]);
}
