//! Converts lines to records. Ids used in the file become indices into the trace's tables.
//!
//! In tolerant mode, a line may refer to an id before the line that defines it, because lines may be out of
//! order. Such a reference creates an empty entry. Once the whole file has been read, references to entries
//! that are still empty are removed.

use super::error::TraceError;
use super::line::{ArgLine, FrameLine, ParentLine, Text, TraceLine};
use super::numbers::{Described, IdTable};
use super::read::{Mode, ReadTrace};
use crate::interner::Interner;
use crate::repairs::{Repair, Repairs};
use foldhash::{HashMap, fast::RandomState};
use memtrack_model::Phase;
use memtrack_model::optrace::{
    Arg, DeviceIndex, Header, Memory, Module, NamedTensor, Op, OpKind, OperatorTrace, OptimizedParam,
    Optimizer, Param, Record, RecordId, RecordKind, Tensor, TensorId, TraceFrame, TracePhase,
};
use memtrack_model::snapshot::StringId;
use std::hash::BuildHasher;

/// The maximum size of an allocation. The limit of 1 PiB keeps sums from overflowing.
const MAX_ALLOCATION_BYTES: u64 = 1 << 50;

pub(super) struct Builder {
    mode: Mode,
    trace: OperatorTrace,
    pub(super) repairs: Repairs,
    hasher: RandomState,
    strings: Interner,
    devices: HashMap<Box<str>, DeviceIndex>,
    tensors: IdTable,
    stacks: IdTable,
    /// The ids of operators, modules and optimizers.
    ids: IdTable,
    /// The element types that the trace declares.
    dtypes: HashMap<StringId, u64>,
    /// Tensors whose element type has not been declared yet.
    untyped: Vec<TensorId>,
    /// The open records of each thread, from the outermost to the innermost.
    open: HashMap<u64, Vec<RecordId>>,
    /// Records whose parent has not been defined yet, each with the parent's id.
    pending_parents: Vec<(RecordId, u64)>,
    /// End lines that came before the records that they end. Each entry holds the id, time and results.
    pending_ends: Vec<(u64, i64, Vec<TensorId>)>,
    newest_ns: i64,
    repeated: u64,
}

/// A message that describes the error in a line.
type LineError = String;

impl Builder {
    pub(super) fn new(header: Header, mode: Mode) -> Self {
        Self {
            mode,
            trace: OperatorTrace { header, ..OperatorTrace::default() },
            repairs: Repairs::default(),
            hasher: RandomState::default(),
            strings: Interner::default(),
            devices: HashMap::default(),
            tensors: IdTable::default(),
            stacks: IdTable::default(),
            ids: IdTable::default(),
            dtypes: HashMap::default(),
            untyped: Vec::new(),
            open: HashMap::default(),
            pending_parents: Vec::new(),
            pending_ends: Vec::new(),
            newest_ns: i64::MIN,
            repeated: 0,
        }
    }

    /// Returns the number of repeated lines that were skipped. The footer does not count them.
    pub(super) fn repeated_records(&self) -> u64 {
        self.repeated
    }

    /// Adds a line. `bytes` is the line before parsing.
    pub(super) fn add(&mut self, line: &TraceLine<'_>, bytes: &[u8]) -> Result<(), LineError> {
        if self.trace.records.len() >= u32::MAX as usize || self.trace.tensors.len() >= u32::MAX as usize {
            return Err("more than 4 G records".into());
        }
        let hash = self.hasher.hash_one(bytes.trim_ascii());
        match &*line.ev.0 {
            "tensor" => self.add_tensor(line, hash),
            "stack" => self.add_stack(line, hash),
            "dtype" => self.add_dtype(line),
            "op" => {
                let op = self.build_op(line)?;
                self.begin_record(line, hash, RecordKind::Op(op))
            }
            "module" => {
                let module = self.build_module(line)?;
                self.begin_record(line, hash, RecordKind::Module(module))
            }
            "optimizer" => {
                let optimizer = self.build_optimizer(line)?;
                self.begin_record(line, hash, RecordKind::Optimizer(optimizer))
            }
            "end" => self.end_record(line),
            kind @ ("alloc" | "free") => {
                let memory = self.build_memory(line, kind == "free")?;
                self.add_record(line, RecordKind::Memory(memory)).map(|_| ())
            }
            "grad" => {
                let param = line.param.map(|param| self.resolve_tensor(param)).transpose()?;
                let grad = self.resolve_tensor(required(line.grad, "grad", line)?)?;
                self.add_record(line, RecordKind::Grad { param, grad }).map(|_| ())
            }
            "mark" => {
                let name = self.intern_or_empty(line.name.as_ref());
                self.add_record(line, RecordKind::Mark(name)).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    fn is_compat(&self) -> bool {
        self.mode == Mode::Compat
    }

    fn intern(&mut self, text: &str) -> StringId {
        self.strings.intern(&mut self.trace.strings, text)
    }

    fn intern_or_empty(&mut self, text: Option<&Text<'_>>) -> StringId {
        text.map_or(StringId::EMPTY, |text| self.intern(&text.0))
    }

    fn device_index(&mut self, name: &str) -> Result<DeviceIndex, LineError> {
        if let Some(&device) = self.devices.get(name) {
            return Ok(device);
        }
        let number = u16::try_from(self.devices.len()).map_err(|_| "more than 65,536 devices")?;
        self.trace.devices.push(name.to_owned());
        self.devices.insert(name.into(), DeviceIndex(number));
        Ok(DeviceIndex(number))
    }

    /// Returns the index for a definition, or `None` if the line is a repetition that should be skipped.
    /// Fails if the id already has a different definition. In [`Mode::Compat`], fails if the id has any
    /// definition.
    fn claim_definition(
        &mut self,
        what: &str,
        number: u64,
        described: Result<Described, ()>,
    ) -> Result<Option<u32>, LineError> {
        match described {
            Ok(Described::First(place)) => Ok(Some(place)),
            Ok(Described::Repeated) if !self.is_compat() => {
                self.repairs.add(Repair::RepeatedLines, 1);
                self.repeated += 1;
                Ok(None)
            }
            _ => Err(format!("{what} {number} is defined twice")),
        }
    }

    fn resolve_tensor(&mut self, handle: u64) -> Result<TensorId, LineError> {
        if self.is_compat() && !self.tensors.is_described(handle) {
            return Err(format!("tensor {handle} is used before it is defined"));
        }
        let place = self.tensors.index_of(handle, self.trace.tensors.len());
        set_at(&mut self.trace.tensors, place, None);
        Ok(place)
    }

    fn references(&mut self, handles: &[u64]) -> Result<Vec<TensorId>, LineError> {
        handles.iter().map(|&handle| self.resolve_tensor(handle)).collect()
    }

    fn add_tensor(&mut self, line: &TraceLine<'_>, hash: u64) -> Result<(), LineError> {
        let number = required(line.t, "t", line)?;
        let described = self.tensors.describe(number, hash, self.trace.tensors.len());
        let Some(place) = self.claim_definition("tensor", number, described)? else { return Ok(()) };
        let dtype = self.intern(&required(line.dtype.as_ref(), "dtype", line)?.0);
        let layout = line.layout.as_ref().map_or("strided", |layout| &layout.0);
        let tensor = Tensor {
            identity: self.intern(&required(line.object.as_ref(), "impl", line)?.0),
            storage: line.storage.as_ref().map(|text| parse_address(&text.0)).transpose()?,
            device: self.device_index(&required(line.dev.as_ref(), "dev", line)?.0)?,
            dtype,
            element_bytes: 0,
            sizes: required(line.sizes.clone(), "sizes", line)?,
            strides: line.strides.clone(),
            layout: self.intern(layout),
            storage_bytes: line.storage_bytes,
            name: self.intern_or_empty(line.name.as_ref()),
        };
        if tensor.strides.as_ref().is_some_and(|strides| strides.len() != tensor.sizes.len()) {
            return Err(format!("tensor {number} has not as many strides as sizes"));
        }
        set_at(&mut self.trace.tensors, place, Some(tensor));
        match self.element_bytes(dtype) {
            Some(bytes) => self.trace.tensors[place as usize].element_bytes = bytes,
            None if self.is_compat() => {
                let name = self.trace.strings.get(dtype).into_owned();
                return Err(format!("the element type '{name}' is used before it is declared"));
            }
            None => self.untyped.push(place),
        }
        Ok(())
    }

    fn element_bytes(&self, dtype: StringId) -> Option<u64> {
        self.dtypes.get(&dtype).copied().or_else(|| known_element_bytes(&self.trace.strings.get(dtype)))
    }

    fn add_dtype(&mut self, line: &TraceLine<'_>) -> Result<(), LineError> {
        let name = self.intern(&required(line.name.as_ref(), "name", line)?.0);
        let bytes = required(line.bytes, "bytes", line)?;
        match self.dtypes.insert(name, bytes) {
            Some(before) if before != bytes => Err("the element type is defined twice".into()),
            _ => Ok(()),
        }
    }

    fn add_stack(&mut self, line: &TraceLine<'_>, hash: u64) -> Result<(), LineError> {
        let number = required(line.s, "s", line)?;
        let described = self.stacks.describe(number, hash, self.trace.stacks.len());
        let Some(place) = self.claim_definition("stack", number, described)? else { return Ok(()) };
        let frames = line.frames.iter().map(|frame| self.build_frame(frame)).collect();
        set_at(&mut self.trace.stacks, place, Some(frames));
        Ok(())
    }

    fn build_frame(&mut self, frame: &FrameLine<'_>) -> TraceFrame {
        TraceFrame {
            name: self.intern_or_empty(frame.name.as_ref()),
            file: self.intern_or_empty(frame.file.as_ref()),
            line: frame.line.unwrap_or(0),
        }
    }

    fn resolve_stack(&mut self, line: &TraceLine<'_>) -> Result<Option<u32>, LineError> {
        let Some(number) = line.stack else { return Ok(None) };
        if self.is_compat() && !self.stacks.is_described(number) {
            return Err(format!("stack {number} is used before it is defined"));
        }
        let place = self.stacks.index_of(number, self.trace.stacks.len());
        set_at(&mut self.trace.stacks, place, None);
        Ok(Some(place))
    }

    fn build_op(&mut self, line: &TraceLine<'_>) -> Result<Op, LineError> {
        let known = required(line.schema, "schema", line)?;
        let kind = match line.kind.as_ref().map(|kind| &*kind.0) {
            Some("op") => OpKind::Op,
            Some("backward") => OpKind::Backward,
            Some("user") => OpKind::User,
            Some(_) => OpKind::Other,
            None => return Err("an `op` record needs `kind`".into()),
        };
        Ok(Op {
            name: self.intern(&required(line.name.as_ref(), "name", line)?.0),
            overload: self.intern_or_empty(line.overload.as_ref()),
            kind,
            known,
            args: line.args.iter().map(|arg| self.build_arg(arg.as_ref())).collect::<Result<_, _>>()?,
            outs: self.references(&line.outs)?,
            sequence: line.seq,
            stack: self.resolve_stack(line)?,
        })
    }

    fn build_arg(&mut self, arg: Option<&ArgLine>) -> Result<Arg, LineError> {
        Ok(match arg {
            Some(ArgLine { t: Some(handle), w, .. }) => Arg::Tensor(self.resolve_tensor(*handle)?, *w),
            Some(ArgLine { ts: Some(handles), w, .. }) => Arg::Tensors(self.references(handles)?, *w),
            _ => Arg::None,
        })
    }

    fn build_module(&mut self, line: &TraceLine<'_>) -> Result<Module, LineError> {
        let mut module = Module {
            identity: self.intern(&required(line.identity.as_ref(), "self", line)?.0),
            class: self.intern(&required(line.class.as_ref(), "class", line)?.0),
            path: self.intern_or_empty(line.path.as_ref()),
            ..Module::default()
        };
        for param in &line.params {
            module.params.push(Param {
                name: self.intern_or_empty(param.name.as_ref()),
                tensor: self.resolve_tensor(param.t)?,
                grad: param.grad.map(|grad| self.resolve_tensor(grad)).transpose()?,
            });
        }
        for buffer in &line.buffers {
            let name = self.intern_or_empty(buffer.name.as_ref());
            module.buffers.push(NamedTensor { name, tensor: self.resolve_tensor(buffer.t)? });
        }
        Ok(module)
    }

    fn build_optimizer(&mut self, line: &TraceLine<'_>) -> Result<Optimizer, LineError> {
        let identity = self.intern(&required(line.identity.as_ref(), "self", line)?.0);
        let class = self.intern_or_empty(line.class.as_ref());
        let mut params = Vec::with_capacity(line.params.len());
        for param in &line.params {
            let tensor = self.resolve_tensor(param.t)?;
            let grad = param.grad.map(|grad| self.resolve_tensor(grad)).transpose()?;
            let mut state = Vec::with_capacity(param.state.len());
            for (name, t) in &param.state {
                state.push(NamedTensor { name: self.intern(&name.0), tensor: self.resolve_tensor(*t)? });
            }
            params.push(OptimizedParam { tensor, grad, state });
        }
        Ok(Optimizer { identity, class, params })
    }

    fn build_memory(&mut self, line: &TraceLine<'_>, is_free: bool) -> Result<Memory, LineError> {
        let bytes = required(line.bytes, "bytes", line)?;
        if bytes == 0 || bytes > MAX_ALLOCATION_BYTES {
            return Err(format!("`bytes` is {bytes}, which no memory has"));
        }
        Ok(Memory {
            is_free,
            device: self.device_index(&required(line.dev.as_ref(), "dev", line)?.0)?,
            address: parse_address(&required(line.ptr.as_ref(), "ptr", line)?.0)?,
            bytes,
            requested: line.requested,
            stream: line.stream,
            stack: self.resolve_stack(line)?,
        })
    }

    /// Adds the start of a record that may enclose others.
    fn begin_record(&mut self, line: &TraceLine<'_>, hash: u64, what: RecordKind) -> Result<(), LineError> {
        let id = required(line.id, "id", line)?;
        let described = self.ids.describe(id, hash, self.trace.records.len());
        let Some(place) = self.claim_definition("id", id, described)? else { return Ok(()) };
        if line.parent == ParentLine::Id(id) {
            return Err(format!("id {id} is inside of itself"));
        }
        // An id has no entry before its definition, because `add_record` defers unknown parents. `place` is
        // therefore the next index.
        debug_assert_eq!(place as usize, self.trace.records.len());
        let record = self.add_record(line, what)?;
        self.open.entry(line.thread).or_default().push(record);
        Ok(())
    }

    fn add_record(&mut self, line: &TraceLine<'_>, what: RecordKind) -> Result<RecordId, LineError> {
        let time_ns = self.parse_time(line)?;
        let number = self.trace.records.len() as RecordId;
        let parent = match line.parent {
            ParentLine::Root => None,
            ParentLine::Absent => self.open.get(&line.thread).and_then(|open| open.last().copied()),
            ParentLine::Id(id) => match self.ids.entries.get(&id) {
                Some(entry) => Some(entry.place),
                None if self.is_compat() => return Err(format!("parent {id} is used before it is defined")),
                None => {
                    self.pending_parents.push((number, id));
                    None
                }
            },
        };
        let phase = match line.phase.as_ref().map(|phase| &*phase.0) {
            None => TracePhase::Inherited,
            Some("forward") => TracePhase::Of(Phase::Forward),
            Some("backward") => TracePhase::Of(Phase::Backward),
            Some("optimizer") => TracePhase::Of(Phase::Optimizer),
            Some(_) => TracePhase::Other,
        };
        self.trace.records.push(Record { time_ns, end_ns: None, thread: line.thread, parent, phase, what });
        Ok(number)
    }

    fn parse_time(&mut self, line: &TraceLine<'_>) -> Result<i64, LineError> {
        let time_ns = required(line.ts, "ts", line)?;
        if time_ns < self.newest_ns {
            if self.is_compat() {
                return Err(format!(
                    "the time {time_ns} lies before that of the record before, {}",
                    self.newest_ns
                ));
            }
            self.repairs.add(Repair::Unordered, 1);
        }
        self.newest_ns = self.newest_ns.max(time_ns);
        Ok(time_ns)
    }

    fn end_record(&mut self, line: &TraceLine<'_>) -> Result<(), LineError> {
        let id = required(line.id, "id", line)?;
        let time_ns = self.parse_time(line)?;
        let outs = self.references(&line.outs)?;
        let Some(place) = self.ids.entries.get(&id).map(|entry| entry.place) else {
            if self.is_compat() {
                return Err(format!("the end of {id}, which did not begin"));
            }
            self.pending_ends.push((id, time_ns, outs));
            return Ok(());
        };
        let thread = self.trace.records[place as usize].thread;
        if let Some(open) = self.open.get_mut(&thread)
            && let Some(at) = open.iter().rposition(|&open| open == place)
        {
            open.remove(at);
        }
        if !self.set_end(place, time_ns, outs) {
            if self.is_compat() {
                return Err(format!("a second end of {id}"));
            }
            self.repairs.add(Repair::UnknownEnds, 1);
        }
        Ok(())
    }

    /// Sets the end of a record. Returns `false` if the record has already ended.
    fn set_end(&mut self, place: RecordId, time_ns: i64, outs: Vec<TensorId>) -> bool {
        let record = &mut self.trace.records[place as usize];
        if record.end_ns.is_some() {
            return false;
        }
        record.end_ns = Some(time_ns.max(record.time_ns));
        if let RecordKind::Op(op) = &mut record.what {
            op.outs = outs;
        }
        true
    }

    pub(super) fn finish(mut self) -> Result<ReadTrace, TraceError> {
        if !self.is_compat() {
            self.resolve_pending()?;
        }
        Ok(ReadTrace { trace: self.trace, repairs: self.repairs })
    }

    /// Resolves references that appeared before their ids were defined.
    fn resolve_pending(&mut self) -> Result<(), TraceError> {
        for (id, time_ns, outs) in std::mem::take(&mut self.pending_ends) {
            let place = self.ids.entries.get(&id).map(|entry| entry.place);
            if !place.is_some_and(|place| self.set_end(place, time_ns, outs)) {
                self.repairs.add(Repair::UnknownEnds, 1);
            }
        }
        let had_pending_parents = !self.pending_parents.is_empty();
        for (record, id) in std::mem::take(&mut self.pending_parents) {
            match self.ids.entries.get(&id) {
                Some(entry) => self.trace.records[record as usize].parent = Some(entry.place),
                None => self.repairs.add(Repair::Undefined, 1),
            }
        }
        if had_pending_parents && has_cycle(&self.trace.records) {
            return Err(TraceError::Cycle);
        }
        for tensor in std::mem::take(&mut self.untyped) {
            let dtype = self.trace.tensors[tensor as usize].dtype;
            match self.element_bytes(dtype) {
                Some(bytes) => self.trace.tensors[tensor as usize].element_bytes = bytes,
                None => self.repairs.add(Repair::Undefined, 1),
            }
        }
        self.remove_undefined();
        if had_pending_parents || self.repairs.count(Repair::Unordered) > 0 {
            self.sort_by_time();
        }
        Ok(())
    }

    fn remove_undefined(&mut self) {
        if self.tensors.undescribed == 0 && self.stacks.undescribed == 0 {
            return;
        }
        let is_undefined_tensor = self.tensors.undescribed(self.trace.tensors.len());
        let is_undefined_stack = self.stacks.undescribed(self.trace.stacks.len());
        let mut removed = 0;
        let mut missing = |tensor: TensorId| {
            removed += u64::from(is_undefined_tensor[tensor as usize]);
            is_undefined_tensor[tensor as usize]
        };
        for record in &mut self.trace.records {
            match &mut record.what {
                RecordKind::Op(op) => {
                    for arg in &mut op.args {
                        match arg {
                            Arg::Tensor(tensor, _) if missing(*tensor) => *arg = Arg::None,
                            Arg::Tensors(tensors, _) => tensors.retain(|&tensor| !missing(tensor)),
                            _ => {}
                        }
                    }
                    op.outs.retain(|&tensor| !missing(tensor));
                    op.stack = op.stack.filter(|&stack| !is_undefined_stack[stack as usize]);
                }
                RecordKind::Memory(memory) => {
                    memory.stack = memory.stack.filter(|&stack| !is_undefined_stack[stack as usize]);
                }
                RecordKind::Module(module) => {
                    module.params.retain(|param| !missing(param.tensor));
                    for param in &mut module.params {
                        param.grad = param.grad.filter(|&grad| !missing(grad));
                    }
                    module.buffers.retain(|buffer| !missing(buffer.tensor));
                }
                RecordKind::Optimizer(optimizer) => {
                    optimizer.params.retain(|param| !missing(param.tensor));
                    for param in &mut optimizer.params {
                        param.grad = param.grad.filter(|&grad| !missing(grad));
                        param.state.retain(|state| !missing(state.tensor));
                    }
                }
                RecordKind::Grad { param, grad } => {
                    *param = param.filter(|&param| !missing(param));
                    // A gradient record whose gradient is unknown becomes an unnamed mark, so that the indices of the
                    // other records stay the same.
                    if missing(*grad) {
                        record.what = RecordKind::Mark(StringId::EMPTY);
                    }
                }
                RecordKind::Mark(_) => {}
            }
        }
        self.repairs.add(Repair::Undefined, removed);
    }

    /// Sorts the records by time, and removes references to parents that start later than their children.
    fn sort_by_time(&mut self) {
        let records = std::mem::take(&mut self.trace.records);
        let mut order: Vec<u32> = (0..records.len() as u32).collect();
        order.sort_by_key(|&record| records[record as usize].time_ns);
        let mut places = vec![0; records.len()];
        (0..).zip(&order).for_each(|(place, &record)| places[record as usize] = place);
        let mut records: Vec<Option<Record>> = records.into_iter().map(Some).collect();
        for (place, &from) in (0..).zip(&order) {
            let Some(mut record) = records[from as usize].take() else { continue };
            let parent = record.parent.map(|parent| places[parent as usize]);
            record.parent = parent.filter(|&parent| parent < place);
            if parent != record.parent {
                self.repairs.add(Repair::Undefined, 1);
            }
            self.trace.records.push(record);
        }
    }
}

/// Returns the size in bytes of an element type that does not need to be declared, or `None` for other types.
pub(super) fn known_element_bytes(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "f8e4m3" | "f8e5m2" | "i8" | "u8" | "bool" => 1,
        "f16" | "bf16" | "i16" | "u16" => 2,
        "f32" | "i32" | "u32" | "c32" => 4,
        "f64" | "i64" | "u64" | "c64" => 8,
        "c128" => 16,
        _ => return None,
    })
}

/// Sets an entry of a table, which may be the next one. Without a value, only creates the entry, as an empty one.
fn set_at<T: Default>(table: &mut Vec<T>, place: u32, value: Option<T>) {
    if place as usize == table.len() {
        table.push(value.unwrap_or_default());
    } else if let Some(value) = value {
        table[place as usize] = value;
    }
}

fn required<T>(value: Option<T>, name: &str, line: &TraceLine<'_>) -> Result<T, LineError> {
    value.ok_or_else(|| {
        let kind = &line.ev.0;
        let article = if kind.starts_with(['a', 'e', 'o']) { "an" } else { "a" };
        format!("{article} `{kind}` record needs `{name}`")
    })
}

fn parse_address(text: &str) -> Result<u64, LineError> {
    let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or_else(|| {
        format!("'{}' is not an address such as \"0x7f00\"", text.chars().take(40).collect::<String>())
    })
}

/// Returns whether any record is its own ancestor.
fn has_cycle(records: &[Record]) -> bool {
    // Each walk towards the root marks the records it visits with its own number. Reaching a record that
    // already has this number means that there is a cycle. Reaching a record from an earlier walk does not.
    let mut walked = vec![0; records.len()];
    for start in 0..records.len() {
        let mut at = start;
        loop {
            if walked[at] == start + 1 {
                return true;
            }
            if walked[at] != 0 {
                break;
            }
            walked[at] = start + 1;
            match records[at].parent {
                Some(parent) => at = parent as usize,
                None => break,
            }
        }
    }
    false
}
