//! Whom a value tells what it refers to.

use super::{Counted, References};
use crate::event::DeviceId;
use crate::operators::{ReportTensors, TensorReader};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How deep values that own each other are looked into. What is nested deeper is reported as not looked at: a list of boxes
/// may be longer than a thread's stack is deep. A step is some 200 bytes of stack.
const DEEPEST: usize = 64;

/// Memory of a device that a value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceMemory {
    /// The device that it is on.
    pub device: DeviceId,
    /// Where it begins. Memory is counted once, however many values hold it.
    pub address: u64,
    /// How much it is.
    pub size_bytes: u64,
}

/// A step from a value to what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A field, by its name or number.
    Field(&'static str),
    /// A field of a variant of an enum.
    Variant(&'static str, &'static str),
    /// An element, by its place.
    Index(usize),
    /// The value of a key of a map, by the key as `Debug` shows it.
    Value(String),
    /// A key of a map or an element of a set.
    Key,
}

/// From a value to what it holds: `.layers[3]`, `.hooks["relu"]`, `::Add.left`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path(pub Vec<Step>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            match step {
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Variant(variant, name) => write!(f, "::{variant}.{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Value(key) => write!(f, "[{key}]")?,
                Step::Key => f.write_str(" key")?,
            }
        }
        Ok(())
    }
}

/// What a [`Visitor`] hands on. The path is empty where [`Sink::wants_paths`] says that it is not needed.
pub trait Sink {
    /// Whether paths, [`Sink::show`] and the like are wanted: they cost much more than the rest.
    fn wants_paths(&self) -> bool;
    /// A strong pointer, and the number of the tracked handle if it is one.
    fn strong(&mut self, path: &Path, target: &dyn Counted, handle: Option<u64>);
    /// A weak pointer to what is at `address`.
    fn weak(&mut self, path: &Path, address: usize);
    /// Device memory.
    fn memory(&mut self, path: &Path, memory: DeviceMemory);
    /// Something that was not looked at, and why.
    fn opaque(&mut self, path: &Path, why: &str);
    /// Something that tells people which of several values this is.
    fn show(&mut self, path: &Path, value: &dyn fmt::Debug);
}

/// Whom a value tells what it refers to; see [`References`].
pub struct Visitor<'a> {
    sink: &'a mut dyn Sink,
    paths: bool,
    path: Path,
    depth: usize,
}

impl<'a> Visitor<'a> {
    /// Tells `sink`.
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        let paths = sink.wants_paths();
        Self { sink, paths, path: Path::default(), depth: 0 }
    }

    /// A field of a struct or tuple: its name, or its number as text.
    #[inline]
    pub fn field<T: References + ?Sized>(&mut self, name: &'static str, value: &T) {
        self.step(|| Step::Field(name), |to| value.references(to));
    }

    /// A field of an enum's variant.
    #[inline]
    pub fn variant<T: References + ?Sized>(&mut self, variant: &'static str, name: &'static str, value: &T) {
        self.step(|| Step::Variant(variant, name), |to| value.references(to));
    }

    /// An element of a sequence.
    #[inline]
    pub fn index<T: References + ?Sized>(&mut self, index: usize, value: &T) {
        self.step(|| Step::Index(index), |to| value.references(to));
    }

    /// An entry of a map.
    #[inline]
    pub fn entry<K: References + fmt::Debug + ?Sized, V: References + ?Sized>(&mut self, key: &K, value: &V) {
        self.key(key);
        self.step(|| Step::Value(short(key)), |to| value.references(to));
    }

    /// An element of a set, or a key of a map.
    #[inline]
    pub fn key<T: References + ?Sized>(&mut self, key: &T) {
        self.step(|| Step::Key, |to| key.references(to));
    }

    /// A value in an allocation of its own that nobody else holds: it is a part of this one, under no name.
    #[inline]
    pub fn owned<T: References + ?Sized>(&mut self, value: &T) {
        self.deeper(|to| value.references(to));
    }

    /// What `look` reports lies one step further away. For what has no method of its own here.
    pub fn step(&mut self, step: impl FnOnce() -> Step, look: impl FnOnce(&mut Self)) {
        if self.paths {
            self.path.0.push(step());
            self.deeper(look);
            self.path.0.pop();
        } else {
            self.deeper(look);
        }
    }

    fn deeper(&mut self, look: impl FnOnce(&mut Self)) {
        if self.depth == DEEPEST {
            return self.opaque("nested too deeply");
        }
        self.depth += 1;
        look(self);
        self.depth -= 1;
    }

    /// A strong counted pointer that is held here. What it points to is looked at later.
    #[inline]
    pub fn strong(&mut self, target: &dyn Counted) {
        self.sink.strong(&self.path, target, None);
    }

    /// A strong counted pointer in a handle with a number of its own.
    #[doc(hidden)]
    pub fn handle(&mut self, target: &dyn Counted, handle: u64) {
        self.sink.strong(&self.path, target, Some(handle));
    }

    /// A weak counted pointer to what is at `address`; keeps nothing alive. Without value it need not be reported.
    pub fn weak(&mut self, address: usize) {
        self.sink.weak(&self.path, address);
    }

    /// Device memory that is freed when the value is dropped.
    pub fn memory(&mut self, memory: DeviceMemory) {
        self.sink.memory(&self.path, memory);
    }

    /// The memory of tensors, as their framework describes it. What has no storage, or no known size, is left out.
    pub fn tensors<T: ReportTensors<M> + ?Sized, M>(&mut self, tensors: &T) {
        tensors.report(&mut TensorReader::new(&mut |tensor, _| {
            if let (Some(address), Some(size_bytes)) = (tensor.storage, tensor.storage_bytes) {
                self.memory(DeviceMemory { device: tensor.device, address, size_bytes });
            }
        }));
    }

    /// Something here cannot be looked at: a closure, or what another thread has locked. Pointers in it count as held from
    /// outside.
    #[cold]
    pub fn opaque(&mut self, why: &str) {
        self.sink.opaque(&self.path, why);
    }

    /// Shows a field, so that people know which of several values this is.
    pub fn show(&mut self, name: &'static str, value: &dyn fmt::Debug) {
        self.show_at(|| Step::Field(name), value);
    }

    /// Shows what lies one step further away. For what is no field.
    pub fn show_at(&mut self, step: impl FnOnce() -> Step, value: &dyn fmt::Debug) {
        if self.paths {
            self.path.0.push(step());
            self.sink.show(&self.path, value);
            self.path.0.pop();
        }
    }
}

impl fmt::Debug for Visitor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A value as `Debug` shows it, in few characters, however long that would be. Where that panics, as far as it came.
fn short(value: &(impl fmt::Debug + ?Sized)) -> String {
    /// Most characters, and most bytes after them before writing fails: what does not end is ended.
    const MOST: usize = 40;
    const MOST_PASSED_OVER: usize = 64 << 10;
    struct Short {
        text: String,
        characters: usize,
        passed_over: usize,
    }
    impl fmt::Write for Short {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for character in text.chars() {
                match self.characters {
                    0..MOST => self.text.push(character),
                    MOST => self.text.push('…'),
                    _ => break,
                }
                self.characters += 1;
            }
            // Some panic where writing fails.
            self.passed_over += if self.characters > MOST { text.len() } else { 0 };
            if self.passed_over > MOST_PASSED_OVER { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut short = Short { text: String::new(), characters: 0, passed_over: 0 };
    let shown = catch_unwind(AssertUnwindSafe(|| fmt::write(&mut short, format_args!("{value:?}"))));
    if shown.is_err() && short.characters <= MOST {
        short.text.push('…');
    }
    short.text
}
