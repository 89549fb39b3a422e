//! Converts a trace to a snapshot in PyTorch's format that includes the category of each event, as PyTorch's
//! `_profile_to_snapshot` does. This makes the trace accessible to all reports on snapshots and to the
//! viewer.
//!
//! When a block's category changes, the snapshot frees the block and allocates it again, as PyTorch does.
//! Memory that existed before the trace is allocated at the start of the trace.
//!
//! **Why go through a recording's tables?** The trace can then use the same conversion as a recording, which
//! already handles scopes, stacks and categories. The segments of the resulting snapshot have no totals of
//! reserved memory, because a trace does not contain them.

use crate::analysis::Profile;
use crate::category::Category;
use crate::pieces::{Piece, pieces};
use crate::places::{Places, StepPart};
use foldhash::HashMap;
use memtrack_formats::pytorch::convert;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};
use memtrack_model::optrace::{DeviceIndex, Memory, RecordId, RecordKind, TraceFrame};
use memtrack_model::snapshot::pytorch::{Key, PytorchSnapshot, Shape};
use memtrack_model::snapshot::{Clock, EventCategories, LiveBlock, Scope, ScopeKind, Snapshot, StringId};
use memtrack_model::{Frame, NameFrames};
use std::rc::Rc;

/// Returns a snapshot of the given devices. `cpu` becomes the host heap, and `cuda:1` becomes device number
/// 1.
pub fn snapshot(profile: &Profile<'_>, devices: &[DeviceIndex]) -> PytorchSnapshot {
    let begin_ns = profile.begin_ns();
    let mut tables = Tables {
        profile,
        places: Places::of(profile.trace()),
        snapshot: Snapshot::default(),
        frames: vec![Frame { function: "(before the trace)".to_owned(), ..Frame::default() }],
        frame_keys: HashMap::default(),
        stacks: HashMap::default(),
        scopes: HashMap::default(),
    };
    tables.snapshot.meta.complete = true;
    tables.snapshot.meta.program = profile.trace().header.producer.0.clone();
    let begin = u64::try_from(begin_ns).unwrap_or(0);
    tables.snapshot.clock = Clock { first: (begin, begin), last: (begin, begin) };
    let mut categories = Vec::new();
    for (&device, id) in devices.iter().zip(device_ids(profile, devices)) {
        tables.add_device(device, id, begin_ns, &mut categories);
    }
    let names = Category::labels();
    // This cannot fail, because the categories have not been set yet.
    let _ = tables.snapshot.categories.set(EventCategories { names, of_event: categories });
    let mut frames = FramesByKey(tables.frames);
    remove_reserved(convert(&tables.snapshot, &mut frames))
}

/// Returns the devices' ids in the snapshot. Each id is the number in the device's name, or the next free
/// number.
fn device_ids(profile: &Profile<'_>, devices: &[DeviceIndex]) -> Vec<DeviceId> {
    let mut used: Vec<DeviceId> = Vec::new();
    for &device in devices {
        let name = profile.device_name(device);
        let named = name.rsplit_once(':').and_then(|(_, number)| number.parse().ok()).unwrap_or(0);
        let mut free =
            (named..).chain(0..).map(DeviceId).filter(|id| id.is_accelerator() && !used.contains(id));
        let host = Some(DeviceId::HOST).filter(|host| name == "cpu" && !used.contains(host));
        used.extend(host.or_else(|| free.next()));
    }
    used
}

/// Removes the fields that concern reserved memory. The trace contains only blocks, so reserved sizes are
/// unknown. The remaining fields are the ones in PyTorch's own segments for a profile.
fn remove_reserved(snapshot: PytorchSnapshot) -> PytorchSnapshot {
    const SEGMENT_KEYS: [Key; 5] = [Key::Device, Key::Address, Key::TotalSize, Key::Stream, Key::Blocks];
    let mut snapshot = snapshot.into_snapshot();
    if let Some(pytorch) = &mut snapshot.pytorch {
        let segments = &mut pytorch.segments;
        // Addresses of 2^63 and above are stored in `exact` rather than in their column, along with the position of their
        // key, which is 1. Remove all other entries.
        segments.exact.retain(|odd| odd.place == 1);
        segments.shapes.iter_mut().for_each(|shape| *shape = Shape::of(&SEGMENT_KEYS));
    }
    PytorchSnapshot::try_from(snapshot).expect("it had that form")
}

/// The key of the frame that stands for whatever allocated memory before the trace.
const BEFORE_THE_TRACE: u64 = 1;

struct Tables<'a> {
    profile: &'a Profile<'a>,
    places: Places,
    snapshot: Snapshot,
    /// The frames. A frame's key is its index plus 1. Stacks contain these keys in place of addresses.
    frames: Vec<Frame>,
    frame_keys: HashMap<TraceFrame, u64>,
    stacks: HashMap<Vec<u64>, StackId>,
    scopes: HashMap<(ScopeId, ScopeKind, String), ScopeId>,
}

impl Tables<'_> {
    /// Appends a device's events and blocks, and the category of each event.
    fn add_device(&mut self, device: DeviceIndex, id: DeviceId, begin_ns: i64, categories: &mut Vec<u8>) {
        /// The order of simultaneous events. Frees come before allocations, except for the free of a piece
        /// that was allocated at the same time.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        enum EventOrder {
            Free,
            Allocation,
            FreeAtAllocation,
        }
        let mut events: Vec<(i64, EventOrder, Event, Category)> = Vec::new();
        for piece in pieces(self.profile, device) {
            let begin = piece.begin_ns.unwrap_or(begin_ns);
            let mut event = self.allocation_event(&piece, id);
            let mut category = piece.category_at(begin);
            events.push((begin, EventOrder::Allocation, event, category));
            for &(since, next) in piece.stages.iter().filter(|stage| stage.0 > begin) {
                if next != category {
                    events.push((since, EventOrder::Free, Event { action: Action::Free, ..event }, category));
                    events.push((since, EventOrder::Allocation, event, next));
                    category = next;
                }
            }
            if let Some(end) = piece.end_ns {
                event.stack = piece.freed_by.map_or(StackId::NONE, |record| self.record_stack(record));
                event.scope = piece.freed_by.map_or(ScopeId::NONE, |record| self.record_scope(record));
                event.action = Action::Free;
                let order = if end == begin { EventOrder::FreeAtAllocation } else { EventOrder::Free };
                events.push((end, order, event, category));
            } else {
                let ticks = u64::try_from(begin).unwrap_or(0);
                self.snapshot.blocks.push(LiveBlock { ticks, ..LiveBlock::of_allocation(&event) });
            }
        }
        events.sort_by_key(|&(time_ns, order, ..)| (time_ns, order));
        for (time_ns, _, event, category) in events {
            self.snapshot.events.push(&Event { ticks: u64::try_from(time_ns).unwrap_or(0), ..event });
            categories.push(1 + category as u8);
        }
    }

    /// Returns the event that allocates a piece.
    fn allocation_event(&mut self, piece: &Piece, device: DeviceId) -> Event {
        let memory = piece.allocated_by.or(piece.freed_by).and_then(|record| self.memory(record));
        let storage = piece.storage.and_then(|storage| self.profile.storages()[storage as usize]);
        let address = storage.map(|storage| storage.address).or(memory.map(|memory| memory.address));
        // The host has no streams; in events, its field is for tasks.
        let stream = memory.and_then(|memory| memory.stream).filter(|_| !device.is_host()).unwrap_or(0);
        Event {
            ticks: 0,
            address: address.unwrap_or(0),
            size_bytes: piece.bytes,
            stream: StreamId(stream),
            stack: match piece.allocated_by {
                Some(record) => self.record_stack(record),
                None => self.intern(vec![BEFORE_THE_TRACE]),
            },
            scope: piece.allocated_by.map_or(ScopeId::NONE, |record| self.record_scope(record)),
            thread: ThreadId::NONE,
            device,
            action: Action::Alloc,
            flags: EventFlags::default(),
        }
    }

    fn memory(&self, record: RecordId) -> Option<&Memory> {
        match &self.profile.trace().records[record as usize].what {
            RecordKind::Memory(memory) => Some(memory),
            _ => None,
        }
    }

    fn text(&self, id: StringId) -> String {
        self.profile.trace().strings.get(id).into_owned()
    }

    /// Returns a memory record's stack. If it has none, the names of the enclosing records form the stack.
    fn record_stack(&mut self, record: RecordId) -> StackId {
        let trace = self.profile.trace();
        if let Some(stack) = self.memory(record).and_then(|memory| memory.stack) {
            let keys: Vec<u64> =
                trace.stacks[stack as usize].iter().map(|&frame| self.frame_key(frame)).collect();
            return self.intern(keys);
        }
        let mut keys = Vec::new();
        let mut at = trace.records[record as usize].parent;
        while let Some(parent) = at {
            let record = &trace.records[parent as usize];
            let name = match &record.what {
                RecordKind::Op(op) => op.name,
                RecordKind::Module(module) if module.path != StringId::EMPTY => module.path,
                RecordKind::Module(module) => module.class,
                _ => StringId::EMPTY,
            };
            if name != StringId::EMPTY {
                keys.push(self.frame_key(TraceFrame { name, ..TraceFrame::default() }));
            }
            at = record.parent;
        }
        self.intern(keys)
    }

    fn frame_key(&mut self, frame: TraceFrame) -> u64 {
        if let Some(&key) = self.frame_keys.get(&frame) {
            return key;
        }
        let file = self.text(frame.file);
        self.frames.push(Frame {
            function: self.text(frame.name),
            file: (!file.is_empty()).then_some(file),
            line: (frame.line > 0).then_some(frame.line),
            binary: None,
        });
        let key = self.frames.len() as u64;
        self.frame_keys.insert(frame, key);
        key
    }

    fn intern(&mut self, keys: Vec<u64>) -> StackId {
        if keys.is_empty() {
            return StackId::NONE;
        }
        let stacks = &mut self.snapshot.stacks;
        *self.stacks.entry(keys).or_insert_with_key(|keys| stacks.push(keys))
    }

    /// Returns a record's scope, which consists of its modules, phase and operator as nested scopes.
    fn record_scope(&mut self, record: RecordId) -> ScopeId {
        let place = self.places.get(record);
        let mut modules = Vec::new();
        let mut at = place.module;
        while let Some(module) = at {
            let node = &self.places.modules[module as usize];
            let kind = if node.parent.is_none() { ScopeKind::Root } else { ScopeKind::Module };
            modules.push((kind, node.name.clone()));
            at = node.parent;
        }
        let mut scope = ScopeId::NONE;
        for (kind, name) in modules.into_iter().rev() {
            scope = self.child_scope(scope, kind, name);
        }
        match place.part {
            StepPart::Backward => scope = self.child_scope(scope, ScopeKind::Backward, "backward".to_owned()),
            StepPart::Optimizer => {
                scope = self.child_scope(scope, ScopeKind::Optimizer, "optimizer".to_owned())
            }
            StepPart::Forward | StepPart::Other => {}
        }
        if let Some(operator) = place.operator {
            scope = self.child_scope(scope, ScopeKind::Operator, self.profile.operator_name(operator));
        }
        scope
    }

    fn child_scope(&mut self, parent: ScopeId, kind: ScopeKind, name: String) -> ScopeId {
        let rows = &mut self.snapshot.scopes.rows;
        *self.scopes.entry((parent, kind, name)).or_insert_with_key(|(parent, kind, name)| {
            rows.push(Scope { parent: *parent, kind: *kind, name: name.clone() });
            ScopeId(rows.len() as u32 - 1)
        })
    }
}

/// Looks up frames by key.
struct FramesByKey(Vec<Frame>);

impl NameFrames for FramesByKey {
    fn frames(&mut self, key: u64) -> Rc<[Frame]> {
        let frame = key.checked_sub(1).and_then(|place| self.0.get(place as usize));
        Rc::from([frame.cloned().unwrap_or_else(|| Frame { function: key.to_string(), ..Frame::default() })])
    }
}
