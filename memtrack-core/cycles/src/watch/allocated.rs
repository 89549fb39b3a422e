//! Determines where the device memory in a graph was allocated, according to the recorder.

use crate::graph::Graph;
use memtrack_model::Frame;
use memtrack_model::event::DeviceId;
use memtrack_recorder::recorder::{Allocated, allocated_at};
use memtrack_recorder::reentry;
use memtrack_recorder::stack::modules::loaded_modules;
use memtrack_symbols::Symbolizer;

/// The maximum number of buffers whose stacks are symbolized. Symbolizing reads debug information, which is slow.
const MAX_BUFFERS: usize = 256;

/// Adds the place where the memory was allocated, with its scope and stack, to each value with device memory, if the
/// program is monitored and the allocation was recorded. This reads debug information, which takes a few tenths of a
/// second the first time.
pub fn name_allocations(graph: &mut Graph) {
    let _inside = reentry::enter();
    let mut symbols = None;
    let mut left = MAX_BUFFERS;
    for at in 0..graph.memory.len() {
        let memory = graph.memory[at];
        if graph.nodes[memory.node as usize].allocated.is_some() {
            continue;
        }
        let Some(device) = parse_device_id(graph.text(memory.device)) else { continue };
        let Some(allocated) = allocated_at(device, memory.storage) else { continue };
        left -= 1;
        let symbols = symbols.get_or_insert_with(|| Symbolizer::new(&loaded_modules()));
        let lines = format_allocated(&allocated, symbols);
        if !lines.is_empty() {
            graph.nodes[memory.node as usize].allocated = Some(graph.texts.intern(&lines));
        }
        if left == 0 {
            return;
        }
    }
}

/// Parses the name that a scan gives to a device.
fn parse_device_id(text: &str) -> Option<DeviceId> {
    match text {
        "host" => Some(DeviceId::HOST),
        "pinned" => Some(DeviceId::PINNED),
        "mapped" => Some(DeviceId::MAPPED),
        _ => text.strip_prefix("cuda:")?.parse().ok().map(DeviceId),
    }
}

/// Formats the scope, followed by the program's frames, one per line.
fn format_allocated(allocated: &Allocated, symbols: &mut Symbolizer) -> String {
    let place = &allocated.place;
    let scope = place.full_name();
    let mut lines: Vec<String> = Vec::new();
    if !scope.is_empty() {
        lines.push(format!("in {scope}"));
    }
    lines.extend(frames_of(&allocated.stack, symbols));
    lines.join("\n")
}

/// Returns the program's part of a stack, with one line per frame and without the allocator's frames at the inner end
/// and the runtime's frames at the outer end.
pub(crate) fn frames_of(stack: &[u64], symbols: &mut Symbolizer) -> Vec<String> {
    /// The maximum number of frames.
    const MAX_FRAMES: usize = 24;
    let frames = symbols.stack(stack);
    let inner = frames.iter().skip_while(|frame| is_plumbing(&frame.function));
    let own = inner
        .take_while(|frame| !frame.function.starts_with("std::sys::backtrace::__rust_begin_short_backtrace"));
    own.filter(|frame| !frame.function.starts_with("core::ops::function::"))
        .take(MAX_FRAMES)
        .map(format_frame)
        .collect()
}

/// Returns whether a function belongs to the layers between the program and its allocator.
fn is_plumbing(function: &str) -> bool {
    let name = function.trim_start_matches('<');
    let krate = name.split("::").next().unwrap_or_default();
    // Compare whole names, because a program's own crate may also be called `memtrack_…`.
    let is_memtrack = krate
        .strip_prefix("memtrack_")
        .is_some_and(|part| ["allocator", "core", "cuda", "recorder"].contains(&part));
    is_memtrack
        || ["__rust", "__rdl", "alloc::", "core::", "std::", "hashbrown::"]
            .iter()
            .any(|begin| name.starts_with(begin))
}

fn format_frame(frame: &Frame) -> String {
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{file}:{line}:{}", frame.function),
        (Some(file), None) => format!("{file}:{}", frame.function),
        (None, _) => frame.function.clone(),
    }
}
