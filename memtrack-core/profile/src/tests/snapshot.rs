//! Tests that the snapshot made from a trace has the trace's categories.

use super::program::{MayWrite, Program, Reads, Writes};
use crate::analysis::analyse;
use crate::category::Category;
use crate::optrace::{Mode, read};
use crate::series::{Bytes, walk};
use crate::snapshot::snapshot;
use memtrack_model::event::{Action, DeviceId};
use memtrack_model::snapshot::pytorch::{Key, PytorchSnapshot};
use memtrack_model::snapshot::{StringId, Value};

/// Replays a snapshot's events on a device. Returns each distinct time in µs with the bytes by category after
/// it.
fn replay(snapshot: &PytorchSnapshot, device: DeviceId) -> Vec<(u64, Bytes)> {
    let mut sums: Vec<(u64, Bytes)> = Vec::new();
    let mut now = Bytes::default();
    for row in snapshot.events.rows_of(device) {
        let event = snapshot.events.get(row);
        let Some(Value::Str(name)) = snapshot.event_value(row, Key::Category) else { panic!("no category") };
        assert_ne!(name, StringId::EMPTY);
        let category = Category::from_name(&snapshot.strings.get(name)).expect("a category");
        match event.action {
            Action::Alloc => now[category as usize] += event.size_bytes as i64,
            Action::FreeCompleted => now[category as usize] -= event.size_bytes as i64,
            _ => {}
        }
        match sums.last_mut().filter(|last| last.0 == event.ticks) {
            Some(last) => last.1 = now,
            None => sums.push((event.ticks, now)),
        }
    }
    sums
}

#[test]
fn events_add_up_to_bytes_of_each_category() {
    let read = read(&include_bytes!("vector.optrace.jsonl")[..], Mode::Tolerant, 1 << 20).unwrap();
    let profile = analyse(&read.trace, Mode::Tolerant).unwrap();
    let device = profile.devices()[0];
    let replay = replay(&snapshot(&profile, &[device]), DeviceId(0));
    let mut wanted: Vec<(u64, Bytes)> = Vec::new();
    walk(&profile, device, |moment| {
        // Preexisting memory appears when the trace starts.
        let time_us = moment.time_ns.max(1000) as u64 / 1000;
        match wanted.last_mut().filter(|last| last.0 == time_us) {
            Some(last) => last.1 = moment.bytes,
            None => wanted.push((time_us, moment.bytes)),
        }
    });
    let changes = |sums: Vec<(u64, Bytes)>| {
        let mut sums: Vec<Bytes> = sums.into_iter().map(|(_, bytes)| bytes).collect();
        sums.dedup();
        sums
    };
    assert_eq!(changes(replay), changes(wanted));
}

#[test]
fn change_of_category_is_free_and_allocation() {
    let mut program = Program::default();
    program.tensor(0, 0x100, 64);
    program.tensor(1, 0x200, 32);
    program.module("Linear", &[0], &[], |inner| {
        inner.op("mm", &[Reads(1), Reads(0)], |inner| inner.alloc_tensor(2, 0x300, 48))
    });
    program.op("use", &[Reads(2)], |_| {});
    // The backward pass writes to an activation, which changes the activation's category from then on.
    program.backward("MmBackward", &[MayWrite(2)], |inner| {
        inner.op("mm", &[Reads(1), Reads(2)], |inner| inner.alloc_tensor(5, 0x600, 64));
        inner.op("mul_", &[Writes(2)], |_| {});
    });
    program.grad(5);
    program.free(0x300, 48);
    let read = program.read(Mode::Tolerant);
    let profile = analyse(&read.trace, Mode::Tolerant).unwrap();
    let device = profile.devices()[0];
    let made = snapshot(&profile, &[device]);
    let of_block: Vec<_> = made
        .events
        .rows_of(DeviceId(0))
        .map(|row| made.events.get(row))
        .filter(|event| event.address == 0x300)
        .map(|event| event.action)
        .collect();
    use Action::{Alloc, FreeCompleted, FreeRequested};
    let once = [Alloc, FreeRequested, FreeCompleted];
    let stages = crate::pieces::pieces(&profile, device)
        .into_iter()
        .find(|piece| piece.bytes == 48)
        .unwrap()
        .stages
        .len();
    assert_eq!((stages, of_block), (2, once.repeat(2)));
    assert_eq!(made.blocks.len(), 3, "weight, input and gradient are left");
}

#[test]
fn devices_keep_their_numbers() {
    let mut program = Program::default();
    program.alloc(0x100, 8);
    for (device, address) in [("cuda:3", 0x200), ("cpu", 0x300), ("xpu:3", 0x400)] {
        program.line(&format!(r#"{{"ev":"alloc","parent":null,"ts":50,"thread":1,"dev":"{device}","ptr":"{address:#x}","bytes":8}}"#));
    }
    let read = program.read(Mode::Tolerant);
    let profile = analyse(&read.trace, Mode::Tolerant).unwrap();
    let made = snapshot(&profile, &profile.devices());
    let mut devices: Vec<u16> = made.blocks.iter().map(|block| block.device.0).collect();
    devices.sort_unstable();
    // The host heap is the device that follows the last accelerator.
    assert_eq!(devices, [0, 3, 4, 5]);
    assert_eq!(made.device_name(DeviceId(5)), "host heap");
}
