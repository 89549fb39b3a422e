//! The current holders of memory, as a paragraph for a program's log.

use memtrack_model::event::DeviceId;
use memtrack_report::analysis::holds::WhoHolds;
#[cfg(feature = "record")]
use {
    memtrack_model::Snapshot,
    memtrack_recorder::recorder::report_hook::{ReportContext, SYMBOL_TIME},
    memtrack_recorder::reentry,
    memtrack_report::analysis::holds::{HoldsQuery, log_text},
    memtrack_symbols::Symbolizer,
};

/// Formats the report that the recorder prints automatically.
#[cfg(feature = "record")]
pub(crate) fn format_report(snapshot: &Snapshot, context: ReportContext<'_>) -> String {
    log_text(snapshot, context.refused.copied(), context.since, SYMBOL_TIME)
}

/// Returns the current holders of memory on `device`. With `None`, it uses the accelerator that holds the most, or the
/// host's heap if there is none. The result lists the lines of your own code that hold the most, the cache, memory that
/// memtrack does not see, growth, and the first thing to do. Returns `None` if nothing is being monitored or nothing
/// was recorded on the device.
///
/// Its `Display` text is a paragraph for the program's log:
///
/// ```
/// use memtrack_core::event::{DeviceId, StreamId};
/// use memtrack_core::recorder::{Options, record_alloc, record_oom};
///
/// memtrack_core::start_monitor_with(&Options::new().without_host_heap())?;
/// let observer = memtrack_core::attach_out_of_memory_observer(|oom| {
///     if let Some(held) = memtrack_core::who_holds(Some(oom.device)) {
///         for line in held.lines() {
///             eprintln!("ERROR {line}"); // `log::error!`, `tracing::error!`
///         }
///     }
/// });
/// record_alloc(DeviceId(0), StreamId(0), 0x7000_0000, 6 << 30);
/// record_oom(DeviceId(0), StreamId(0), 4 << 30, 2 << 30, 8 << 30);
/// # assert!(memtrack_core::who_holds(None).unwrap().lines()[0].starts_with("who holds device 0 now: 6.00 GiB in 1 block"));
/// observer.detach();
/// memtrack_core::stop();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// This function takes a snapshot and spends at most half a second looking up functions, starting with those that hold
/// the most memory.
pub fn who_holds(device: Option<DeviceId>) -> Option<WhoHolds> {
    #[cfg(feature = "record")]
    return of_snapshot(&crate::snapshot()?, device);
    #[cfg(not(feature = "record"))]
    None
}

#[cfg(feature = "record")]
fn of_snapshot(snapshot: &Snapshot, device: Option<DeviceId>) -> Option<WhoHolds> {
    reentry::clone_for_program(|| {
        let symbols = &mut Symbolizer::of(snapshot);
        let query = HoldsQuery::default().symbol_time_limit(SYMBOL_TIME);
        match device {
            Some(device) => WhoHolds::of(snapshot, symbols, device, &query),
            None => WhoHolds::of_all(snapshot, symbols, &query),
        }
    })
}
