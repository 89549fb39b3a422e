//! Traces whose times run backwards. PyTorch does not reorder its ring buffer when the buffer's length is changed while
//! history is being recorded, so a file may then contain events 3, 7, 8, 9, 4, 5, 6.

use super::Snapshot;
use super::pytorch::Key;
use crate::event::DeviceId;

impl Snapshot {
    /// Sorts the events of every PyTorch trace by time, as analyses require. Events with equal times keep their order.
    /// Returns the devices whose order changed. Usually, no order changes, and the times are only compared. A
    /// trace in which some events have no time is left unchanged. Recordings are already in order.
    ///
    /// PyTorch's own tools (`viz`) use the order in the file.
    pub fn order_by_time(&mut self) -> Vec<DeviceId> {
        let Some(pytorch) = self.pytorch.as_deref_mut() else { return Vec::new() };
        let ticks = &self.events.ticks;
        let mut order: Vec<u32> = Vec::new();
        let mut changed = Vec::new();
        for rows in pytorch.traces.iter().chain([&pytorch.host_trace]) {
            let timed = || rows.clone().all(|row| pytorch.events.has(row, Key::TimeUs));
            if ticks[rows.clone()].is_sorted() || !timed() {
                continue;
            }
            if order.is_empty() {
                order = (0..ticks.len() as u32).collect();
            }
            order[rows.clone()].sort_by_key(|&row| ticks[row as usize]);
            changed.push(self.events.device[rows.start]);
        }
        if !changed.is_empty() {
            pytorch.events = pytorch.events.gather(&order);
            self.events.pick(&order);
        }
        changed
    }
}
