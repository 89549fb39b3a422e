//! Builds a recording's operator trace from its operator log and its events.

use super::{PRODUCER, ROOT_PREFIX, RecordedTrace, lacks_records};
use crate::interner::Interner;
use foldhash::HashMap;
use memtrack_file::operators::{Entry, LoggedLine, LoggedTensor, Registration};
use memtrack_model::Phase;
use memtrack_model::event::{Action, DeviceId, ScopeId, ThreadId};
use memtrack_model::operators::TensorInfo;
use memtrack_model::optrace::{
    Arg, DeviceIndex, Header, Memory, Module, NamedTensor, Op, OpKind, OperatorTrace, OptimizedParam,
    Optimizer, Param, Record, RecordId, RecordKind, Tensor, TensorId, TracePhase,
};
use memtrack_model::snapshot::{ScopeKind, Snapshot, StringId};
use std::collections::BTreeMap;

/// A trace under construction.
pub(super) struct Builder<'a> {
    snapshot: &'a Snapshot,
    trace: OperatorTrace,
    rows: Vec<Option<u32>>,
    strings: Interner,
    devices: HashMap<DeviceId, DeviceIndex>,
    tensors: HashMap<TensorInfo<'static>, TensorId>,
    open: HashMap<ThreadId, OpenRecords>,
    /// For each scope, its open records and the threads on which they started.
    threads: HashMap<ScopeId, BTreeMap<RecordId, ThreadId>>,
    /// The record that registers each module, keyed by the module's number in the log.
    modules: HashMap<u64, RecordId>,
    /// For each thread, the record of the optimizer whose state the thread is currently registering.
    optimizer: HashMap<ThreadId, RecordId>,
}

/// A thread's open records, with constant-time lookup by scope.
#[derive(Default)]
struct OpenRecords {
    /// The records from outermost to innermost. A record that another thread has ended stays here until it is
    /// innermost.
    stack: Vec<RecordId>,
    by_scope: HashMap<ScopeId, Vec<RecordId>>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let is_partial = lacks_records(snapshot) || snapshot.may_lack_small_blocks();
        let header = Header {
            unix_time: true,
            producer: (PRODUCER.to_owned(), snapshot.meta.memtrack_version.clone()),
            pid: Some(snapshot.meta.pid.into()),
            partial: is_partial,
            ..Header::default()
        };
        let mut builder = Self {
            snapshot,
            trace: OperatorTrace { header, ..OperatorTrace::default() },
            rows: Vec::new(),
            strings: Interner::default(),
            devices: HashMap::default(),
            tensors: HashMap::default(),
            open: HashMap::default(),
            threads: HashMap::default(),
            modules: HashMap::default(),
            optimizer: HashMap::default(),
        };
        builder.mark_start();
        builder
    }

    /// Adds a record for the start of the recording, which is time zero in reports.
    fn mark_start(&mut self) {
        let what = RecordKind::Mark(self.intern("recording started"));
        // The first event may have the same tick as the start of the recording, but no event has an earlier
        // tick.
        let first = self.snapshot.events.ticks.first().copied().unwrap_or(u64::MAX);
        let start = self.snapshot.clock.first.0.min(first);
        self.push(start, ThreadId::NONE, None, TracePhase::Inherited, what);
    }

    /// Adds the events from `row` onwards that are before `ticks`. Returns the first row that was not added.
    pub(super) fn add_events_before(&mut self, mut row: usize, ticks: u64) -> usize {
        let events = &self.snapshot.events;
        while row < events.len() && events.ticks[row] < ticks {
            let is_free = match events.action[row] {
                Action::Alloc => Some(false),
                Action::Free | Action::FreeRequested => Some(true),
                _ => None,
            };
            // Skip events of zero bytes.
            if let Some(is_free) = is_free.filter(|_| events.size_bytes[row] > 0) {
                let memory = Memory {
                    is_free,
                    device: self.device_index(events.device[row]),
                    address: events.address[row],
                    bytes: events.size_bytes[row],
                    requested: None,
                    stream: Some(events.stream[row].0).filter(|&stream| stream != 0),
                    stack: None,
                };
                // A free event has the scope of its allocation, so use the innermost open scope instead.
                let scope = (!is_free).then_some(events.scope[row]);
                let parent = self.find_parent(events.thread[row], scope);
                let what = RecordKind::Memory(memory);
                self.push(events.ticks[row], events.thread[row], parent, TracePhase::Inherited, what);
                *self.rows.last_mut().expect("just pushed") = Some(row as u32);
            }
            row += 1;
        }
        row
    }

    /// Adds a line from the log.
    pub(super) fn add_line(&mut self, line: &LoggedLine<'_>) {
        let (ticks, thread) = (line.ticks, line.thread);
        if !matches!(line.entry, Entry::State(..)) {
            self.optimizer.remove(&thread);
        }
        match &line.entry {
            Entry::Enter(scope) => self.enter(ticks, thread, *scope),
            Entry::Leave(scope) => self.leave(ticks, thread, *scope),
            Entry::Inputs(tensors) => {
                let args = tensors
                    .iter()
                    .map(|tensor| Arg::Tensor(self.add_tensor(&tensor.info), Some(tensor.written)));
                let args: Vec<Arg> = args.collect();
                if let Some(op) = self.innermost_op(thread) {
                    op.known = true;
                    op.args.extend(args);
                }
            }
            Entry::Outputs(tensors) => {
                let outs: Vec<TensorId> =
                    tensors.iter().map(|tensor| self.add_tensor(&tensor.info)).collect();
                if let Some(op) = self.innermost_op(thread) {
                    op.known = true;
                    op.outs.extend(outs);
                }
            }
            Entry::Parameter(owned, tensor, grad) => {
                let tensor = self.add_tensor(&tensor.info);
                let grad = grad.as_ref().map(|grad| self.add_tensor(&grad.info));
                let name = self.intern(owned.name);
                self.registered_module(ticks, thread, *owned).params.push(Param { name, tensor, grad });
            }
            Entry::Buffer(owned, tensor) => {
                let (tensor, name) = (self.add_tensor(&tensor.info), self.intern(owned.name));
                self.registered_module(ticks, thread, *owned).buffers.push(NamedTensor { name, tensor });
            }
            Entry::State(owned, parameter, state) => {
                self.add_state(ticks, thread, *owned, (parameter, state))
            }
            Entry::Gradient(parameter, gradient) => {
                let param = parameter.as_ref().map(|parameter| self.add_tensor(&parameter.info));
                let grad = self.add_tensor(&gradient.info);
                let parent = self.find_parent(thread, None);
                self.push(ticks, thread, parent, TracePhase::Inherited, RecordKind::Grad { param, grad });
            }
        }
    }

    pub(super) fn finish(self) -> RecordedTrace {
        RecordedTrace { trace: self.trace, rows: self.rows }
    }

    fn enter(&mut self, ticks: u64, thread: ThreadId, scope: ScopeId) {
        let Some(row) = self.snapshot.scopes.rows.get(scope.index()).filter(|_| !scope.is_none()) else {
            return;
        };
        let place = self.snapshot.scopes.place(scope);
        let op = |builder: &mut Self, kind| {
            RecordKind::Op(Op { name: builder.intern(&row.name), kind, ..Op::default() })
        };
        let (what, phase) = match row.kind {
            ScopeKind::Operator => (op(self, OpKind::Op), TracePhase::Inherited),
            ScopeKind::Backward => (op(self, OpKind::Backward), TracePhase::Of(Phase::Backward)),
            ScopeKind::Optimizer => (op(self, OpKind::Other), TracePhase::Of(Phase::Optimizer)),
            ScopeKind::Module | ScopeKind::Root => {
                // A root's name is not part of module paths, but it serves as the path of the root's own
                // record.
                let path = place.module_path();
                // The prefix marks roots, because operator names do not include the names of roots.
                let identity = if row.kind == ScopeKind::Root { ROOT_PREFIX } else { "scope " };
                let module = Module {
                    identity: self.intern(&format!("{identity}{}", scope.0)),
                    class: self.intern(&row.name),
                    path: self.intern(if path.is_empty() { &row.name } else { &path }),
                    ..Module::default()
                };
                (RecordKind::Module(module), place.phase.map_or(TracePhase::Inherited, TracePhase::Of))
            }
        };
        let parent = self.find_parent(thread, Some(row.parent));
        let record = self.push(ticks, thread, parent, phase, what);
        let open = self.open.entry(thread).or_default();
        open.stack.push(record);
        open.by_scope.entry(scope).or_default().push(record);
        self.threads.entry(scope).or_default().insert(record, thread);
    }

    fn leave(&mut self, ticks: u64, thread: ThreadId, scope: ScopeId) {
        let end_ns = self.time_ns(ticks);
        let Some(threads) = self.threads.get_mut(&scope) else { return };
        let here = self.open.get(&thread).and_then(|open| open.by_scope.get(&scope)?.last().copied());
        // If the scope is not open on this thread, it belongs to a future that was entered on another thread. In that case,
        // end the scope's latest record.
        let Some(record) = here.or_else(|| threads.last_key_value().map(|(&record, _)| record)) else {
            return;
        };
        self.trace.records[record as usize].end_ns = Some(end_ns);
        let Some(open) = threads.remove(&record).and_then(|thread| self.open.get_mut(&thread)) else {
            return;
        };
        if let Some(records) = open.by_scope.get_mut(&scope) {
            records.pop();
        }
        while open.stack.pop_if(|record| self.trace.records[*record as usize].end_ns.is_some()).is_some() {}
    }

    /// Returns the innermost open record that encloses code running in `scope` on `thread`. If the scope is
    /// known, only records of the scope and its ancestors are considered, because a suspended future leaves
    /// its record open on a thread that then runs unrelated code. If none of them is open on this thread,
    /// records on other threads are also considered, because scopes can be carried over to other threads.
    fn find_parent(&self, thread: ThreadId, scope: Option<ScopeId>) -> Option<RecordId> {
        let Some(scope) = scope else { return self.innermost(self.open.get(&thread)?) };
        let here = self.open.get(&thread).and_then(|open| {
            self.ancestors(scope).find_map(|scope| open.by_scope.get(&scope)?.last().copied())
        });
        here.or_else(|| {
            self.ancestors(scope).find_map(|scope| Some(*self.threads.get(&scope)?.last_key_value()?.0))
        })
    }

    /// Returns a scope followed by its enclosing scopes, from the inside out.
    fn ancestors(&self, scope: ScopeId) -> impl Iterator<Item = ScopeId> + '_ {
        // A scope's id is larger than those of its enclosing scopes.
        let parent_of = |scope: &ScopeId| {
            let row = self.snapshot.scopes.rows.get(scope.index())?;
            Some(row.parent).filter(|parent| parent < scope && !parent.is_none())
        };
        std::iter::successors(Some(scope).filter(|scope| !scope.is_none()), parent_of)
    }

    fn innermost(&self, open: &OpenRecords) -> Option<RecordId> {
        let is_open = |record: &RecordId| self.trace.records[*record as usize].end_ns.is_none();
        open.stack.last().copied().filter(is_open)
    }

    fn innermost_op(&mut self, thread: ThreadId) -> Option<&mut Op> {
        let record = self.innermost(self.open.get(&thread)?)?;
        match &mut self.trace.records[record as usize].what {
            RecordKind::Op(op) => Some(op),
            _ => None,
        }
    }

    fn registered_module(&mut self, ticks: u64, thread: ThreadId, owned: Registration<'_>) -> &mut Module {
        let record = match self.modules.get(&owned.owner) {
            Some(&record) => record,
            None => {
                let (class, path) = (self.intern(owned.class), self.intern(owned.class));
                let identity = self.intern(&format!("registered {}", owned.owner));
                let module = Module { identity, class, path, ..Module::default() };
                let record = self.push_instant(ticks, thread, RecordKind::Module(module));
                self.modules.insert(owned.owner, record);
                record
            }
        };
        match &mut self.trace.records[record as usize].what {
            RecordKind::Module(module) => module,
            _ => unreachable!("it was made as one"),
        }
    }

    fn add_state(
        &mut self,
        ticks: u64,
        thread: ThreadId,
        owned: Registration<'_>,
        (parameter, state): (&LoggedTensor, &LoggedTensor),
    ) {
        let (parameter, state) = (self.add_tensor(&parameter.info), self.add_tensor(&state.info));
        let state = NamedTensor { name: self.intern(owned.name), tensor: state };
        let record = match self.optimizer.get(&thread) {
            Some(&record) => record,
            None => {
                // Only the first record with a given identity registers tensors, so the identity must be
                // unique.
                let identity = self.intern(&format!("{} {}", owned.class, self.trace.records.len()));
                let optimizer = Optimizer { identity, class: self.intern(owned.class), params: Vec::new() };
                let record = self.push_instant(ticks, thread, RecordKind::Optimizer(optimizer));
                self.optimizer.insert(thread, record);
                record
            }
        };
        let RecordKind::Optimizer(optimizer) = &mut self.trace.records[record as usize].what else { return };
        match optimizer.params.iter_mut().rfind(|of| of.tensor == parameter) {
            Some(of) => of.state.push(state),
            None => {
                optimizer.params.push(OptimizedParam { tensor: parameter, grad: None, state: vec![state] })
            }
        }
    }

    /// Adds a record that starts and ends at `ticks`.
    fn push_instant(&mut self, ticks: u64, thread: ThreadId, what: RecordKind) -> RecordId {
        let parent = self.find_parent(thread, None);
        let record = self.push(ticks, thread, parent, TracePhase::Inherited, what);
        let record_of = &mut self.trace.records[record as usize];
        record_of.end_ns = Some(record_of.time_ns);
        record
    }

    fn push(
        &mut self,
        ticks: u64,
        thread: ThreadId,
        parent: Option<RecordId>,
        phase: TracePhase,
        what: RecordKind,
    ) -> RecordId {
        let number = self.trace.records.len() as RecordId;
        let time_ns = self.time_ns(ticks);
        let os_thread = self.snapshot.threads.get(thread.index()).map_or(0, |thread| thread.os_id);
        let thread = if os_thread == 0 { thread.0.into() } else { os_thread };
        self.trace.records.push(Record { time_ns, end_ns: None, thread, parent, phase, what });
        self.rows.push(None);
        number
    }

    fn time_ns(&self, ticks: u64) -> i64 {
        i64::try_from(self.snapshot.clock.time_ns(ticks)).unwrap_or(i64::MAX)
    }

    fn intern(&mut self, text: &str) -> StringId {
        self.strings.intern(&mut self.trace.strings, text)
    }

    fn device_index(&mut self, device: DeviceId) -> DeviceIndex {
        if let Some(&index) = self.devices.get(&device) {
            return index;
        }
        let index = DeviceIndex(self.trace.devices.len() as u16);
        self.trace.devices.push(device_name(device));
        self.devices.insert(device, index);
        index
    }

    fn add_tensor(&mut self, info: &TensorInfo<'static>) -> TensorId {
        if let Some(&tensor) = self.tensors.get(info) {
            return tensor;
        }
        let sizes: Vec<u64> = info.sizes.iter().map(|&size| size as u64).collect();
        let strides = match &info.strides {
            Some(strides) => {
                strides.iter().map(|&stride| i64::try_from(stride).unwrap_or(i64::MAX)).collect()
            }
            None => contiguous_strides(&sizes),
        };
        let tensor = Tensor {
            identity: self.intern(&format!("{:#x}", info.identity)),
            storage: info.storage,
            device: self.device_index(info.device),
            dtype: self.intern(info.dtype.name()),
            element_bytes: info.dtype.bytes(),
            sizes,
            strides: Some(strides),
            layout: self.intern("strided"),
            storage_bytes: info.storage_bytes,
            name: StringId::EMPTY,
        };
        let id = self.trace.tensors.len() as TensorId;
        self.trace.tensors.push(tensor);
        self.tensors.insert(info.clone(), id);
        id
    }
}

/// Returns the name that traces use for a device.
pub(super) fn device_name(device: DeviceId) -> String {
    match device {
        DeviceId::HOST => "cpu".to_owned(),
        DeviceId::PINNED => "pinned".to_owned(),
        DeviceId::MAPPED => "mapped".to_owned(),
        DeviceId(ordinal) => format!("cuda:{ordinal}"),
    }
}

/// Returns the strides of a contiguous tensor.
fn contiguous_strides(sizes: &[u64]) -> Vec<i64> {
    let mut strides = vec![1; sizes.len()];
    for dimension in (1..sizes.len()).rev() {
        let of_next = i64::try_from(sizes[dimension].max(1)).unwrap_or(i64::MAX);
        strides[dimension - 1] = of_next.saturating_mul(strides[dimension]);
    }
    strides
}
