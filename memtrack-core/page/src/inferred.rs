//! Inferred categories, for files that contain none. They are assigned to a device's blocks and summed up at its peak.

use crate::blocks::{BlockLifetime, ESTIMATE};
use crate::first::BY_CATEGORY_TITLE;
use crate::head::{PageState, Sentence};
use crate::trace::Trace;
use memtrack_model::event::Action;
use memtrack_model::snapshot::InferredCategories;
use memtrack_model::units::{human_bytes, human_share};

/// The categories of a device, in the form that its columns use.
#[derive(Default)]
pub(crate) struct DeviceCategories {
    /// The names of the categories that occur.
    pub(crate) names: Vec<String>,
    /// For each block, 0 if it has no category, or else 1 plus the category's index in [`Self::names`].
    pub(crate) by_lifetime: Vec<u32>,
}

impl DeviceCategories {
    /// Returns the categories of `lifetimes`, the blocks of a device.
    pub(crate) fn of(found: &InferredCategories, trace: &Trace<'_>, lifetimes: &[BlockLifetime]) -> Self {
        let mut places: Vec<u32> = vec![0; found.names.len() + 1];
        let mut device = Self::default();
        let of_row = |event: Option<u32>| {
            event.and_then(|event| found.of_event.get(trace.row(event))).copied().unwrap_or(0)
        };
        let begins = |event: &u32| trace.action(*event) == Action::Alloc;
        for life in lifetimes {
            let at_end =
                || life.final_row.and_then(|row| found.of_block.get(row as usize)).copied().unwrap_or(0);
            let events = [life.start.filter(begins), life.request, life.end];
            let number = events.into_iter().map(of_row).find(|number| *number != 0).unwrap_or_else(at_end);
            let Some(name) = usize::from(number).checked_sub(1).and_then(|place| found.names.get(place))
            else {
                device.by_lifetime.push(0);
                continue;
            };
            let place = &mut places[usize::from(number)];
            if *place == 0 {
                device.names.push(name.clone());
                *place = device.names.len() as u32;
            }
            device.by_lifetime.push(*place);
        }
        device
    }

    /// Returns the sentence about the categories at the peak, or `None` unless the categories cover more than half of
    /// the memory that is live at the peak. `events` is the number of events on the device.
    pub(crate) fn peak_sentence(&self, lifetimes: &[BlockLifetime], events: usize) -> Option<Sentence> {
        let mut changes = vec![0i128; events + 1];
        for life in lifetimes {
            changes[life.start.map_or(0, |event| event as usize + 1)] += i128::from(life.bytes);
            if let Some(end) = life.end {
                changes[end as usize + 1] -= i128::from(life.bytes);
            }
        }
        let (mut live, mut most, mut peak) = (0, 0, -1);
        for (place, change) in changes.into_iter().enumerate() {
            live += change;
            if live > most {
                (most, peak) = (live, place as i64 - 1);
            }
        }
        let is_live = |life: &&BlockLifetime| {
            life.start.map_or(-1, i64::from) <= peak && life.end.is_none_or(|end| peak < i64::from(end))
        };
        let mut bytes = vec![0u64; self.names.len() + 1];
        for (life, place) in lifetimes.iter().zip(&self.by_lifetime).filter(|(life, _)| is_live(life)) {
            bytes[*place as usize] = bytes[*place as usize].saturating_add(life.bytes);
        }
        let all = bytes.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        if bytes[0] >= all.div_ceil(2) {
            return None;
        }
        let mut order: Vec<usize> = (1..bytes.len()).filter(|place| bytes[*place] > 0).collect();
        order.sort_by_key(|place| std::cmp::Reverse(bytes[*place]));
        let part = |name: &str, bytes: u64| {
            format!("{name} {} ({})", human_bytes(bytes), human_share(bytes as f64 / all as f64))
        };
        let mut parts: Vec<String> =
            order.iter().map(|&place| part(&self.names[place - 1], bytes[place])).collect();
        parts.extend((bytes[0] > 0).then(|| part("no category", bytes[0])));
        let show = Some(PageState { view: Some("categories"), event: Some(peak), query: None });
        // Totals of estimates would have to state their errors, so the sentence omits them.
        let text = if lifetimes.iter().any(|life| life.flags & ESTIMATE != 0) {
            "inferred from stacks, scopes and the order of events; the file has no categories".to_owned()
        } else {
            format!("{}; inferred, the file has no categories", parts.join(", "))
        };
        Some(Sentence { title: BY_CATEGORY_TITLE.to_owned(), text, show })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::find_lifetimes;
    use memtrack_model::event::{DeviceId, Event};
    use memtrack_model::snapshot::{LiveBlock, Snapshot};

    const DEVICE: DeviceId = DeviceId(0);

    /// Returns a snapshot with three blocks: one from before the trace that is freed in the trace, one that is
    /// allocated in the trace, and one without events.
    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::default();
        let event = |address, size_bytes, action| Event {
            address,
            size_bytes,
            action,
            device: DEVICE,
            ..Event::BLANK
        };
        for event in [
            event(8, 100, Action::FreeRequested),
            event(8, 100, Action::FreeCompleted),
            event(16, 1000, Action::Alloc),
        ] {
            snapshot.events.push(&event);
        }
        for (address, size_bytes) in [(16, 1000), (32, 10)] {
            snapshot.blocks.push(LiveBlock {
                device: DEVICE,
                address,
                size_bytes,
                stream: Event::BLANK.stream,
                task: Default::default(),
                stack: Event::BLANK.stack,
                scope: Event::BLANK.scope,
                ticks: 0,
                flags: Event::BLANK.flags,
                pending_free: false,
            });
        }
        snapshot
    }

    fn found() -> InferredCategories {
        InferredCategories {
            names: ["parameter", "activation", "gradient"].map(str::to_owned).to_vec(),
            of_event: vec![1, 0, 2],
            of_block: vec![0, 3],
        }
    }

    #[test]
    fn blocks_have_categories_of_their_events_or_of_their_final_rows() {
        let snapshot = snapshot();
        let trace = &Trace::of_all(&snapshot)[&DEVICE];
        let lifetimes = find_lifetimes(trace, DEVICE).lifetimes;
        let device = DeviceCategories::of(&found(), trace, &lifetimes);
        let mut named: Vec<(u64, &str)> = lifetimes
            .iter()
            .zip(&device.by_lifetime)
            .map(|(life, place)| {
                (life.address, place.checked_sub(1).map_or("", |place| &device.names[place as usize]))
            })
            .collect();
        named.sort_unstable();
        assert_eq!(named, [(8, "parameter"), (16, "activation"), (32, "gradient")]);
        let sentence = device.peak_sentence(&lifetimes, trace.len()).unwrap();
        assert_eq!(
            sentence.text,
            "activation 1000 B (99.0 %), gradient 10 B (1.0 %); inferred, the file has no categories"
        );
    }

    #[test]
    fn categories_of_less_than_half_of_peak_do_not_set_colours() {
        let snapshot = snapshot();
        let trace = &Trace::of_all(&snapshot)[&DEVICE];
        let lifetimes = find_lifetimes(trace, DEVICE).lifetimes;
        let few = InferredCategories { of_event: vec![1, 0, 0], ..found() };
        let device = DeviceCategories::of(&few, trace, &lifetimes);
        assert_eq!(device.names.len(), 2);
        assert_eq!(device.peak_sentence(&lifetimes, trace.len()), None);
    }
}
