use memtrack_core::recorder::Options;
use memtrack_core::*;
use memtrack_examples::config::Config;
use memtrack_examples::training;
#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();
#[test]
fn look() {
    start_monitor_with(&Options::new().exact().operators()).unwrap();
    training::train(&Config { steps: 2, ..Config::tiny() }, |_, _| ()).unwrap();
    let recording = stop();
    recording.save("/tmp/sdk/t.memtrack").unwrap();
    recording.save_operator_trace("/tmp/sdk/t.optrace.jsonl").unwrap();
    println!("{:?}", recording.snapshot().operators);
    let trace = recording.operator_trace().unwrap();
    println!("{} records, {} tensors", trace.records.len(), trace.tensors.len());
    println!("{}", recording.top(By::Category, 20));
}
