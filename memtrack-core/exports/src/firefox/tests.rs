//! Tests that read the written profile, field by field, and compare it with memtrack's reports.

use super::reader::{Counter, Payload, Profile, Thread};
use super::*;
use crate::fixtures::{Expected, full_recording, read_snapshots};
use std::collections::HashMap;

fn read(snapshot: &Snapshot) -> Profile {
    let mut bytes = Vec::new();
    let options = ExportOptions::of(snapshot);
    write(snapshot, &mut Symbolizer::of(snapshot), &options, &mut bytes).unwrap();
    let profile: Profile = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(profile.meta.preprocessed_profile_version, 55, "the version that `reader` is about");
    assert!(profile.meta.symbolicated && profile.meta.categories.len() == 4);
    assert!(profile.libs.is_empty() && profile.pages.is_empty() && profile.profiler_overhead.is_empty());
    profile.threads.iter().for_each(|thread| check_tables(&profile, thread));
    profile
}

/// Checks that all columns of each table have the same length, and that all references are valid.
fn check_tables(profile: &Profile, thread: &Thread) {
    let categories = &profile.meta.categories;
    let (frames, functions, stacks) = (&thread.frame_table, &thread.func_table, &thread.stack_table);
    assert_eq!([frames.category.len(), frames.subcategory.len(), frames.func.len()], [frames.length; 3]);
    assert!(frames.func.iter().all(|&function| function < functions.length));
    for (&category, &subcategory) in frames.category.iter().zip(&frames.subcategory) {
        assert!(subcategory < categories[category].subcategories.len());
    }
    assert_eq!(functions.name.len(), functions.length);
    assert!(functions.name.iter().all(|&name| !thread.string_array[name].is_empty()));
    assert_eq!([stacks.prefix.len(), stacks.frame.len()], [stacks.length; 2]);
    assert!(stacks.frame.iter().all(|&frame| frame < frames.length));
    for (stack, prefix) in stacks.prefix.iter().enumerate() {
        assert!(prefix.is_none_or(|prefix| prefix < stack), "a caller comes first");
    }
    let markers = &thread.markers;
    let lengths = [
        markers.category.len(),
        markers.data.len(),
        markers.end_time.len(),
        markers.name.len(),
        markers.phase.len(),
        markers.start_time.len(),
    ];
    assert_eq!(lengths, [markers.length; 6]);
    assert!(markers.category.iter().all(|&category| category < categories.len()));
    for data in &markers.data {
        let (Payload::Running { kind: text } | Payload::Moment { detail: text }) = data;
        assert!(!thread.string_array[*text].is_empty());
    }
    let schemas: Vec<_> = profile.meta.marker_schema.iter().map(|schema| &schema.name[..]).collect();
    assert!(schemas.iter().all(|name| ["memtrack-moment", "memtrack-running"].contains(name)), "{schemas:?}");
    assert_eq!(thread.samples.length, 0, "nothing was sampled in time");
    if let Some(allocations) = &thread.native_allocations {
        let lengths = [
            allocations.time.len(),
            allocations.weight.len(),
            allocations.stack.len(),
            allocations.memory_address.len(),
            allocations.thread_id.len(),
        ];
        assert_eq!(lengths, [allocations.length; 5]);
        assert_eq!(allocations.weight_type, "bytes");
        assert!(allocations.time.is_sorted(), "in the order of time");
        assert!(allocations.stack.iter().all(|stack| stack.is_some_and(|stack| stack < stacks.length)));
    }
}

/// Returns the times of a counter, in milliseconds, and its values.
fn counter_values(counter: &Counter) -> Vec<(f64, f64)> {
    let samples = &counter.samples;
    assert_eq!([samples.count.len(), samples.number.len(), samples.time_deltas.len()], [samples.length; 3]);
    let (mut at, mut value) = (0.0, 0.0);
    let add = |(delta, count): (&f64, &f64)| {
        assert!(*delta >= 0.0);
        (at, value) = (at + delta, value + count);
        (at, value)
    };
    samples.time_deltas.iter().zip(&samples.count).map(add).collect()
}

fn find_counter<'a>(profile: &'a Profile, thread: &Thread, name: &str) -> Option<&'a Counter> {
    let found = profile.counters.iter().find(|counter| counter.pid == thread.pid && counter.name == name)?;
    assert_eq!(profile.threads[found.main_thread_index].pid, thread.pid);
    assert_eq!(found.category, "Memory");
    assert!(!found.description.is_empty() && !found.color.is_empty());
    Some(found)
}

/// Returns the functions of a stack, outermost first.
fn stack_functions(thread: &Thread, stack: usize) -> Vec<&str> {
    let mut names = Vec::new();
    let mut at = Some(stack);
    while let Some(stack) = at {
        let function = thread.frame_table.func[thread.stack_table.frame[stack]];
        names.push(&thread.string_array[thread.func_table.name[function]][..]);
        at = thread.stack_table.prefix[stack];
    }
    names.reverse();
    names
}

#[test]
fn counters_and_allocations_agree_with_reports() {
    for (file, snapshot) in read_snapshots() {
        let profile = read(&snapshot);
        for device in snapshot.device_ids() {
            let Some(timeline) = DeviceTimeline::of(&snapshot, device) else { continue };
            let expected = Expected::of(&snapshot, device);
            let what = format!("{file}, {}", timeline.name);
            let thread = profile
                .threads
                .iter()
                .find(|thread| thread.process_name == timeline.format_heading())
                .unwrap();
            assert!(thread.is_main_thread && thread.name == timeline.format_heading(), "{what}");
            let requested = counter_values(find_counter(&profile, thread, "requested").unwrap());
            let highest = |numbers: &[(f64, f64)]| numbers.iter().map(|number| number.1 as u64).max();
            if timeline.estimated {
                // If small blocks were sampled, the series is an estimate, whereas reports use the recorder's exact
                // count.
                assert!(highest(&requested).is_some(), "{what}");
                continue;
            }
            assert_eq!(highest(&requested), Some(expected.peak), "{what}");
            assert_eq!(requested.last().map(|last| last.1 as u64), Some(expected.at_end.0), "{what}");
            if let Some(reserved) = find_counter(&profile, thread, "reserved") {
                assert_eq!(highest(&counter_values(reserved)), Some(expected.reserved), "{what}");
            }
            let Some(allocations) = &thread.native_allocations else {
                assert!(timeline.lifetimes.is_empty(), "{what}");
                continue;
            };
            // The profiler finds retained memory in the same way, by pairing each free with the allocation at its
            // address.
            let mut live: HashMap<u64, i64> = HashMap::new();
            let (mut allocated, mut sum, mut highest) = (0, 0, 0);
            for (&weight, &address) in allocations.weight.iter().zip(&allocations.memory_address) {
                if weight < 0 {
                    assert_eq!(live.remove(&address), Some(-weight), "{what}: a free of what is not there");
                } else {
                    assert_eq!(live.insert(address, weight), None, "{what}: two blocks at one address");
                    allocated += weight;
                }
                sum += weight;
                highest = highest.max(sum);
            }
            let older = requested[0].1 as i64;
            assert_eq!((allocated - older) as u64, expected.allocated.0, "{what}");
            assert_eq!((highest as u64, sum as u64), (expected.peak, expected.at_end.0), "{what}");
            assert_eq!(live.values().sum::<i64>() as u64, expected.at_end.0, "{what}");
            if !timeline.estimated {
                let empty =
                    timeline.lifetimes.iter().filter(|block| block.bytes == 0 && block.to.is_none()).count();
                assert_eq!((live.len() + empty) as u64, expected.at_end.1, "{what}");
            }
        }
    }
}

#[test]
fn all_data_is_in_right_table() {
    let profile = read(&full_recording());
    assert!(profile.meta.product.starts_with("train — memtrack "), "{}", profile.meta.product);
    assert_eq!(profile.meta.start_time, 1000.0);
    let names: Vec<_> = profile
        .threads
        .iter()
        .map(|thread| (&thread.process_name[..], &thread.name[..], &thread.pid[..]))
        .collect();
    assert_eq!(
        names,
        [
            ("device 0", "device 0", "4242"),
            ("train", "main (thread 4242)", "4242.1"),
            ("train", "worker (thread 4243)", "4242.1")
        ]
    );
    assert_eq!(profile.meta.initial_visible_threads, [0, 1, 2]);
    let markers = |thread: &Thread| -> Vec<(String, u64, Option<u64>)> {
        let ns = |ms: Option<f64>| (ms.unwrap() * 1e6).round() as u64;
        let markers = &thread.markers;
        let marker = |at: usize| {
            let end = (markers.phase[at] == 1).then(|| ns(markers.end_time[at]));
            (thread.string_array[markers.name[at]].clone(), ns(markers.start_time[at]), end)
        };
        (0..markers.length).map(marker).collect()
    };
    let named = |name: &str, from, to| (name.to_owned(), from, to);
    assert_eq!(markers(&profile.threads[0]), [named("out of memory", 70, None)]);
    assert_eq!(
        markers(&profile.threads[1]),
        [
            named("matmul", 20, Some(20)),
            named("model", 10, Some(40)),
            named("optimizer", 60, Some(60)),
            named("step", 35, None),
            named("step", 65, None),
            named("step", 35, Some(65))
        ]
    );
    assert_eq!(markers(&profile.threads[2]), [named("model", 30, Some(70))]);
    let device = &profile.threads[0];
    assert_eq!(device.samples.weight_type, "bytes");
    let allocations = device.native_allocations.as_ref().unwrap();
    let oldest = allocations.stack[0].unwrap();
    assert_eq!(stack_functions(device, oldest), ["(allocated before the first event)"]);
    let free = find_counter(&profile, device, "free").unwrap();
    assert_eq!(counter_values(free).iter().map(|number| number.1 as u64).collect::<Vec<_>>(), [1234, 77]);
}
