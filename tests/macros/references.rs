//! The references that `#[derive(References)]` reports to a visitor, for each shape of a type. The code that it rejects is
//! in `ui/`.
#![deny(warnings, missing_docs, unused_qualifications, unused_lifetimes, unreachable_pub, unsafe_code)]
#![deny(private_bounds, private_interfaces, non_snake_case, clippy::all, clippy::pedantic)]

use memtrack_core::References;
use memtrack_core::event::DeviceId;
use memtrack_core::operators::{Dtype, ReportTensors, TensorInfo, TensorReader};
use memtrack_core::references::{Capturing, Counted, DeviceMemory, Path, Sink, Visitor};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};

/// A sink that records each report as a line.
#[derive(Default)]
struct Lines(Vec<String>);

impl Sink for Lines {
    fn wants_paths(&self) -> bool {
        true
    }

    fn strong(&mut self, path: &Path, target: &dyn Counted, _handle: Option<u64>) {
        self.0.push(format!("{path} -> {}", without_paths(target.type_name())));
    }

    fn weak(&mut self, path: &Path, _address: usize) {
        self.0.push(format!("{path} weak"));
    }

    fn memory(&mut self, path: &Path, memory: DeviceMemory) {
        self.0.push(format!("{path} holds {} bytes", memory.size_bytes));
    }

    fn opaque(&mut self, path: &Path, why: &str) {
        self.0.push(format!("{path} ? {why}"));
    }

    fn show(&mut self, path: &Path, value: &dyn Debug) {
        self.0.push(format!("{path} = {value:?}"));
    }
}

/// Removes the paths of a type's name: `alloc::vec::Vec<program::Leaf>` becomes `Vec<Leaf>`.
fn without_paths(name: &str) -> String {
    let is_end = |character: char| !(character.is_alphanumeric() || character == '_' || character == ':');
    name.split_inclusive(is_end).map(|part| part.rsplit("::").next().unwrap_or(part)).collect()
}

fn reported(value: &(impl References + ?Sized)) -> Vec<String> {
    let mut lines = Lines::default();
    value.references(&mut Visitor::new(&mut lines));
    lines.0
}

/// The type that all others refer to.
#[derive(References)]
struct Leaf;

fn leaf() -> Rc<Leaf> {
    Rc::new(Leaf)
}

#[test]
fn named_fields_are_reported_under_their_names() {
    /// The prefix `r#` is not part of a name.
    #[derive(References)]
    struct Linear {
        weight: Rc<Leaf>,
        r#type: Option<Rc<Leaf>>,
        width: usize,
    }
    let linear = Linear { weight: leaf(), r#type: Some(leaf()), width: 3 };
    assert_eq!(reported(&linear), [".weight -> Leaf", ".type -> Leaf"]);
    assert_eq!(linear.width, 3);
}

#[test]
fn fields_without_names_are_reported_under_their_numbers() {
    #[derive(References)]
    struct Pair(Rc<Leaf>, (u8, Arc<Mutex<Leaf>>));
    assert_eq!(
        reported(&Pair(leaf(), (1, Arc::new(Mutex::new(Leaf))))),
        [".0 -> Leaf", ".1.1 -> Mutex<Leaf>"]
    );
}

#[test]
fn types_without_fields_refer_to_nothing() {
    #[derive(References)]
    struct Unit;
    #[derive(References)]
    struct Braces {}
    #[derive(References)]
    struct Parentheses();
    #[derive(References)]
    enum Never {}

    assert_eq!(reported(&(Unit, Braces {}, Parentheses(), None::<Never>)), [""; 0]);
}

#[test]
fn fields_of_an_enum_are_reported_under_their_variants() {
    #[derive(References)]
    enum Operation {
        Leaf,
        Add { left: Rc<Leaf>, right: Rc<Leaf> },
        Scale(Rc<Leaf>, f32),
        r#Mut(Rc<Leaf>),
    }
    assert_eq!(reported(&Operation::Leaf), [""; 0]);
    let add = Operation::Add { left: leaf(), right: leaf() };
    assert_eq!(reported(&add), ["::Add.left -> Leaf", "::Add.right -> Leaf"]);
    assert_eq!(reported(&Operation::Scale(leaf(), 2.0)), ["::Scale.0 -> Leaf"]);
    assert_eq!(reported(&Operation::Mut(leaf())), ["::Mut.0 -> Leaf"]);
}

#[test]
fn containers_add_indices_and_keys() {
    #[derive(References)]
    struct Module {
        layers: Vec<Rc<RefCell<Leaf>>>,
        hooks: HashMap<String, Box<(u8, Rc<Leaf>)>>,
        by_shape: BTreeMap<(usize, usize), Option<Rc<Leaf>>>,
        pair: [Arc<Leaf>; 2],
        last: Mutex<Option<Rc<Leaf>>>,
        shared: Rc<[Leaf]>,
        name: Rc<str>,
        nothing: PhantomData<Rc<Leaf>>,
    }
    let module = Module {
        layers: vec![Rc::new(RefCell::new(Leaf)), Rc::new(RefCell::new(Leaf))],
        hooks: HashMap::from([("relu".to_owned(), Box::new((1, leaf())))]),
        by_shape: BTreeMap::from([((2, 3), Some(leaf())), ((4, 5), None)]),
        pair: [Arc::new(Leaf), Arc::new(Leaf)],
        last: Mutex::new(Some(leaf())),
        shared: Rc::new([Leaf]),
        name: "module".into(),
        nothing: PhantomData,
    };
    let expected = [
        ".layers[0] -> RefCell<Leaf>",
        ".layers[1] -> RefCell<Leaf>",
        ".hooks[\"relu\"].1 -> Leaf",
        ".by_shape[(2, 3)] -> Leaf",
        ".pair[0] -> Leaf",
        ".pair[1] -> Leaf",
        ".last -> Leaf",
        ".shared -> [Leaf]",
        ".name -> str",
    ];
    assert_eq!(reported(&module), expected);
    assert_eq!(module.nothing, PhantomData);
}

trait Layer: References {
    fn width(&self) -> usize;
}

#[derive(References)]
struct Dense {
    input: Rc<Leaf>,
}

impl Layer for Dense {
    fn width(&self) -> usize {
        Rc::strong_count(&self.input)
    }
}

#[test]
fn trait_objects_are_visited_as_their_concrete_type() {
    #[derive(References)]
    struct Net {
        owned: Box<dyn Layer>,
        shared: Rc<dyn Layer>,
        cell: Rc<RefCell<dyn Layer>>,
    }
    let cell: Rc<RefCell<dyn Layer>> = Rc::new(RefCell::new(Dense { input: leaf() }));
    let net =
        Net { owned: Box::new(Dense { input: leaf() }), shared: Rc::new(Dense { input: leaf() }), cell };
    assert_eq!(reported(&net), [".owned.input -> Leaf", ".shared -> Dense", ".cell -> RefCell<dyn Layer>"]);
    assert_eq!(reported(&*net.shared), [".input -> Leaf"]);
    assert_eq!(reported(&*net.cell), [".input -> Leaf"]);
    assert_eq!(net.shared.width() + net.owned.width(), 2);
}

#[test]
fn weak_pointers_are_reported_while_their_value_exists() {
    #[derive(References)]
    struct Child {
        parent: Weak<Leaf>,
    }
    let parent = leaf();
    let child = Child { parent: Rc::downgrade(&parent) };
    assert_eq!(reported(&child), [".parent weak"]);
    drop(parent);
    assert_eq!(reported(&child), [""; 0]);
}

#[test]
fn recursive_types_are_derived() {
    #[derive(Default, References)]
    struct Node {
        next: Option<Rc<Node>>,
        children: Vec<Rc<RefCell<Node>>>,
        boxed: Option<Box<Self>>,
        flat: Vec<Node>,
    }
    #[derive(References)]
    enum Tree {
        Leaf(u8),
        Fork(Box<Tree>, Vec<Tree>),
    }
    let inner = Node { next: Some(Rc::default()), ..Node::default() };
    let node = Node {
        next: Some(Rc::default()),
        children: vec![Rc::default()],
        boxed: Some(Box::new(inner)),
        flat: vec![Node { next: Some(Rc::default()), ..Node::default() }],
    };
    let expected =
        [".next -> Node", ".children[0] -> RefCell<Node>", ".boxed.next -> Node", ".flat[0].next -> Node"];
    assert_eq!(reported(&node), expected);
    assert_eq!(reported(&Tree::Fork(Box::new(Tree::Leaf(0)), vec![Tree::Leaf(1)])), [""; 0]);
}

#[test]
fn types_that_consist_of_each_other_are_derived() {
    #[derive(Default, References)]
    struct Module {
        hooks: Vec<Hook>,
    }
    #[derive(Default, References)]
    struct Hook {
        modules: Vec<Module>,
        owner: Option<Rc<Module>>,
    }
    let hook = Hook { owner: Some(Rc::default()), ..Hook::default() };
    assert_eq!(reported(&Module { hooks: vec![hook] }), [".hooks[0].owner -> Module"]);
    assert_eq!(reported(&Hook { modules: vec![Module::default()], owner: None }), [""; 0]);
}

/// A trait for marker types, which refer to nothing.
trait Backend: 'static {
    type Storage;
}

struct Cpu;

impl Backend for Cpu {
    type Storage = Rc<Leaf>;
}

#[derive(References)]
struct Param<B: Backend> {
    storage: B::Storage,
    backend: PhantomData<B>,
}

#[test]
fn type_parameters_need_only_the_bounds_of_the_fields() {
    #[derive(References)]
    struct Linear<'a, B: Backend, T, U: ?Sized, const N: usize = 2>
    where
        T: Debug,
    {
        name: &'a str,
        weights: [Param<B>; N],
        value: T,
        #[references(skip)]
        unknown: Option<&'a U>,
        last: Rc<U>,
    }
    let param = || Param::<Cpu> { storage: leaf(), backend: PhantomData };
    let last: Rc<dyn Layer> = Rc::new(Dense { input: leaf() });
    let linear =
        Linear { name: "fc", weights: [param(), param()], value: (leaf(),).0.type_id(), unknown: None, last };
    let expected = [".weights[0].storage -> Leaf", ".weights[1].storage -> Leaf", ".last -> Dense"];
    assert_eq!(reported(&linear), expected);
    assert!(linear.unknown.is_none() && linear.name == "fc");
}

trait TypeId {
    fn type_id(&self) -> u8;
}

impl<T> TypeId for T {
    fn type_id(&self) -> u8 {
        0
    }
}

#[test]
fn generic_recursive_types_are_derived() {
    #[derive(References)]
    struct List<T> {
        value: T,
        next: Option<Box<List<T>>>,
        shared: Option<Rc<List<T>>>,
    }
    #[derive(References)]
    struct Graph<T, B> {
        edges: Vec<(T, Rc<Self>)>,
        of: PhantomData<B>,
    }
    /// A type without counted pointers (`Rc`), so its `T` need not be `'static`.
    #[derive(References)]
    struct Chain<T>(T, Option<Box<Chain<T>>>);
    struct NoReferences;

    let end = List { value: leaf(), next: None, shared: None };
    let list = List { value: leaf(), next: Some(Box::new(end)), shared: None };
    assert_eq!(reported(&list), [".value -> Leaf", ".next.value -> Leaf"]);
    let graph = Graph::<u8, NoReferences> { edges: Vec::new(), of: PhantomData };
    let graph = Graph { edges: vec![(1, Rc::new(graph))], of: PhantomData };
    assert_eq!(reported(&graph), [".edges[0].1 -> Graph<u8, NoReferences>"]);
    let text = String::from("short lived");
    assert_eq!(reported(&Chain(&text, None)), [""; 0]);
    assert!(list.shared.is_none());
}

#[test]
fn a_bound_replaces_the_derived_ones() {
    // The derived bounds of these two types would depend on each other endlessly.
    #[derive(References)]
    #[references(bound = "T: References + 'static")]
    struct Module<T> {
        value: T,
        hook: Option<Rc<Hook<T>>>,
    }
    #[derive(References)]
    struct Hook<T> {
        owner: Option<Rc<Module<T>>>,
    }
    #[derive(References)]
    #[references(bound = "")]
    struct Tagged<T> {
        #[references(with = nothing)]
        tag: Vec<T>,
    }
    fn nothing<T>(tags: &[T], to: &mut Visitor<'_>) {
        to.opaque(if tags.is_empty() { "empty" } else { "full" });
    }

    let module = Module { value: leaf(), hook: Some(Rc::new(Hook { owner: None })) };
    assert_eq!(reported(&module), [".value -> Leaf", ".hook -> Hook<Rc<Leaf>>"]);
    assert_eq!(reported(&Hook { owner: Some(Rc::new(module)) }), [".owner -> Module<Rc<Leaf>>"]);
    assert_eq!(reported(&Tagged { tag: vec![Foreign(leaf())] }), [".tag ? full"]);
}

#[test]
fn the_last_field_may_be_unsized() {
    #[derive(References)]
    struct Named<T: ?Sized> {
        id: u32,
        value: T,
    }
    #[derive(References)]
    struct Row {
        width: u8,
        cells: [Rc<Leaf>],
    }
    let named: Box<Named<dyn Layer>> = Box::new(Named { id: 0, value: Dense { input: leaf() } });
    assert_eq!(reported(&named), [".value.input -> Leaf"]);
    assert_eq!(named.id, 0);
    assert!(size_of::<&Row>() > size_of::<usize>());
    let _ = |row: &Row| row.width == 0 && row.cells.is_empty();
}

/// A type without `References`.
struct Foreign(Rc<Leaf>);

fn visit_foreign(foreign: &Foreign, to: &mut Visitor<'_>) {
    to.field("inner", &foreign.0);
}

#[test]
fn attributes_control_how_fields_are_visited() {
    #[derive(References)]
    struct Node {
        #[references(skip)]
        settings: Foreign,
        #[references(opaque)]
        backward: Box<dyn Fn(f32) -> f32>,
        #[references(with = visit_foreign)]
        foreign: Foreign,
        #[references(rename = "grad_fn")]
        function: Rc<Leaf>,
        #[references(show)]
        id: u64,
        #[references(show, rename = "inputs")]
        shared: Rc<String>,
        #[references(skip, show)]
        place: Place,
    }
    #[derive(Debug)]
    struct Place;

    let node = Node {
        settings: Foreign(leaf()),
        backward: Box::new(|gradient| gradient),
        foreign: Foreign(leaf()),
        function: leaf(),
        id: 7,
        shared: Rc::new("x".to_owned()),
        place: Place,
    };
    let expected = [
        ".backward ? not inspected",
        ".foreign.inner -> Leaf",
        ".grad_fn -> Leaf",
        ".id = 7",
        ".inputs -> String",
        ".inputs = \"x\"",
        ".place = Place",
    ];
    assert_eq!(reported(&node), expected);
    assert!((node.backward)(1.0) > 0.0 && Rc::strong_count(&node.settings.0) == 1);
}

#[test]
fn attributes_work_on_fields_of_variants() {
    #[derive(References)]
    enum Node {
        One {
            #[references(show)]
            id: u8,
            #[references(opaque)]
            call: fn(),
            #[references(with = visit_foreign, rename = "kept")]
            foreign: Foreign,
        },
    }
    let one = Node::One { id: 1, call: || {}, foreign: Foreign(leaf()) };
    let expected = ["::One.id = 1", "::One.call ? not inspected", "::One.kept.inner -> Leaf"];
    assert_eq!(reported(&one), expected);
    let Node::One { call, .. } = one;
    call();
}

#[test]
fn attributes_exclude_variants_and_types() {
    #[derive(References)]
    enum State {
        #[references(skip)]
        Idle(Foreign),
        #[references(opaque)]
        Running { future: Foreign },
    }
    #[derive(References)]
    #[references(opaque)]
    struct Engine<T> {
        state: T,
    }
    #[derive(References)]
    #[references(opaque)]
    #[repr(C)]
    union Bits {
        float: f32,
        int: u32,
    }
    #[derive(References)]
    #[references(opaque)]
    #[repr(C, packed)]
    struct Packed(u8, u32);

    let idle = State::Idle(Foreign(leaf()));
    assert_eq!(reported(&idle), [""; 0]);
    assert!(matches!(idle, State::Idle(foreign) if Rc::strong_count(&foreign.0) == 1));
    let running = State::Running { future: Foreign(leaf()) };
    assert_eq!(reported(&running), [" ? not inspected: the variant Running"]);
    assert!(matches!(running, State::Running { future } if Rc::strong_count(&future.0) == 1));
    let engine = Engine { state: Foreign(leaf()) };
    assert_eq!(reported(&engine), [" ? not inspected"]);
    assert_eq!(reported(&Bits { int: 0 }), [" ? not inspected"]);
    assert_eq!(reported(&Packed(0, 0)), [" ? not inspected"]);
    assert_eq!(Rc::strong_count(&engine.state.0), 1);
}

/// A framework's tensor.
struct Tensor {
    bytes: u64,
}

impl ReportTensors for Tensor {
    fn report(&self, to: &mut TensorReader<'_>) {
        let info = TensorInfo::new(1, DeviceId::HOST, Dtype::F32, &[1_usize][..]);
        to.tensor(&info.storage(4096, self.bytes));
    }
}

#[test]
fn tensors_are_reported_with_their_device_memory() {
    #[derive(References)]
    struct Layer<T: ReportTensors> {
        #[references(tensors)]
        weight: Tensor,
        #[references(tensors)]
        history: Vec<T>,
    }
    let layer = Layer { weight: Tensor { bytes: 64 }, history: vec![Tensor { bytes: 32 }] };
    assert_eq!(reported(&layer), [".weight holds 64 bytes", ".history holds 32 bytes"]);
}

/// Types with the same names as items of memtrack and of the prelude.
mod same_names {
    use super::{Leaf, leaf, reported};
    use std::rc::Rc;

    pub(super) trait References {}
    pub(super) struct Visitor;
    #[derive(memtrack_core::References)]
    pub(super) enum Option<T> {
        Some(T),
        None,
    }
    #[derive(memtrack_core::cycles::References)]
    pub(super) struct String {
        to: Rc<Leaf>,
        probe: Option<Rc<Leaf>>,
        field_0: Option<Rc<Leaf>>,
    }
    #[derive(memtrack_core::references::References)]
    pub(super) struct Step(bool);
    #[allow(non_camel_case_types)]
    #[derive(memtrack_core::References)]
    pub(super) struct bool;

    impl References for Visitor {}

    #[test]
    fn types_may_share_names_with_memtrack_and_the_prelude() {
        let text = String { to: leaf(), probe: Option::Some(leaf()), field_0: Option::None };
        assert_eq!(reported(&text), [".to -> Leaf", ".probe::Some.0 -> Leaf"]);
        assert_eq!(reported(&Step(bool)), [""; 0]);
        let _: &dyn References = &Visitor;
    }
}

/// A framework that re-exports memtrack.
mod framework {
    #[doc(hidden)]
    pub(crate) use memtrack_core as memory;
}

#[test]
fn memtrack_may_be_reexported() {
    #[derive(References)]
    #[references(crate = crate::framework::memory)]
    struct Node(Rc<Leaf>, #[references(opaque)] fn());
    let node = Node(leaf(), || {});
    assert_eq!(reported(&node), [".0 -> Leaf", ".1 ? not inspected"]);
    (node.1)();
}

#[test]
fn function_pointers_refer_to_nothing() {
    #[derive(References)]
    struct Functions {
        one: fn(&str, &mut Visitor<'_>) -> Rc<Leaf>,
        many: Vec<fn(Rc<Leaf>) -> usize>,
    }
    let functions = Functions { one: |_, _| leaf(), many: vec![|leaf| Rc::strong_count(&leaf)] };
    assert_eq!(reported(&functions), [""; 0]);
    let _ = functions.one;
}

#[test]
fn deprecated_fields_are_reported_without_a_warning() {
    #[derive(References)]
    struct Old {
        #[deprecated]
        leaf: Rc<Leaf>,
    }
    #[allow(deprecated)]
    let old = Old { leaf: leaf() };
    assert_eq!(reported(&old), [".leaf -> Leaf"]);
}

#[test]
fn containers_without_references_are_skipped() {
    #[derive(Clone, Copy, References)]
    struct Complex<T> {
        real: [T; 0],
        imaginary: (),
    }
    #[derive(Clone, Copy, References)]
    enum Voxel {
        Full(PhantomData<String>, Complex<f64>, Option<Never>),
    }
    #[derive(Clone, Copy, References)]
    enum Never {}

    // Visiting every element would take centuries.
    let voxels = [Voxel::Full(PhantomData, Complex { real: [], imaginary: () }, None); usize::MAX];
    assert_eq!(reported(&voxels), [""; 0]);
    assert_eq!(reported(&voxels[1..]), [""; 0]);
    assert!(matches!(&voxels[7], Voxel::Full(_, Complex { real: [], imaginary: () }, None)));
}

#[test]
fn containers_with_shown_fields_are_visited() {
    #[derive(References)]
    struct Named(#[references(show)] u8);
    assert_eq!(reported(&vec![Named(1), Named(2)]), ["[0].0 = 1", "[1].0 = 2"]);
}

/// A library with a public and a private type.
pub mod library {
    use super::References;
    use std::rc::Rc;

    /// A public type that contains a private one.
    #[derive(References)]
    pub struct Public<T> {
        inner: Vec<Private<T>>,
        this: Option<Rc<Self>>,
    }

    #[derive(References)]
    struct Private<T>(T);

    impl<T> Public<T> {
        /// Creates an instance with one value.
        pub fn new(value: T) -> Self {
            Self { inner: vec![Private(value)], this: None }
        }
    }
}

#[test]
fn public_types_may_consist_of_private_ones() {
    assert_eq!(reported(&library::Public::new(leaf())), [".inner[0].0 -> Leaf"]);
}

#[test]
fn types_from_macros_are_derived() {
    macro_rules! pointer {
        ($to:ty) => { Rc<$to> };
    }
    macro_rules! node {
        ($name:ident $(, $field:ident: $type:ty)*) => {
            #[derive(References)]
            struct $name<T> {
                value: pointer!(T),
                $($field: $type,)*
            }
        };
    }
    node!(Node, left: Option<Rc<Node<T>>>, right: Rc<Leaf>, call: fn(&str) -> usize);
    let call = str::len;
    let node = Node { value: Rc::new(1_u8), left: None, right: leaf(), call };
    let node = Node { value: Rc::new(1_u8), left: Some(Rc::new(node)), right: leaf(), call };
    assert_eq!(reported(&node), [".value -> u8", ".left -> Node<u8>", ".right -> Leaf"]);
    assert_eq!((node.call)("text"), 4);
}

/// A backward closure with its handles, as a tape stores it.
trait Backward: References {
    fn backward(&self, gradient: &[f32]);
}

impl<H: References, F: Fn(&H, &[f32])> Backward for Capturing<H, F> {
    fn backward(&self, gradient: &[f32]) {
        self.call(gradient);
    }
}

#[derive(Default, References)]
struct Variable {
    gradient: Cell<f32>,
    backward: RefCell<Option<Box<dyn Backward>>>,
}

#[test]
fn handles_of_a_closure_are_reported() {
    let (a, b, sum) = (Rc::<Variable>::default(), Rc::<Variable>::default(), Variable::default());
    let add = Capturing::by_ref((a.clone(), b.clone()), |(a, b), gradient: &[f32]| {
        a.gradient.set(a.gradient.get() + gradient[0]);
        b.gradient.set(b.gradient.get() + gradient[0]);
    });
    *sum.backward.borrow_mut() = Some(Box::new(add));
    assert_eq!(reported(&sum), [".backward.handles.0 -> Variable", ".backward.handles.1 -> Variable"]);
    let backward = sum.backward.borrow();
    backward.as_ref().expect("just set").backward(&[2.0]);
    assert_eq!((a.gradient.get(), b.gradient.get()), (2.0, 2.0));
}

#[test]
fn closures_that_capture_handles_are_reported_as_opaque() {
    let hidden = leaf();
    let capturing = Capturing::new(leaf(), move |_, factor: usize| Rc::strong_count(&hidden) * factor);
    assert_eq!(
        reported(&capturing),
        [".handles -> Leaf", ".call ? a closure that captures values of its own"]
    );
    assert_eq!(capturing.call(3), 3);
    let factor = 2.0;
    let copies_a_number = Capturing::new((), move |(), value: f32| value * factor);
    assert_eq!(reported(&copies_a_number), [""; 0]);
    assert!(copies_a_number.call(1.0) > 1.9);
}
