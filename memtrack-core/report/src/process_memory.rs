//! The host memory of a process as a whole: how its heap, the memory that it mapped itself, and its resident set relate. It
//! is known for programs under `memtrack run --host`.

use memtrack_blocks::device_blocks::DeviceBlocks;
use memtrack_blocks::estimate::Estimate;
use memtrack_blocks::peak::{Peak, highest_recorded};
use memtrack_model::event::{DeviceId, DeviceKind};
use memtrack_model::snapshot::{AddressSpace, Snapshot};
use memtrack_model::units::human_bytes;
use serde::Serialize;

/// The peak of some memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Height {
    /// The live bytes at the peak; a lower bound if they are not exact.
    #[serde(rename = "peak_bytes")]
    pub bytes: u64,
    /// The margin of error of the bytes; null if they are exact.
    #[serde(rename = "peak_bytes_error")]
    pub error: Estimate,
}

impl Height {
    fn of(peak: &Peak) -> Self {
        Self { bytes: peak.bytes, error: peak.error }
    }

    fn text(&self) -> String {
        self.error.as_bytes(self.bytes)
    }
}

/// The host memory of a process as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ProcessMemory {
    /// The peak of the heap; null if the recording has no heap.
    pub heap: Option<Height>,
    /// The peak of the memory that the process mapped itself; null if the recording has none.
    pub mapped: Option<Height>,
    /// The peak of both together, which need not be at the moment of either peak.
    pub together: Height,
    /// The highest resident set that the command saw, which includes code, stacks, files, and memtrack's own memory. The true
    /// one is at least this high. Null if it is unknown.
    pub max_resident_bytes: Option<u64>,
    /// The highest number of resident bytes that the command saw that were not pages of files or of shared memory; null if it
    /// is unknown.
    pub max_anonymous_bytes: Option<u64>,
    /// The addresses at the end that had no memory behind them (`PROT_NONE`); null if this is unknown.
    pub reserved_address_bytes: Option<u64>,
    /// The highest number of such addresses.
    pub max_reserved_address_bytes: Option<u64>,
    /// The bytes of files that were mapped at the end and are not the process's own memory; null if this is unknown.
    pub mapped_file_bytes: Option<u64>,
    /// The highest number of such bytes.
    pub max_mapped_file_bytes: Option<u64>,
    /// The addresses at the end whose pages become memory when the process writes to them (`MAP_NORESERVE`, pages given back by
    /// `madvise`). Those that were memory are part of mapped memory, as the command read them from time to time. Null if this
    /// is unknown.
    pub on_demand_address_bytes: Option<u64>,
    /// The highest number of such addresses.
    pub max_on_demand_address_bytes: Option<u64>,
}

impl ProcessMemory {
    /// Adds up the host memory of a snapshot; `None` if it has none.
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let is_part = |device: &DeviceId| kind_of_part(snapshot, *device).is_some();
        let parts = snapshot.device_ids().into_iter().filter(is_part);
        Self::of_devices(
            snapshot,
            &parts.map(|device| DeviceBlocks::of(snapshot, device)).collect::<Vec<_>>(),
        )
    }

    /// Like [`Self::of`], for the blocks of all devices.
    pub fn of_devices(snapshot: &Snapshot, devices: &[DeviceBlocks]) -> Option<Self> {
        let [heap, mapped] = [DeviceKind::Host, DeviceKind::Mapped]
            .map(|kind| devices.iter().find(|blocks| kind_of_part(snapshot, blocks.device) == Some(kind)));
        let space = snapshot.address_space;
        let together = match (heap, mapped) {
            (Some(heap), Some(mapped)) => peak_of_both(snapshot, heap, mapped),
            (Some(only), None) | (None, Some(only)) => Height::of(&only.peak),
            (None, None) => return None,
        };
        let height = |part: Option<&DeviceBlocks>| part.map(|part| Height::of(&part.peak));
        let of_space = |bytes: fn(&AddressSpace) -> u64| space.as_ref().map(bytes);
        Some(Self {
            heap: height(heap),
            mapped: height(mapped),
            together,
            // 0 stands for no reading.
            max_resident_bytes: of_space(|space| space.max_resident_bytes).filter(|&bytes| bytes > 0),
            max_anonymous_bytes: of_space(|space| space.max_anonymous_bytes).filter(|&bytes| bytes > 0),
            reserved_address_bytes: of_space(|space| space.reserved_bytes),
            max_reserved_address_bytes: of_space(|space| space.max_reserved_bytes),
            mapped_file_bytes: of_space(|space| space.file_bytes),
            max_mapped_file_bytes: of_space(|space| space.max_file_bytes),
            on_demand_address_bytes: of_space(|space| space.on_demand_bytes),
            max_on_demand_address_bytes: of_space(|space| space.max_on_demand_bytes),
        })
    }

    /// Formats the relation of the numbers as one line; `None` if the recording says nothing about the process as a whole.
    pub fn to_line(&self) -> Option<String> {
        self.reserved_address_bytes?;
        let part =
            |name: &str, height: &Option<Height>| height.map(|height| format!("{name} {}", height.text()));
        let parts = [part("heap", &self.heap), part("mapped memory", &self.mapped)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let mut line = match parts.as_slice() {
            [only] => format!("{only} at its peak"),
            _ => format!("{} at the peak ({}, each at its own)", self.together.text(), parts.join(", ")),
        };
        if let Some(resident) = self.max_resident_bytes {
            line += &format!("; resident: {} at the highest reading", human_bytes(resident));
            if let Some(anonymous) = self.max_anonymous_bytes {
                line += &format!(", {} of them not from files", human_bytes(anonymous));
            }
        }
        let besides = [
            (self.max_reserved_address_bytes, "addresses without memory"),
            (self.max_mapped_file_bytes, "mapped files"),
            (self.max_on_demand_address_bytes, "addresses that become memory on demand"),
        ];
        let besides = besides.into_iter().filter_map(|(bytes, what)| {
            Some(format!("{} of {what}", human_bytes(bytes.filter(|&bytes| bytes > 0)?)))
        });
        let besides: Vec<String> = besides.collect();
        if !besides.is_empty() {
            line += &format!("; besides, at most {}", besides.join(", "));
        }
        Some(line)
    }

    /// Returns the bytes that were resident at some time and are certainly neither recorded nor pages of files; `None` if
    /// that is unknown. Every process has some: stacks, data of libraries, free memory that allocators keep, and memtrack's.
    pub fn unrecorded_bytes(&self) -> Option<u64> {
        self.reserved_address_bytes.filter(|_| self.together.error.high.is_finite())?;
        let anonymous = self.max_anonymous_bytes.unwrap_or(0);
        Some(anonymous.saturating_sub(self.together.error.high.ceil() as u64))
    }
}

/// Returns the kind of a device that is host memory of the process.
fn kind_of_part(snapshot: &Snapshot, device: DeviceId) -> Option<DeviceKind> {
    Some(snapshot.device_kind(device)).filter(|kind| matches!(kind, DeviceKind::Host | DeviceKind::Mapped))
}

/// Returns the peak of the heap and of mapped memory together.
fn peak_of_both(snapshot: &Snapshot, heap: &DeviceBlocks, mapped: &DeviceBlocks) -> Height {
    if !heap.peak.estimated && !mapped.peak.estimated {
        let bytes = highest_recorded(snapshot, heap.lifetimes.iter().chain(&mapped.lifetimes));
        let error = Estimate::exact(bytes as f64).with_completeness(snapshot.meta.complete);
        return Height { bytes, error };
    }
    // The heap is estimated. At the moment of its peak, and at that of mapped memory, both were live.
    let at_heaps_peak = heap.peak.error.low + mapped.live_after(heap.peak.row) as f64;
    let low = at_heaps_peak.max(mapped.peak.error.low);
    let error = Estimate::between(low, heap.peak.error.high + mapped.peak.error.high);
    Height { bytes: low as u64, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::{Action, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};

    fn event(device: DeviceId, ticks: u64, action: Action, address: u64, size_bytes: u64) -> Event {
        Event {
            ticks,
            address,
            size_bytes,
            stream: StreamId(0),
            stack: StackId::NONE,
            scope: ScopeId::NONE,
            thread: ThreadId(0),
            device,
            action,
            flags: EventFlags::default(),
        }
    }

    fn snapshot(events: &[Event]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.meta.complete = true;
        events.iter().for_each(|event| snapshot.events.push(event));
        snapshot
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn both_peaks_together_are_no_sum_of_peaks() {
        let (host, mapped) = (DeviceId::HOST, DeviceId::MAPPED);
        let mut snapshot = snapshot(&[
            event(host, 1, Action::Alloc, 16, 10 * MIB),
            event(host, 2, Action::Free, 16, 10 * MIB),
            event(mapped, 3, Action::Alloc, 4096, 30 * MIB),
            event(host, 4, Action::Alloc, 16, 2 * MIB),
        ]);
        snapshot.address_space = Some(AddressSpace {
            max_resident_bytes: 50 * MIB,
            max_anonymous_bytes: 40 * MIB,
            max_reserved_bytes: 1 << 30,
            ..AddressSpace::default()
        });
        let memory = ProcessMemory::of(&snapshot).unwrap();
        assert_eq!(memory.together.bytes, 32 * MIB);
        assert!(memory.together.error.is_exact());
        assert_eq!(memory.unrecorded_bytes(), Some(8 * MIB));
        assert_eq!(
            memory.to_line().unwrap(),
            "32.0 MiB at the peak (heap 10.0 MiB, mapped memory 30.0 MiB, each at its own); resident: 50.0 MiB at the \
             highest reading, 40.0 MiB of them not from files; besides, at most 1.00 GiB of addresses without memory"
        );
    }

    #[test]
    fn nothing_is_said_of_a_process_that_was_not_seen_as_a_whole() {
        let only_heap = snapshot(&[event(DeviceId::HOST, 1, Action::Alloc, 16, MIB)]);
        let memory = ProcessMemory::of(&only_heap).unwrap();
        assert_eq!((memory.together.bytes, memory.to_line(), memory.unrecorded_bytes()), (MIB, None, None));
        assert_eq!(ProcessMemory::of(&snapshot(&[event(DeviceId(0), 1, Action::Alloc, 16, MIB)])), None);
    }
}
