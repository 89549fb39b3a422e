//! Where the resident memory of the running program is.

use memtrack_report::resident::ResidentReport;
#[cfg(feature = "record")]
use {
    memtrack_recorder::{recorder::read_pages, reentry, switch},
    memtrack_report::resident::resident as resident_of,
    memtrack_report::top::TopOptions,
    memtrack_symbols::Symbolizer,
};

/// Returns where the resident memory of this process is now: live heap blocks, free memory that the allocator keeps, stacks, files,
/// and what is not explained; and the `lines` lines of code that pin most pages. The rows add up to what the kernel counts. `None`
/// if the host heap is not being monitored, or the system does not let the process read its pages.
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();
/// memtrack_core::start_monitor();
/// let cache: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 1000]).collect();
/// if let Some(resident) = memtrack_core::resident(10) {
///     println!("{resident}");
/// #   assert!(resident.end.resident_bytes > 1_000_000, "{resident}");
/// #   assert_eq!(resident.end.rows.iter().map(|row| row.bytes).sum::<u64>(), resident.end.resident_bytes);
/// }
/// memtrack_core::stop();
/// # drop(cache);
/// ```
///
/// This function reads the list of the process's pages, takes a snapshot, and looks up functions. It takes some 15 ms a GiB and what
/// [`snapshot`](crate::snapshot()) takes; a service should call it when somebody asks. [`Recording::resident`](crate::Recording::resident)
/// is the same at the end of a recording.
pub fn resident(lines: usize) -> Option<ResidentReport> {
    #[cfg(feature = "record")]
    {
        if !switch::is_on(switch::HOST) {
            return None;
        }
        // The pages are read first, because the snapshot's tables take memory. The snapshot has the events since then.
        let reading = read_pages()?;
        let mut snapshot = crate::snapshot()?;
        reentry::clone_for_program(|| {
            snapshot.resident = vec![reading];
            let options = TopOptions::new().limit(lines);
            resident_of(&snapshot, &mut Symbolizer::of(&snapshot), &options, false)
        })
    }
    #[cfg(not(feature = "record"))]
    None
}
