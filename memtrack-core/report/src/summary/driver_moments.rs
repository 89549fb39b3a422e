//! Formats the CUDA driver's reports about a device: recorded memory, memory that the driver's pools cache, and all
//! other memory.

use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{DriverReading, ReadingMoment, Since, Snapshot};
use memtrack_model::units::{counted, human_bytes};

/// A driver reading and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct DriverMoment {
    /// The time of the reading in seconds since [`Self::since`].
    pub seconds: f64,
    /// The origin from which the seconds are counted.
    pub since: Since,
    /// The numbers that the driver reported.
    pub reading: DriverReading,
}

/// Returns a device's readings, newest first.
pub(super) fn driver_moments(snapshot: &Snapshot, device: DeviceId) -> Vec<DriverMoment> {
    let of_device = snapshot.driver.iter().filter(|reading| reading.device == device);
    let moment = |reading: &DriverReading| DriverMoment {
        seconds: snapshot.clock.seconds_since_start(reading.ticks),
        since: snapshot.seconds_since(),
        reading: *reading,
    };
    of_device.map(moment).collect()
}

impl DriverMoment {
    fn format_when(&self) -> String {
        self.since.moment(self.seconds)
    }
}

/// Formats the memory in use on the device by category: recorded, cached by the driver's pools, or not recorded.
pub fn memory_in_use_text(reading: &DriverReading) -> String {
    let bytes = human_bytes;
    let cached = match reading.cached_bytes() {
        0 => String::new(),
        cached => format!("{} cached by the driver's pools, ", bytes(cached)),
    };
    format!(
        "{} recorded here, {cached}{} not recorded (contexts, libraries, other processes)",
        bytes(reading.tracked_bytes),
        bytes(reading.untracked_bytes())
    )
}

/// Describes whether the memory that the driver's pools hold is cached or in use.
fn describe_pools(reading: &DriverReading) -> String {
    let cached = human_bytes(reading.cached_bytes());
    match (reading.pool_used_bytes, reading.cached_bytes()) {
        (_, 0) => "all of it is in use: what stays there is held by the program, not cached".to_owned(),
        (0, _) => {
            format!("nothing is in use: all {cached} are cache, not a leak; cuMemPoolTrimTo releases them")
        }
        (used, _) => format!(
            "{cached} of it are cache, not a leak (cuMemPoolTrimTo releases them); {} are held by the \
             program",
            human_bytes(used)
        ),
    }
}

/// Returns the summary's lines about the driver, each with a title, which is empty for continuation lines.
pub(super) fn driver_lines(moments: &[DriverMoment]) -> Vec<(&'static str, String)> {
    let bytes = human_bytes;
    let of = |moment| moments.iter().find(|one| one.reading.moment == moment);
    let in_use = |one: &DriverMoment| {
        format!(
            "{} of {} in use on the device",
            bytes(one.reading.used_bytes()),
            bytes(one.reading.total_bytes)
        )
    };
    let mut lines = Vec::new();
    let Some(last) = of(ReadingMoment::Last) else { return lines };
    lines.push(("Driver reports", format!("{}, {} (the last reading)", in_use(last), last.format_when())));
    lines.push(("", memory_in_use_text(&last.reading)));
    if last.reading.opened > 0 {
        let opened = counted(last.reading.opened.into(), "allocation");
        let size = bytes(last.reading.opened_bytes);
        lines.push(("", format!("{opened} of other processes opened, {size}: counted there, not here")));
    }
    let at_oom = of(ReadingMoment::OutOfMemory).filter(|other| other.reading.ticks != last.reading.ticks);
    let fullest =
        of(ReadingMoment::Fullest).filter(|other| other.reading.used_bytes() > last.reading.used_bytes());
    for (other, title) in [(at_oom, "As it ran out"), (fullest, "At its fullest")] {
        if let Some(other) = other {
            lines.push((title, format!("{}, {}", in_use(other), other.format_when())));
            lines.push(("", memory_in_use_text(&other.reading)));
        }
    }
    let pools = &last.reading;
    if pools.pool_reserved_peak_bytes > 0 {
        lines.push((
            "Driver's pools",
            format!(
                "{} reserved, {} of them in use; at most {} and {}",
                bytes(pools.pool_reserved_bytes),
                bytes(pools.pool_used_bytes),
                bytes(pools.pool_reserved_peak_bytes),
                bytes(pools.pool_used_peak_bytes)
            ),
        ));
        if pools.pool_reserved_bytes > 0 {
            lines.push(("", describe_pools(pools)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(moment: ReadingMoment, ticks: u64, pools: (u64, u64)) -> DriverMoment {
        let reading = DriverReading {
            moment,
            ticks,
            free_bytes: 2 << 30,
            total_bytes: 8 << 30,
            tracked_bytes: 3 << 30,
            pools: 1,
            pool_reserved_bytes: pools.0 << 30,
            pool_reserved_peak_bytes: 4 << 30,
            pool_used_bytes: pools.1 << 30,
            pool_used_peak_bytes: 3 << 30,
            ..DriverReading::default()
        };
        DriverMoment { seconds: ticks as f64, since: Since::FirstEvent, reading }
    }

    fn text(moments: &[DriverMoment]) -> String {
        driver_lines(moments).iter().map(|(title, text)| format!("{title}: {text}\n")).collect()
    }

    #[test]
    fn unrecorded_memory_and_cache_are_separate() {
        let page = text(&[moment(ReadingMoment::Last, 5, (3, 1)), moment(ReadingMoment::Fullest, 5, (3, 1))]);
        assert_eq!(
            page,
            "Driver reports: 6.00 GiB of 8.00 GiB in use on the device, 5.000 s after the first event (the \
             last reading)\n: 3.00 GiB recorded here, 2.00 GiB cached by the driver's pools, 1.00 GiB not \
             recorded (contexts, libraries, other processes)\nDriver's pools: 3.00 GiB reserved, 1.00 GiB \
             of them in use; at most 4.00 GiB and 3.00 GiB\n: 2.00 GiB of it are cache, not a leak \
             (cuMemPoolTrimTo releases them); 1.00 GiB are held by the program\n"
        );
    }

    #[test]
    fn pool_in_use_is_not_cache_and_idle_pool_is_not_leak() {
        assert!(text(&[moment(ReadingMoment::Last, 5, (3, 3))]).contains("held by the program, not cached"));
        let idle = text(&[moment(ReadingMoment::Last, 5, (3, 0))]);
        assert!(idle.contains("all 3.00 GiB are cache, not a leak"), "{idle}");
        assert_eq!(driver_lines(&[]), []);
    }

    #[test]
    fn other_moments_are_listed_if_they_differ() {
        let mut fullest = moment(ReadingMoment::Fullest, 4, (3, 1));
        let last = moment(ReadingMoment::Last, 5, (3, 1));
        assert!(!text(&[last, fullest]).contains("fullest"), "no more than at last");
        fullest.reading.free_bytes = 1 << 30;
        let page = text(&[last, fullest, moment(ReadingMoment::OutOfMemory, 3, (3, 1))]);
        assert!(
            page.contains("At its fullest: 7.00 GiB") && page.contains("As it ran out: 6.00 GiB"),
            "{page}"
        );
    }
}
