//! The [`Visitor`], which receives the references that values report.

use super::{Counted, References};
use crate::event::DeviceId;
use crate::operators::{ReportTensors, TensorReader};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The maximum nesting depth of the values that are inspected. Deeper values are reported as not inspected, because
/// following a long linked list of boxes would overflow the thread's stack. Each level takes about 200 bytes of stack.
const MAX_DEPTH: usize = 64;

/// Device memory held by a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceMemory {
    /// The device that the memory is on.
    pub device: DeviceId,
    /// The first address of the memory. Memory at the same address is counted once, however many values hold it.
    pub address: u64,
    /// The size in bytes.
    pub size_bytes: u64,
}

/// A step from a value to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A field, by its name or number.
    Field(&'static str),
    /// A field of an enum variant, by the variant's name and the field's name or number.
    Variant(&'static str, &'static str),
    /// An element, by its index.
    Index(usize),
    /// The value of a map entry, by its key as formatted with `Debug`.
    Value(String),
    /// A key of a map or an element of a set.
    Key,
}

/// The path from a value to a value inside it, such as `.layers[3]`, `.hooks["relu"]` or `::Add.left`.
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

/// The receiver of a [`Visitor`]'s reports. All paths are empty if [`Sink::wants_paths`] returns `false`.
pub trait Sink {
    /// Returns whether the sink needs paths and calls to [`Sink::show`], which cost much more than the other reports.
    fn wants_paths(&self) -> bool;
    /// Receives a strong pointer. If it is a tracked handle, `handle` is its number.
    fn strong(&mut self, path: &Path, target: &dyn Counted, handle: Option<u64>);
    /// Receives a weak pointer to the value at `address`.
    fn weak(&mut self, path: &Path, address: usize);
    /// Receives device memory.
    fn memory(&mut self, path: &Path, memory: DeviceMemory);
    /// Receives a part that was not inspected, with the reason.
    fn opaque(&mut self, path: &Path, why: &str);
    /// Receives a value that helps people identify the object.
    fn show(&mut self, path: &Path, value: &dyn fmt::Debug);
}

/// The receiver of the references that a value reports; see [`References`].
pub struct Visitor<'a> {
    sink: &'a mut dyn Sink,
    paths: bool,
    path: Path,
    depth: usize,
}

impl<'a> Visitor<'a> {
    /// Creates a visitor that reports to `sink`.
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        let paths = sink.wants_paths();
        Self { sink, paths, path: Path::default(), depth: 0 }
    }

    /// Visits a field of a struct or tuple, given its name, or its number as text.
    #[inline]
    pub fn field<T: References + ?Sized>(&mut self, name: &'static str, value: &T) {
        self.step(|| Step::Field(name), |to| value.references(to));
    }

    /// Visits a field of an enum variant.
    #[inline]
    pub fn variant<T: References + ?Sized>(&mut self, variant: &'static str, name: &'static str, value: &T) {
        self.step(|| Step::Variant(variant, name), |to| value.references(to));
    }

    /// Visits an element of a sequence.
    #[inline]
    pub fn index<T: References + ?Sized>(&mut self, index: usize, value: &T) {
        self.step(|| Step::Index(index), |to| value.references(to));
    }

    /// Visits an entry of a map.
    #[inline]
    pub fn entry<K: References + fmt::Debug + ?Sized, V: References + ?Sized>(&mut self, key: &K, value: &V) {
        self.key(key);
        self.step(|| Step::Value(format_short_debug(key)), |to| value.references(to));
    }

    /// Visits an element of a set, or a key of a map.
    #[inline]
    pub fn key<T: References + ?Sized>(&mut self, key: &T) {
        self.step(|| Step::Key, |to| key.references(to));
    }

    /// Visits a value that this one owns exclusively but stores in a separate allocation. The value counts as part of
    /// this one and adds no step to the path.
    #[inline]
    pub fn owned<T: References + ?Sized>(&mut self, value: &T) {
        self.visit_nested(|to| value.references(to));
    }

    /// Adds `step` to the path of everything that `visit` reports. Use it for parts that the other methods do not
    /// cover.
    pub fn step(&mut self, step: impl FnOnce() -> Step, visit: impl FnOnce(&mut Self)) {
        if self.paths {
            self.path.0.push(step());
            self.visit_nested(visit);
            self.path.0.pop();
        } else {
            self.visit_nested(visit);
        }
    }

    /// Calls `visit` one level deeper, unless that would exceed [`MAX_DEPTH`].
    fn visit_nested(&mut self, visit: impl FnOnce(&mut Self)) {
        if self.depth == MAX_DEPTH {
            return self.opaque("nested too deeply");
        }
        self.depth += 1;
        visit(self);
        self.depth -= 1;
    }

    /// Reports a strong counted pointer. Its target is visited later.
    #[inline]
    pub fn strong(&mut self, target: &dyn Counted) {
        self.sink.strong(&self.path, target, None);
    }

    /// Reports the strong counted pointer in a tracked handle. `handle` is the handle's number.
    #[doc(hidden)]
    pub fn handle(&mut self, target: &dyn Counted, handle: u64) {
        self.sink.strong(&self.path, target, Some(handle));
    }

    /// Reports a weak counted pointer to the value at `address`. A weak pointer keeps nothing alive, and it need
    /// not be reported if its value is gone.
    pub fn weak(&mut self, address: usize) {
        self.sink.weak(&self.path, address);
    }

    /// Reports device memory that is freed when the value is dropped.
    pub fn memory(&mut self, memory: DeviceMemory) {
        self.sink.memory(&self.path, memory);
    }

    /// Reports the memory of tensors, as described by their framework. Tensors without storage or of unknown size are
    /// omitted.
    pub fn tensors<T: ReportTensors<M> + ?Sized, M>(&mut self, tensors: &T) {
        tensors.report(&mut TensorReader::new(&mut |tensor, _| {
            if let (Some(address), Some(size_bytes)) = (tensor.storage, tensor.storage_bytes) {
                self.memory(DeviceMemory { device: tensor.device, address, size_bytes });
            }
        }));
    }

    /// Reports a part that cannot be inspected, such as a closure or a value that another thread has locked. The values
    /// that it points to count as held from outside the inspected values.
    #[cold]
    pub fn opaque(&mut self, why: &str) {
        self.sink.opaque(&self.path, why);
    }

    /// Shows a field, so that people can identify the object among several.
    pub fn show(&mut self, name: &'static str, value: &dyn fmt::Debug) {
        self.show_at(|| Step::Field(name), value);
    }

    /// Shows a value that is not a field but is reached by `step`.
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

/// Formats a value with `Debug` and truncates the text. If `Debug` panics, returns the text up to the panic.
fn format_short_debug(value: &(impl fmt::Debug + ?Sized)) -> String {
    /// The maximum number of characters that are kept. After them, at most `MAX_SKIPPED_BYTES` are skipped before
    /// writing fails, which stops an endless text.
    const MAX_CHARACTERS: usize = 40;
    const MAX_SKIPPED_BYTES: usize = 64 << 10;
    struct ShortText {
        text: String,
        characters: usize,
        skipped_bytes: usize,
    }
    impl fmt::Write for ShortText {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for character in text.chars() {
                match self.characters {
                    0..MAX_CHARACTERS => self.text.push(character),
                    MAX_CHARACTERS => self.text.push('…'),
                    _ => break,
                }
                self.characters += 1;
            }
            // Writing does not fail at once, because some implementations panic when it does.
            self.skipped_bytes += if self.characters > MAX_CHARACTERS { text.len() } else { 0 };
            if self.skipped_bytes > MAX_SKIPPED_BYTES { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut short = ShortText { text: String::new(), characters: 0, skipped_bytes: 0 };
    let shown = catch_unwind(AssertUnwindSafe(|| fmt::write(&mut short, format_args!("{value:?}"))));
    if shown.is_err() && short.characters <= MAX_CHARACTERS {
        short.text.push('…');
    }
    short.text
}
