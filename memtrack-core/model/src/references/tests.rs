//! What a visitor is told, by the standard library's types and by what is locked, deep or long.

use super::asked::never_refers;
use super::{Asked, Capturing, Counted, DeviceMemory, Path, References, Sink, Step, Visitor};
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

/// Writes down what it is told, a line each.
#[derive(Default)]
struct Told {
    lines: Vec<String>,
    /// The strong pointers.
    targets: Vec<Box<dyn Counted>>,
    without_paths: bool,
}

impl Sink for Told {
    fn wants_paths(&self) -> bool {
        !self.without_paths
    }

    fn strong(&mut self, path: &Path, target: &dyn Counted, handle: Option<u64>) {
        let handle = handle.map_or_else(String::new, |handle| format!(" by handle {handle}"));
        self.lines.push(format!("{path} strong{handle}"));
        self.targets.push(target.another());
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

fn told(value: &(impl References + ?Sized)) -> Vec<String> {
    let mut told = Told::default();
    value.references(&mut Visitor::new(&mut told));
    told.lines
}

const NOTHING: [&str; 0] = [];

fn one() -> Rc<u8> {
    Rc::new(1)
}

#[test]
fn counted_pointers_are_told_and_not_looked_behind() {
    let inner = Arc::new(Mutex::new(Arc::new(1)));
    let value = (one(), Arc::clone(&inner), Rc::downgrade(&one()), Arc::downgrade(&inner));
    assert_eq!(told(&value), [".0 strong", ".1 strong", ".3 weak"]);
    assert_eq!(told(&*value.1), [" strong"]);
    assert_eq!(Rc::strong_count(&value.0), 1);
}

#[test]
fn a_target_is_told_with_its_address_counts_and_type() {
    let shared: Rc<[Rc<u8>]> = Rc::new([one(), one()]);
    let (_weak, _another) = (Rc::downgrade(&shared), Rc::clone(&shared));
    let mut told = Told::default();
    shared.references(&mut Visitor::new(&mut told));
    let target = told.targets.pop().expect("one was told");
    assert_eq!(target.address(), shared.as_ptr().addr());
    assert_eq!((target.strong_count(), target.weak_count()), (3, 1));
    assert_eq!(target.type_name(), "[alloc::rc::Rc<u8>]");
    assert!(!target.is_shared_by_threads());
    let mut behind = Told::default();
    target.visit(&mut Visitor::new(&mut behind));
    assert_eq!(behind.lines, ["[0] strong", "[1] strong"]);
}

#[test]
fn the_type_behind_a_trait_object_is_told() {
    struct Layer;
    impl References for Layer {
        fn references(&self, to: &mut Visitor<'_>) {
            to.opaque("a layer");
        }
    }
    let object: Arc<dyn References> = Arc::new(Layer);
    let mut told = Told::default();
    object.references(&mut Visitor::new(&mut told));
    assert!(told.targets[0].type_name().ends_with("::Layer"));
    assert!(told.targets[0].is_shared_by_threads());
}

#[test]
fn containers_tell_places_and_keys() {
    assert_eq!(told(&vec![Some(one()), None, Some(one())]), ["[0] strong", "[2] strong"]);
    assert_eq!(told(&VecDeque::from([one()])), ["[0] strong"]);
    assert_eq!(told(&LinkedList::from([one()])), ["[0] strong"]);
    assert_eq!(told(&BinaryHeap::from([one()])), ["[0] strong"]);
    assert_eq!(told(&BTreeSet::from([one()])), [" key strong"]);
    assert_eq!(told(&HashSet::from([one()])), [" key strong"]);
    assert_eq!(told(&HashMap::from([(3, one())])), ["[3] strong"]);
    assert_eq!(told(&BTreeMap::from([(one(), one())])), [" key strong", "[1] strong"]);
    assert_eq!(told(&Ok::<_, ()>(one())), ["::Ok.0 strong"]);
    assert_eq!(told(&ControlFlow::<Rc<u8>>::Break(one())), ["::Break.0 strong"]);
    assert_eq!(told(&Bound::Excluded(one())), ["::Excluded.0 strong"]);
    assert_eq!(told(&(one()..one())), [".start strong", ".end strong"]);
    assert_eq!(told(&(one()..=one())), [".start strong", ".end strong"]);
    assert_eq!(told(&std::task::Poll::Ready(one())), ["::Ready.0 strong"]);
}

#[test]
fn what_wraps_a_value_has_no_step_of_its_own() {
    assert_eq!(told(&Box::new([one()])), ["[0] strong"]);
    assert_eq!(told(&Pin::new(Box::new(one()))), [" strong"]);
    assert_eq!(told(&RefCell::new(OnceCell::from(one()))), [" strong"]);
    assert_eq!(told(&RwLock::new(OnceLock::from(one()))), [" strong"]);
    assert_eq!(told(&Cow::<[Rc<u8>]>::Owned(vec![one()])), ["[0] strong"]);
    assert_eq!(told(&std::cmp::Reverse(one())), [" strong"]);
    let mut never_dropped = ManuallyDrop::new(one());
    assert_eq!(told(&never_dropped), [" strong"]);
    drop(std::mem::replace(&mut *never_dropped, one()));
    drop(ManuallyDrop::into_inner(never_dropped));
}

#[test]
fn what_is_borrowed_is_not_held() {
    let (value, mut other) = ([one()], one());
    assert_eq!(told(&(&value, &mut other)), NOTHING);
    assert_eq!(told(&Cow::Borrowed(&value[..])), NOTHING);
    assert_eq!(told(&Pin::new(&value)), NOTHING);
}

#[test]
fn what_cannot_be_looked_into_is_told_with_the_reason() {
    let channel = mpsc::channel::<Rc<u8>>();
    assert_eq!(told(&channel), [".0: a channel", ".1: a channel"]);
    assert_eq!(told(&mpsc::channel::<f32>()), NOTHING);
    assert_eq!(told(&Cell::new(Some(one()))), [": a Cell shows its value to nobody (a RefCell would)"]);
    assert_eq!(told(&Cell::new(1)), NOTHING);
    let lazy = "made on first use, and looking would make it";
    assert_eq!(told(&LazyCell::<u8>::new(|| unreachable!())), [format!(": {lazy}")]);
    assert_eq!(told(&LazyLock::<u8>::new(|| unreachable!())), [format!(": {lazy}")]);
    assert_eq!(told(&Pin::new(one())), [": a pinned counted pointer"]);
    assert_eq!(told(&std::thread::spawn(|| {})), [": what a thread holds"]);
    assert_eq!(told(&(Box::new(one()) as Box<dyn std::any::Any>)), [": a value of any type"]);
    assert_eq!(told(&std::io::Error::other("full")), [": an error of any type"]);
    assert_eq!(told(&std::io::Error::from(std::io::ErrorKind::Other)), NOTHING);
}

#[test]
fn what_is_locked_or_borrowed_is_not_waited_for() {
    let cell = RefCell::new(one());
    let reading = cell.borrow();
    assert_eq!(told(&cell), [" strong"]);
    drop(reading);
    let writing = cell.borrow_mut();
    assert_eq!(told(&cell), [": borrowed for writing"]);
    drop(writing);
    assert_eq!(told(&cell), [" strong"]);

    let mutex = Mutex::new(one());
    let locked = mutex.lock();
    assert_eq!(told(&mutex), [": locked"]);
    drop(locked);
    assert_eq!(told(&mutex), [" strong"]);

    let lock = RwLock::new(one());
    let reading = lock.read();
    assert_eq!(told(&lock), [" strong"]);
    drop(reading);
    let writing = lock.write();
    assert_eq!(told(&lock), [": locked for writing"]);
    drop(writing);
}

#[test]
fn what_a_panic_poisoned_is_looked_into() {
    let (mutex, lock) = (Arc::new(Mutex::new(Arc::new(1))), Arc::new(RwLock::new(Arc::new(1))));
    let (in_mutex, in_lock) = (Arc::clone(&mutex), Arc::clone(&lock));
    let poisoning = std::thread::spawn(move || {
        let _both = (in_mutex.lock(), in_lock.write());
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(poisoning.join().is_err());
    assert!(mutex.is_poisoned() && lock.is_poisoned());
    assert_eq!(told(&*mutex), [" strong"]);
    assert_eq!(told(&*lock), [" strong"]);
}

/// A list of boxes.
struct Boxes(Option<Box<Boxes>>, Rc<u8>);

impl References for Boxes {
    fn references(&self, to: &mut Visitor<'_>) {
        to.field("rc", &self.1);
        to.field("next", &self.0);
    }
}

#[test]
fn what_is_nested_too_deeply_is_said_to_be() {
    let mut boxes = Boxes(None, one());
    for _ in 0..10_000 {
        boxes = Boxes(Some(Box::new(boxes)), one());
    }
    let lines = told(&boxes);
    let (pointers, not_looked): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line.ends_with(".rc strong"));
    assert!(pointers.len() >= 30, "{pointers:?}");
    assert_eq!(pointers[1], ".next.rc strong");
    // The fields of the first box that is too deep.
    assert_eq!(not_looked.len(), 2);
    assert!(not_looked.iter().all(|line| line.ends_with(": nested too deeply")), "{not_looked:?}");
    // Without recursion, which a drop of as many boxes has, too.
    let mut next = boxes.0;
    while let Some(mut boxes) = next {
        next = boxes.0.take();
    }
}

#[test]
fn depth_is_counted_for_what_is_inside_and_not_for_what_is_beside() {
    let wide: Vec<Box<Box<Rc<u8>>>> = (0..1_000).map(|_| Box::new(Box::new(one()))).collect();
    assert_eq!(told(&wide).len(), 1_000);
}

#[test]
fn types_of_which_no_value_refers_to_anything_are_known() {
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
fn a_container_of_what_refers_to_nothing_is_passed_over() {
    // To look at each of them would take centuries.
    assert_eq!(told(&[(); usize::MAX][..]), NOTHING);
    assert_eq!(told(&[((), [1_u8; 0]); usize::MAX]), NOTHING);
    assert_eq!(told(&vec![(); usize::MAX]), NOTHING);
}

/// Consists of itself twice.
struct Endless;

impl References for Endless {
    fn references(&self, to: &mut Visitor<'_>) {
        to.opaque("endless");
    }

    fn never_refers(asked: &mut Asked) -> bool {
        asked.never_refers::<Vec<Self>>() && asked.never_refers::<Option<Self>>()
    }
}

#[test]
fn a_type_that_consists_of_itself_is_looked_into() {
    assert!(!never_refers::<Endless>());
    assert_eq!(told(&vec![Endless]), ["[0]: endless"]);
}

/// A key whose text never ends, and which does not listen when told to stop.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Deaf(u32);

impl fmt::Debug for Deaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for _ in 0..self.0 {
            let _ = f.write_str("key after key, ");
        }
        Ok(())
    }
}

impl References for Deaf {
    fn references(&self, _to: &mut Visitor<'_>) {}
}

#[test]
fn long_keys_are_cut() {
    let long = "é".repeat(1 << 20);
    let cut = format!("[\"{}…] strong", "é".repeat(39));
    assert_eq!(told(&BTreeMap::from([(long, one())])), [cut]);
    let cut = format!("[{}…] strong", &"key after key, ".repeat(3)[..40]);
    assert_eq!(told(&BTreeMap::from([(Deaf(1 << 16), one())])), [cut]);
    let fits = "x".repeat(38);
    assert_eq!(told(&BTreeMap::from([(fits.as_str(), one())])), [format!("[{fits:?}] strong")]);
}

/// A key that cannot be shown.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Unshown;

impl fmt::Debug for Unshown {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unreachable!("paths are not wanted")
    }
}

impl References for Unshown {
    fn references(&self, _to: &mut Visitor<'_>) {}
}

#[test]
fn nothing_is_formatted_where_paths_are_not_wanted() {
    let mut told = Told { without_paths: true, ..Told::default() };
    let to = &mut Visitor::new(&mut told);
    to.field("map", &BTreeMap::from([(Unshown, one())]));
    to.show("name", &Unshown);
    to.opaque("closed");
    assert_eq!(told.lines, [" strong", ": closed"]);
}

#[test]
fn paths_read_like_the_code() {
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
fn a_path_ends_where_its_value_does() {
    let mut told = Told::default();
    let to = &mut Visitor::new(&mut told);
    to.field("first", &vec![one()]);
    to.show("id", &7);
    to.memory(DeviceMemory { device: DeviceId::HOST, address: 4096, size_bytes: 8 });
    to.step(|| Step::Field("handle"), |to| to.handle(&one(), 3));
    to.key(&one());
    let expected =
        [".first[0] strong", ".id = 7", " holds 8 bytes", ".handle strong by handle 3", " key strong"];
    assert_eq!(told.lines, expected);
}

#[test]
fn something_is_shown_however_deep_it_lies() {
    struct Deep(usize);
    impl References for Deep {
        fn references(&self, to: &mut Visitor<'_>) {
            match self.0 {
                0 => to.show("id", &1),
                left => to.owned(&Deep(left - 1)),
            }
        }
    }
    assert_eq!(told(&Deep(64)), [".id = 1"]);
    assert_eq!(told(&Deep(65)), [": nested too deeply"]);
}

#[test]
fn a_closure_is_known_by_what_it_is_called_with() {
    let (first, second) = (one(), one());
    let mut sum = Capturing::of((first, second), |handles: &(Rc<u8>, Rc<u8>), third: u8| {
        *handles.0 + *handles.1 + third
    });
    assert_eq!(sum.call(5), 7);
    assert_eq!(told(&sum), [".handles.0 strong", ".handles.1 strong"]);
    sum.parts_mut().0.0 = Rc::new(10);
    assert_eq!(*sum.handles().0, 10);
    let (handles, call) = sum.into_parts();
    let captures = Capturing::of((), move || call(&handles, 1));
    assert_eq!(told(&captures), [".call: a closure that captures values of its own"]);
}
