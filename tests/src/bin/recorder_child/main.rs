//! The scenarios that the tests of `recorder` run as child processes: `recorder_child SCENARIO …`. Each exits with 0 when
//! the child's checks pass; the test then checks the files that the child wrote.
#![allow(unsafe_code)]

mod dumps;
mod endings;
mod forks;
mod holds;
mod plugins;
mod probes;
mod safety;
mod serve;
mod streams;
mod totals;
mod waiting;
mod watched_dumps;

use memtrack_core::TrackingAllocator;
use memtrack_tests::counting::Counting;
use std::alloc::System;
use waiting::Waiting;

/// memtrack's allocator, inside one that independently counts the program's requests, inside one that can wait for a thread.
#[global_allocator]
static ALLOCATOR: Waiting<Counting<TrackingAllocator<System>>> =
    Waiting(Counting::new(TrackingAllocator::system()));

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["totals_exact"] => totals::exact(),
        ["totals_handed_out"] => totals::handed_out(),
        ["totals_sampled"] => totals::sampled(),
        ["totals_short_threads"] => totals::short_threads(),
        ["totals_budget"] => totals::budget(),
        ["totals_cheap"] => totals::cheap(),
        ["totals_other_rules"] => totals::other_rules(),
        ["totals_many_live"] => totals::many_live(),
        ["totals_many_of_devices"] => totals::many_of_devices(),
        ["totals_many_large"] => totals::many_large(),
        ["serve_heap"] => serve::heap(),
        ["serve_fork"] => serve::fork(),
        ["serve_exit"] => serve::exit(),
        ["hand_over"] => safety::hand_over(),
        ["thread_local_destructors"] => safety::thread_local_destructors(),
        ["thread_churn"] => safety::thread_churn(),
        ["panics"] => safety::panics(),
        ["waiting_for_another_thread", path] => waiting::for_another_thread(path),
        ["reallocations"] => safety::reallocations(),
        ["signals"] => safety::signals(),
        ["small_stacks", on, path] => safety::small_stacks(on == "on", path),
        ["out_of_memory", size, path] => safety::out_of_memory(size.parse().unwrap(), path),
        ["plugins_take_turns", folder] => plugins::take_turns(folder),
        ["plugins_come_and_go", folder] => plugins::come_and_go(folder),
        ["fork_files", path] => forks::files(path),
        ["fork_storm"] => forks::storm(),
        ["fork_cycles"] => forks::cycles(),
        ["fork_stop"] => forks::stop_in_the_child(),
        ["fork_own_bytes"] => forks::own_bytes_in_the_child(),
        ["fork_exec", path] => forks::exec(path),
        ["fork_stream", path] => forks::stream(path),
        ["fork_oom", path] => forks::oom(path),
        ["dump_beside_threads", folder] => dumps::beside_threads_that_record(folder),
        ["dump_without_a_monitor", folder] => dumps::without_a_monitor(folder),
        ["dump_usage", folder] => dumps::usage(folder),
        ["dumps_on_signal", path] => watched_dumps::on_signal(path),
        ["dumps_on_signal_refused", path] => watched_dumps::on_signal_refused(path),
        ["dumps_at_pressure", root, path] => watched_dumps::at_pressure(root, path),
        ["dumps_in_a_group", group, path] => watched_dumps::in_a_group(group, path),
        ["dumps_with_a_trigger", path] => watched_dumps::with_a_trigger(path),
        ["dumps_bad_input", folder] => watched_dumps::bad_input(folder),
        ["probes", how, rounds] => probes::events(how, rounds.parse().unwrap()),
        ["oom", path] => dumps::oom(path),
        ["oom_without_a_folder"] => dumps::oom_without_a_folder(),
        ["oom_observers", folder] => dumps::observers(folder),
        ["oom_observer_storm"] => dumps::observer_storm(),
        ["holds_device", dump] => holds::device(dump),
        ["holds_silent"] => holds::silent(),
        ["holds_allocator"] => holds::allocator(),
        ["holds_flood"] => holds::flood(),
        ["holds_dumps", path] => holds::dumps(path),
        ["holds_end"] => holds::end(),
        ["holds_heap", limit_mib] => holds::heap(limit_mib.parse().unwrap()),
        ["holds_unread_stderr", how] => holds::unread_stderr(how),
        ["holds_until_killed", path] => holds::until_killed(path),
        ["end", how, path] => endings::end(how, path),
        ["stream_until_killed", path, progress] => endings::stream_until_killed(path, progress),
        ["stream_and_wait", path] => endings::stream_and_wait(path),
        ["stream_after_panics", path] => endings::stream_after_panics(path),
        ["parts", how, path] => streams::parts(how, path),
        ["closed_files", path, own] => streams::closed_files(path, own),
        ["full_disk", path] => streams::full_disk(path),
        ["until_the_end", how, after_ms, max_bytes, path, progress] => {
            let number = |text: &str| text.parse().unwrap();
            streams::until_the_end(how, number(after_ms), number(max_bytes), path, progress);
        }
        ["stalled", path] => streams::stalled(path),
        ["panics_while_stalled", path] => streams::panics_while_stalled(path),
        ["too_small", path] => streams::too_small(path),
        ["together", path, max_bytes, size_bytes] => {
            streams::together(path, max_bytes.parse().unwrap(), size_bytes.parse().unwrap());
        }
        ["unread_stderr"] => streams::unread_stderr(),
        ["many_panics", path] => endings::many_panics(path),
        ["fork_many", path] => forks::many(path),
        ["restart"] => endings::restart(),
        ["no_warning"] => endings::no_warning(),
        _ => panic!("no such scenario: {arguments:?}"),
    }
}
