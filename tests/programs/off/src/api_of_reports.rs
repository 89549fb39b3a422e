//! Like `api`, for the features `report` and `plot`.

use memtrack_core::analysis::{holds::WhoHolds, leaks::LeakOptions, moment::Moment};
use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;
use memtrack_core::tracker::{Mark, MemoryTracker, TrackerStats};
use memtrack_core::{By, Recording};
use std::error::Error;

pub fn recordings(recording: Recording) -> Result<(), Box<dyn Error>> {
    let _: &MemoryTracker = recording.tracker();
    let _: Option<WhoHolds> = recording.who_holds();
    let device = DeviceId::HOST;
    recording.top(By::Line, 1);
    recording.top_of(device, By::Line, 1);
    recording.top_at(Moment::End, By::Line, 1);
    recording.top_at_of(device, Moment::End, By::Line, 1);
    recording.leaks(&LeakOptions::default())?;
    recording.phases();
    let _: Recording = recording.with_pattern("my_crate::ops::*");
    Ok(())
}

pub fn running() -> std::io::Result<Option<WhoHolds>> {
    memtrack_core::save_segment_usage("segments.svg")?;
    memtrack_core::save_memory_usage("memory.svg")?;
    Ok(memtrack_core::who_holds(None))
}

pub fn trackers() -> Result<Vec<Mark>, Box<dyn Error>> {
    let mut tracker = MemoryTracker::on(DeviceId::HOST);
    tracker.start_monitor();
    tracker.start_monitor_with(&Options::new())?;
    tracker.stop();
    tracker.summary(20)?;
    tracker.show_traces("traces.svg")?;
    tracker.save_stats("stats.pickle")?;
    let loaded = MemoryTracker::load("stats.pickle")?;
    let _: TrackerStats = loaded.stats();
    let _ = (MemoryTracker::new(), MemoryTracker::default());
    Ok(loaded.marks())
}
