//! A small program, represented by the operator trace that it would record.

use crate::analysis::{Profile, analyse};
use crate::category::Category;
use crate::optrace::{Mode, ReadTrace, read};
use std::fmt::Write;

/// The lines of a trace. Each record takes 10 ns. Tensor elements are one byte each, so tensor sizes are in
/// bytes.
#[derive(Default)]
pub(super) struct Program {
    lines: String,
    count: usize,
    time: u64,
    ids: u64,
    open: Vec<u64>,
}

/// The effect of an operator on an argument.
#[derive(Clone, Copy)]
pub(super) enum Arg {
    Reads(u64),
    Writes(u64),
    /// The effect is unknown.
    MayWrite(u64),
}

pub(super) use Arg::{MayWrite, Reads, Writes};

impl Program {
    pub(super) fn line(&mut self, line: &str) {
        writeln!(self.lines, "{line}").unwrap();
        self.count += 1;
    }

    fn begin(&mut self) -> (u64, String, u64) {
        self.time += 10;
        self.ids += 1;
        let parent = self.open.last().map_or("null".to_owned(), u64::to_string);
        (self.ids, parent, self.time)
    }

    /// Adds a tensor at an address. Its handle also serves as its identity.
    pub(super) fn tensor(&mut self, handle: u64, address: u64, bytes: u64) {
        self.line(&format!(
            r#"{{"ev":"tensor","t":{handle},"impl":"{handle}","storage":"{address:#x}","dev":"cuda:0","dtype":"u8","sizes":[{bytes}],"strides":[1],"layout":"strided"}}"#
        ));
    }

    pub(super) fn alloc(&mut self, address: u64, bytes: u64) {
        self.memory("alloc", address, bytes);
    }

    pub(super) fn free(&mut self, address: u64, bytes: u64) {
        self.memory("free", address, bytes);
    }

    fn memory(&mut self, kind: &str, address: u64, bytes: u64) {
        let (_, parent, time) = self.begin();
        self.line(&format!(
            r#"{{"ev":"{kind}","parent":{parent},"ts":{time},"thread":1,"dev":"cuda:0","ptr":"{address:#x}","bytes":{bytes}}}"#
        ));
    }

    /// Adds an allocation and a tensor that uses the allocated memory.
    pub(super) fn alloc_tensor(&mut self, handle: u64, address: u64, bytes: u64) {
        self.alloc(address, bytes);
        self.tensor(handle, address, bytes);
    }

    /// Adds an operator with a known schema.
    pub(super) fn op(&mut self, name: &str, args: &[Arg], inner: impl FnOnce(&mut Self)) {
        self.record(&format!(r#""name":"{name}","kind":"op","schema":true"#), args, &[], inner);
    }

    /// Adds an operator with results.
    pub(super) fn op_with(&mut self, name: &str, args: &[Arg], outs: &[u64], inner: impl FnOnce(&mut Self)) {
        self.record(&format!(r#""name":"{name}","kind":"op","schema":true"#), args, outs, inner);
    }

    /// Adds an operator that does not report its tensors.
    pub(super) fn op_without_tensors(&mut self, name: &str, inner: impl FnOnce(&mut Self)) {
        self.record(&format!(r#""name":"{name}","kind":"op","schema":false"#), &[], &[], inner);
    }

    /// Adds an autograd node.
    pub(super) fn backward(&mut self, name: &str, args: &[Arg], inner: impl FnOnce(&mut Self)) {
        self.record(&format!(r#""name":"{name}","kind":"backward","schema":false"#), args, &[], inner);
    }

    /// Adds an operator with results and a sequence number that its autograd node shares.
    pub(super) fn op_with_sequence(
        &mut self,
        name: &str,
        sequence: u64,
        args: &[Arg],
        outs: &[u64],
        inner: impl FnOnce(&mut Self),
    ) {
        let fields = format!(r#""name":"{name}","kind":"op","schema":true,"seq":{sequence}"#);
        self.record(&fields, args, outs, inner);
    }

    /// Adds the autograd node that belongs to the operator with this sequence number.
    pub(super) fn backward_of(
        &mut self,
        name: &str,
        sequence: u64,
        args: &[Arg],
        inner: impl FnOnce(&mut Self),
    ) {
        let fields = format!(
            r#""name":"{name}","kind":"backward","schema":false,"seq":{sequence},"phase":"backward""#
        );
        self.record(&fields, args, &[], inner);
    }

    /// Adds an annotation that states the phase.
    pub(super) fn phase(&mut self, phase: &str, inner: impl FnOnce(&mut Self)) {
        let fields = format!(r#""name":"{phase}","kind":"user","schema":false,"phase":"{phase}""#);
        self.record(&fields, &[], &[], inner);
    }

    fn record(&mut self, fields: &str, args: &[Arg], outs: &[u64], inner: impl FnOnce(&mut Self)) {
        let (id, parent, time) = self.begin();
        let args: Vec<String> = args
            .iter()
            .map(|arg| match arg {
                Reads(handle) => format!(r#"{{"t":{handle},"w":false}}"#),
                Writes(handle) => format!(r#"{{"t":{handle},"w":true}}"#),
                MayWrite(handle) => format!(r#"{{"t":{handle},"w":null}}"#),
            })
            .collect();
        let args = args.join(",");
        self.line(&format!(
            r#"{{"ev":"op","id":{id},"parent":{parent},"ts":{time},"thread":1,{fields},"args":[{args}]}}"#
        ));
        self.enclose(id, outs, inner);
    }

    fn enclose(&mut self, id: u64, outs: &[u64], inner: impl FnOnce(&mut Self)) {
        self.open.push(id);
        inner(self);
        self.open.pop();
        self.time += 10;
        let time = self.time;
        let outs = if outs.is_empty() { String::new() } else { format!(r#","outs":{outs:?}"#) };
        self.line(&format!(r#"{{"ev":"end","id":{id},"ts":{time}{outs}}}"#));
    }

    /// Adds a call to a module that has parameters and buffers and is the only one of its type.
    pub(super) fn module(
        &mut self,
        class: &str,
        params: &[u64],
        buffers: &[u64],
        inner: impl FnOnce(&mut Self),
    ) {
        self.module_at(class, class, "", (params, buffers), inner);
    }

    /// Adds a call to a module that has an identity and a path.
    pub(super) fn module_at(
        &mut self,
        identity: &str,
        class: &str,
        path: &str,
        (params, buffers): (&[u64], &[u64]),
        inner: impl FnOnce(&mut Self),
    ) {
        let (id, parent, time) = self.begin();
        let named = |handle: &u64| format!(r#"{{"name":"w{handle}","t":{handle},"grad":null}}"#);
        let list = |handles: &[u64]| handles.iter().map(named).collect::<Vec<_>>().join(",");
        let (params, buffers) = (list(params), list(buffers));
        self.line(&format!(
            r#"{{"ev":"module","id":{id},"parent":{parent},"ts":{time},"thread":1,"self":"{identity}","class":"{class}","path":"{path}","params":[{params}],"buffers":[{buffers}]}}"#
        ));
        self.enclose(id, &[], inner);
    }

    /// Adds an optimizer with one parameter, its gradient and its state.
    pub(super) fn optimizer(&mut self, param: u64, grad: u64, state: u64) {
        let (id, parent, time) = self.begin();
        self.line(&format!(
            r#"{{"ev":"optimizer","id":{id},"parent":{parent},"ts":{time},"thread":1,"self":"adam","params":[{{"t":{param},"grad":{grad},"state":[["exp_avg",{state}]]}}]}}"#
        ));
        self.enclose(id, &[], |_| {});
    }

    pub(super) fn grad(&mut self, grad: u64) {
        let (_, parent, time) = self.begin();
        self.line(&format!(
            r#"{{"ev":"grad","parent":{parent},"ts":{time},"thread":1,"param":null,"grad":{grad}}}"#
        ));
    }

    /// Returns the same program on another device.
    pub(super) fn on_device(mut self, device: &str) -> Self {
        self.lines = self.lines.replace("cuda:0", device);
        self
    }

    /// Returns the complete file.
    pub(super) fn file(&self) -> String {
        let header = r#"{"ev":"header","format":"memtrack-optrace","version":1,"time":"monotonic_ns","producer":{"name":"hand","version":"1"}}"#;
        format!("{header}\n{}{{\"ev\":\"footer\",\"records\":{}}}\n", self.lines, self.count)
    }

    pub(super) fn read(&self, mode: Mode) -> ReadTrace {
        read(self.file().as_bytes(), mode, 1 << 30).unwrap()
    }

    /// Returns the category of a given version of the first storage at an address.
    #[track_caller]
    pub(super) fn category(&self, mode: Mode, address: u64, version: u32) -> Option<Category> {
        let ReadTrace { trace, .. } = self.read(mode);
        category_in(&analyse(&trace, mode).unwrap(), address, version)
    }
}

/// Returns the category of a given version of the first storage at an address.
#[track_caller]
pub(super) fn category_in(profile: &Profile<'_>, address: u64, version: u32) -> Option<Category> {
    let is_there = |storage: &Option<_>| {
        storage.is_some_and(|storage: crate::analysis::Storage| storage.address == address)
    };
    let storage = profile.storages().iter().position(is_there).expect("nothing at that address");
    profile.category(storage as u32, version)
}
