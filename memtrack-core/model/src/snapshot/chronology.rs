//! Traces whose times run backwards. PyTorch's ring buffer does not straighten itself when its length is changed
//! while history is kept: a file may then hold events 3, 7, 8, 9, 4, 5, 6.

use super::Snapshot;
use super::pytorch::Key;
use crate::event::DeviceId;

impl Snapshot {
    /// Puts the events of every PyTorch trace in order of time, as analyses need
    /// them; events of one time keep their order. Returns the devices whose order it changed: mostly none, and then it
    /// costs one look at the times. A trace with events that have no time stays as it is. Recordings are in order.
    ///
    /// What PyTorch's own tools say (`viz`) is about the order of the file.
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
