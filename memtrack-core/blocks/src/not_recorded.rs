//! Reasons why a file lacks events or stacks, with the calls that would record them.

use memtrack_model::event::{Action, DeviceId};
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::{FrameId, Since, Snapshot};
use memtrack_model::units::counted;

/// Returns the reason why a snapshot has no events, with the call that would record them; `None` if it has events. The
/// `snapshot` must have been read with its events.
pub fn recording_was_off(snapshot: &Snapshot) -> Option<String> {
    if !snapshot.events.is_empty() {
        return None;
    }
    if snapshot.seconds_since() == Since::Start {
        return Some(
            "it has no events: recording was not on while memory was allocated; call memtrack_core::start_monitor() at the \
             program's start, or use memtrack run (with --host for the heap)"
                .to_owned(),
        );
    }
    // If blocks have stacks, recording must have been on at some point.
    if snapshot.blocks.iter().any(|block| !snapshot.frame_keys(block.stack).is_empty()) {
        return Some(
            "it has no trace: recording was stopped before the snapshot was taken; take it before \
             torch.cuda.memory._record_memory_history(enabled=None)"
                .to_owned(),
        );
    }
    Some(
        "it has no trace: recording was not on; call torch.cuda.memory._record_memory_history() before the \
         model is created, and take the snapshot while it is on"
            .to_owned(),
    )
}

/// Returns the reason why allocations on `device` have no stacks in a PyTorch file, with the option that would record
/// them; `None` if all allocations have stacks or the reason is unknown.
pub fn missing_stacks(snapshot: &Snapshot, device: DeviceId) -> Option<String> {
    if snapshot.seconds_since() == Since::Start {
        return None;
    }
    let events = &snapshot.events;
    let (mut all, mut lacking) = (0u64, 0u64);
    for row in events.rows_of(device).filter(|&row| events.action[row] == Action::Alloc) {
        all += 1;
        lacking += u64::from(snapshot.named.get(events.stack[row]).is_empty());
    }
    if lacking == 0 {
        return None;
    }
    if lacking == all {
        let kept = snapshot.blocks.iter().any(|block| !snapshot.named.get(block.stack).is_empty());
        let context = if kept { "context=\"state\"" } else { "context=None or context=\"state\"" };
        return Some(format!(
            "no allocation in the trace has a stack: it was recorded with {context}; record with context=\"all\""
        ));
    }
    if has_native_frames(snapshot) {
        return None;
    }
    Some(format!(
        "{lacking} of {} have no stack: PyTorch recorded only Python stacks (stacks=\"python\"), and a \
         backward pass runs in C++ threads, which have none; record with context=\"all\", stacks=\"all\"",
        counted(all, "allocation")
    ))
}

/// Returns whether any frame is a C++ frame, which means that C++ stacks were recorded.
fn has_native_frames(snapshot: &Snapshot) -> bool {
    (0..snapshot.frames.len()).any(|frame| {
        let frame = FrameId(frame as u32);
        if !snapshot.frames.records.has(frame.index(), Key::Filename) {
            return false;
        }
        let file = snapshot.strings.get(snapshot.frames.filename(frame));
        let is_python = file.ends_with(".py") || file.ends_with(".pyx") || file.starts_with('<');
        !is_python && !file.is_empty()
    })
}
