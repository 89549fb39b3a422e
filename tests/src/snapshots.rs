//! Builds snapshots by hand, event by event, for tests that check numbers.

use memtrack_core::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};
use memtrack_core::snapshot::pytorch::{Encoding, PytorchSnapshot, write};
use memtrack_core::snapshot::{
    Clock, DeviceStatistics, LiveBlock, Meta, Module, Scope, ScopeKind, Snapshot, Thread,
};

/// Returns the pickle of a snapshot in PyTorch's format.
pub fn pickle(snapshot: &Snapshot) -> Vec<u8> {
    encoded(snapshot, Encoding::Pickle).expect("a pickle can contain every value")
}

/// Encodes a snapshot in PyTorch's format.
///
/// # Errors
/// When the encoding cannot represent one of its values.
pub fn encoded(snapshot: &Snapshot, encoding: Encoding) -> std::io::Result<Vec<u8>> {
    let snapshot = PytorchSnapshot::try_from(snapshot.clone()).expect("it is in PyTorch's form");
    write(&snapshot, Vec::new(), encoding)
}

/// Returns an event on the host at `ticks` that is not sampled, and has neither a stack nor a scope.
pub fn event(ticks: u64, action: Action, address: u64, size_bytes: u64) -> Event {
    Event {
        ticks,
        address,
        size_bytes,
        stream: StreamId(0),
        stack: StackId::NONE,
        scope: ScopeId::NONE,
        thread: ThreadId(1),
        device: DeviceId::HOST,
        action,
        flags: EventFlags::default(),
    }
}

/// Returns a snapshot without events: it has one thread, and a clock of one tick per nanosecond that starts at 0.
pub fn empty() -> Snapshot {
    let mut snapshot = Snapshot {
        meta: Meta {
            program: "/bin/program".into(),
            pid: 42,
            memtrack_version: "0.1.0".into(),
            max_entries: u64::MAX,
            context: "all".into(),
            complete: true,
            ..Meta::default()
        },
        clock: Clock { first: (0, 0), last: (1_000_000, 1_000_000) },
        ..Snapshot::default()
    };
    snapshot.threads = vec![Thread::default(), Thread { name: "main".into(), os_id: 42 }];
    snapshot
}

/// Returns a small snapshot with rows in every table.
pub fn small() -> Snapshot {
    let mut snapshot = empty();
    let module = Module {
        path: "/bin/program".into(),
        bias: 0x5555_0000_0000,
        start: 0x5555_0000_1000,
        end: 0x5555_0000_9000,
        build_id: "00112233445566778899".into(),
        code_id: String::new(),
    };
    snapshot.modules = vec![module];
    let inner = snapshot.stacks.push(&[0x5555_0000_1234, 0x5555_0000_2345, 0x5555_0000_3456]);
    let outer = snapshot.stacks.push(&[0x5555_0000_2345, 0x5555_0000_3456]);
    let scope = |parent, kind, name: &str| Scope { parent: ScopeId(parent), kind, name: name.into() };
    snapshot.scopes.rows.extend([
        scope(0, ScopeKind::Root, "model"),
        scope(1, ScopeKind::Module, "encoder"),
        scope(2, ScopeKind::Operator, "matmul"),
    ]);
    for step in 0..3 {
        snapshot.marks.push(1_005 + 30 * step, ThreadId(1), if step == 1 { "epoch" } else { "step" });
    }
    for step in 0..8u64 {
        let (address, scope) = (0x7f00_0000_0000 + step * 4096, ScopeId(step as u32 % 4));
        let alloc =
            Event { stack: inner, scope, ..event(1_000 + step * 10, Action::Alloc, address, 1_000 + step) };
        snapshot.events.push(&alloc);
        if step % 2 == 0 {
            let action = if step == 4 { Action::FreeRequested } else { Action::Free };
            snapshot.events.push(&Event { ticks: alloc.ticks + 5, stack: outer, action, ..alloc });
        } else {
            snapshot.blocks.push(live(&alloc));
        }
        if step == 4 {
            snapshot.blocks.push(LiveBlock { pending_free: true, ..live(&alloc) });
        }
    }
    snapshot.blocks.sort_by_key(|block| block.address);
    let count = |allocated: u64, freed: u64| DeviceStatistics {
        recorded: 12,
        allocated_bytes: allocated,
        freed_bytes: freed,
        allocations: 8,
        frees: 4,
        ..DeviceStatistics::of(DeviceId::HOST)
    };
    // The blocks have 1000 to 1007 bytes. All of them were allocated (8028 bytes), and the even sizes were freed (4012 bytes).
    snapshot.devices = vec![count(8_028, 4_012)];
    snapshot
}

/// Returns the live block of an allocation.
pub fn live(alloc: &Event) -> LiveBlock {
    LiveBlock::of_allocation(alloc)
}

/// Returns a snapshot without events and with scopes: 1 to 3 are Net / encoder / matmul, 4 and 5 are a backward pass and
/// its operator loss_grad.
pub fn scoped() -> Snapshot {
    let mut snapshot = empty();
    let scope = |parent, kind, name: &str| Scope { parent: ScopeId(parent), kind, name: name.into() };
    snapshot.scopes.rows.extend([
        scope(0, ScopeKind::Root, "Net"),
        scope(1, ScopeKind::Module, "encoder"),
        scope(2, ScopeKind::Operator, "matmul"),
        scope(0, ScopeKind::Backward, "backward"),
        scope(4, ScopeKind::Operator, "loss_grad"),
    ]);
    snapshot
}
