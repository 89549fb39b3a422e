//! Each item of the recording API, used once: an item that is missing without the recorder does not compile. The tests
//! compile the same file with the recorder (`tests/scope/off.rs`), so that it uses only items that exist.
#![allow(unused_qualifications, reason = "an item with two paths is used through both")]

use memtrack_core::event::{DeviceId, ScopeId, StreamId};
use memtrack_core::operators::{self, Dtype, ReportTensors, TensorInfo, TensorReader};
use memtrack_core::recorder::{self, Context, Enabled, Options, UnknownOption, parse_actions};
use memtrack_core::scope::{
    self, Guard, Phase, ScopeHandle, ScopeKind, ScopePosition, ScopeStep, ScopedFuture,
};
use memtrack_core::{
    OutOfMemory, OutOfMemoryObserver, Recording, References, TrackingAllocator, cycles, host, references,
    snapshot::Snapshot,
};
use std::alloc::{GlobalAlloc, System};
use std::fmt::{Debug, Display};
use std::future::{Ready, ready};
use std::io;
use std::rc::Rc;

pub fn monitors() -> io::Result<()> {
    memtrack_core::start_monitor();
    memtrack_core::start_monitor_with(&Options::new().exact())?;
    memtrack_core::mark("a moment");
    let _: Option<Snapshot> = memtrack_core::snapshot();
    memtrack_core::dump_snapshot("now.memtrack")?;
    let recording: Recording = memtrack_core::stop();
    let _: (&Snapshot, &dyn Display, &dyn Debug) = (recording.snapshot(), &recording, &recording);
    let _ = Recording::default();
    recording.save("run.memtrack")
}

pub fn allocators() -> impl GlobalAlloc {
    const _: TrackingAllocator<System> = TrackingAllocator::system();
    let _: (i64, i64) = (host::own_bytes(), host::internal_heap_bytes());
    host::TrackingAllocator::new(System)
}

pub fn out_of_memory() {
    let observer: OutOfMemoryObserver =
        memtrack_core::attach_out_of_memory_observer(|refused: &OutOfMemory| drop(refused.to_string()));
    observer.detach();
    let _: recorder::OutOfMemoryObserver =
        recorder::attach_out_of_memory_observer(|_: &recorder::OutOfMemory| {});
}

pub fn reports(device: DeviceId, stream: StreamId, address: u64, size: u64) {
    recorder::record_alloc(device, stream, address, size);
    recorder::record_free(device, stream, address, size);
    recorder::record_free_requested(device, stream, address, size);
    recorder::record_free_completed(device, stream, address, size);
    recorder::record_segment_alloc(device, stream, address, size);
    recorder::record_segment_free(device, stream, address, size);
    recorder::record_segment_map(device, stream, address, size);
    recorder::record_segment_unmap(device, stream, address, size);
    recorder::record_oom(device, stream, size, size, size);
    let _ = (Context::None, None::<Enabled>, None::<UnknownOption>, parse_actions(["alloc"]));
}

pub fn scopes() -> ScopedFuture<ScopedFuture<Ready<()>>> {
    let _guards: [Guard; 7] = [
        scope::root("Net"),
        scope::module("encoder"),
        scope::operator("matmul"),
        scope::backward(),
        scope::backward_named("second"),
        scope::optimizer(),
        scope::optimizer_named("sgd"),
    ];
    let here: ScopeHandle = scope::current();
    let _: (ScopeId, ScopePosition<'static>, Guard) = (here.id(), here.place(), here.enter());
    let _ = (None::<Phase>, None::<ScopeStep>);
    scope::future(ScopeKind::Operator, "read", here.future(ready(())))
}

struct Tensor;

impl ReportTensors for Tensor {
    fn report(&self, to: &mut TensorReader<'_>) {
        to.tensor(&TensorInfo::new(0, DeviceId::HOST, Dtype::F32, &[1][..]));
    }
}

pub fn tensors() -> bool {
    let operator: operators::Operator = operators::operator("matmul").input(&Tensor).written(&Tensor);
    operator.output(&Tensor);
    operators::parameters("head", [("weight", &Tensor)]);
    operators::buffers("head", [("mask", &Tensor)]);
    operators::gradient(&Tensor, &Tensor);
    operators::optimizer_state("adam", &Tensor, "exp_avg", &Tensor);
    operators::is_recorded()
}

pub fn counted_pointers<T: References + 'static>(pointer: Rc<T>, wide: Rc<dyn References>) {
    static ROOT: u8 = 0;
    cycles::register(&pointer);
    cycles::register_dyn(&wide);
    cycles::declare_root("root", &ROOT);
    let tracked = cycles::Tracked::new(pointer);
    let _: &Rc<T> = cycles::Tracked::pointer(&tracked);
    let _ = cycles::Tracked::new_dyn(wide);
    let _ = (None::<references::DeviceMemory>, None::<&cycles::DeviceMemory>);
}
