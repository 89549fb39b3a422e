//! The statistics of one account: sums, the peak, and the memory that was live at the peak, by stack. They are plain
//! data, protected by the account's lock.

use foldhash::fast::FixedState;
use memtrack_model::event::{DeviceId, StackId};
use std::collections::HashMap;

/// An amount of memory, in bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of requested bytes.
    pub bytes: u64,
    /// The number of blocks.
    pub blocks: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.blocks += 1;
    }

    fn subtract(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.blocks = self.blocks.saturating_sub(1);
    }
}

/// The allocations made from one stack.
#[derive(Clone, Copy, Debug, Default)]
struct StackRow {
    allocated: Amount,
    live: Amount,
    /// The part of `live` whose free was requested while other streams may still use it.
    pending: Amount,
    /// The live amount when the device's peak rose for the `peak_number`-th time. Saved just before the row's next
    /// change.
    at_peak: Amount,
    peak_number: u64,
    /// Whether allocations from this stack are not counted.
    is_excluded: bool,
}

/// The allocations made from one stack, for reports.
#[derive(Clone, Copy, Debug)]
pub struct StackAmounts {
    /// The stack, or [`StackId::NONE`] if the table of stacks had no room for it.
    pub stack: StackId,
    /// All memory that was allocated from the stack, including memory that has been freed.
    pub allocated: Amount,
    /// The part of `allocated` that was live at the device's peak.
    pub at_peak: Amount,
    /// The part of `allocated` that has not been freed.
    pub left: Amount,
}

/// The allocation statistics for one device.
#[derive(Clone, Debug, Default)]
pub struct DeviceBooks {
    allocated: Amount,
    live: Amount,
    pending: Amount,
    peak: Amount,
    /// The number of times the peak rose.
    peaks: u64,
    rows: HashMap<StackId, StackRow, FixedState>,
}

impl DeviceBooks {
    /// Counts an allocation, unless `is_excluded` returns `true` for its stack, and returns whether it was counted.
    /// `is_excluded` is called only once per stack.
    fn alloc(&mut self, stack: StackId, bytes: u64, is_excluded: impl FnOnce() -> bool) -> bool {
        let row = self
            .rows
            .entry(stack)
            .or_insert_with(|| StackRow { is_excluded: is_excluded(), ..StackRow::default() });
        if row.is_excluded {
            return false;
        }
        row.save_at_peak(self.peaks);
        row.allocated.add(bytes);
        row.live.add(bytes);
        self.allocated.add(bytes);
        self.live.add(bytes);
        if self.live.bytes > self.peak.bytes {
            self.peak = self.live;
            self.peaks += 1;
        }
        true
    }

    /// Counts the free of a block whose allocation was counted.
    fn free(&mut self, stack: StackId, bytes: u64, was_pending: bool) {
        let Some(row) = self.rows.get_mut(&stack) else { return };
        row.save_at_peak(self.peaks);
        row.live.subtract(bytes);
        self.live.subtract(bytes);
        if was_pending {
            row.pending.subtract(bytes);
            self.pending.subtract(bytes);
        }
    }

    /// Counts a block that is still in use although its free was requested.
    fn free_requested(&mut self, stack: StackId, bytes: u64) {
        let Some(row) = self.rows.get_mut(&stack) else { return };
        row.pending.add(bytes);
        self.pending.add(bytes);
    }

    /// Returns all memory that was allocated, including memory that has been freed.
    pub fn allocated(&self) -> Amount {
        self.allocated
    }

    /// Returns the amount that was live when the most bytes were live.
    pub fn peak(&self) -> Amount {
        self.peak
    }

    /// Returns the memory that has not been freed. A block whose free was requested counts as freed.
    pub fn left(&self) -> Amount {
        difference(self.live, self.pending)
    }

    /// Returns the amounts by stack, unordered.
    pub fn stacks(&self) -> impl Iterator<Item = StackAmounts> + '_ {
        self.rows.iter().filter(|(_, row)| !row.is_excluded).map(|(&stack, row)| StackAmounts {
            stack,
            allocated: row.allocated,
            at_peak: if row.peak_number == self.peaks { row.at_peak } else { row.live },
            left: difference(row.live, row.pending),
        })
    }
}

impl StackRow {
    /// Saves the live amount as the amount at the newest peak, if the row has not changed since that peak. Must be
    /// called before every change to the row.
    fn save_at_peak(&mut self, peaks: u64) {
        if self.peak_number != peaks {
            self.peak_number = peaks;
            self.at_peak = self.live;
        }
    }
}

fn difference(all: Amount, part: Amount) -> Amount {
    Amount { bytes: all.bytes.saturating_sub(part.bytes), blocks: all.blocks.saturating_sub(part.blocks) }
}

/// The allocation statistics for all devices.
#[derive(Clone, Debug, Default)]
pub struct Books {
    devices: Vec<(DeviceId, DeviceBooks)>,
}

impl Books {
    pub(super) fn alloc(
        &mut self,
        device: DeviceId,
        stack: StackId,
        bytes: u64,
        is_excluded: impl FnOnce() -> bool,
    ) -> bool {
        let place = self.devices.iter().position(|(other, _)| *other == device).unwrap_or_else(|| {
            self.devices.push((device, DeviceBooks::default()));
            self.devices.len() - 1
        });
        self.devices[place].1.alloc(stack, bytes, is_excluded)
    }

    pub(super) fn free(&mut self, device: DeviceId, stack: StackId, bytes: u64, was_pending: bool) {
        if let Some((_, books)) = self.devices.iter_mut().find(|(other, _)| *other == device) {
            books.free(stack, bytes, was_pending);
        }
    }

    pub(super) fn free_requested(&mut self, device: DeviceId, stack: StackId, bytes: u64) {
        if let Some((_, books)) = self.devices.iter_mut().find(|(other, _)| *other == device) {
            books.free_requested(stack, bytes);
        }
    }

    /// Returns whether any block is live, including blocks whose free was requested but that may still be in use.
    pub(super) fn has_live(&self) -> bool {
        self.devices.iter().any(|(_, books)| books.live.blocks > 0)
    }

    /// Returns the devices with allocations, ordered by device id, with the host heap last.
    pub fn devices(&self) -> Vec<(DeviceId, &DeviceBooks)> {
        let mut devices: Vec<_> = self.devices.iter().map(|(device, books)| (*device, books)).collect();
        devices.sort_by_key(|(device, _)| *device);
        devices
    }

    /// Returns the statistics for one device, or `None` if nothing was allocated on it.
    pub fn device(&self, device: DeviceId) -> Option<&DeviceBooks> {
        self.devices.iter().find(|(other, _)| *other == device).map(|(_, books)| books)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: DeviceId = DeviceId(0);

    fn at_peak(books: &Books) -> Vec<(u32, u64)> {
        let mut rows: Vec<_> =
            books.device(GPU).expect("used").stacks().map(|row| (row.stack.0, row.at_peak.bytes)).collect();
        rows.sort_unstable();
        rows
    }

    #[test]
    fn the_peak_by_stack_is_kept_through_later_changes() {
        let mut books = Books::default();
        let alloc = |books: &mut Books, stack, bytes| books.alloc(GPU, StackId(stack), bytes, || false);
        alloc(&mut books, 1, 10);
        alloc(&mut books, 2, 20);
        books.free(GPU, StackId(1), 10, false);
        alloc(&mut books, 3, 5);
        assert_eq!(at_peak(&books), [(1, 10), (2, 20), (3, 0)]);
        alloc(&mut books, 1, 7);
        assert_eq!(at_peak(&books), [(1, 7), (2, 20), (3, 5)]);
        books.free(GPU, StackId(2), 20, false);
        alloc(&mut books, 2, 20); // as high as before, so the earlier peak stays
        assert_eq!(at_peak(&books), [(1, 7), (2, 20), (3, 5)]);
        let device = books.device(GPU).expect("used");
        assert_eq!(device.peak(), Amount { bytes: 32, blocks: 3 });
        assert_eq!(device.allocated(), Amount { bytes: 62, blocks: 5 });
    }

    #[test]
    fn rows_at_the_peak_match_a_replay_of_random_events() {
        let mut books = Books::default();
        let mut live: Vec<(u32, u64)> = Vec::new();
        let (mut highest, mut at_highest) = (0, Vec::new());
        let mut number = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..5000 {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            if number % 5 < 3 || live.is_empty() {
                let (stack, bytes) = ((number >> 8) as u32 % 7, number >> 20 & 0xfff);
                books.alloc(GPU, StackId(stack), bytes, || false);
                live.push((stack, bytes));
            } else {
                let (stack, bytes) = live.swap_remove((number >> 8) as usize % live.len());
                books.free(GPU, StackId(stack), bytes, false);
            }
            let sum: u64 = live.iter().map(|(_, bytes)| bytes).sum();
            if sum > highest {
                highest = sum;
                at_highest = live.clone();
            }
        }
        let device = books.device(GPU).expect("used");
        assert_eq!(device.peak().bytes, highest);
        for (stack, bytes) in at_peak(&books) {
            let expected: u64 =
                at_highest.iter().filter(|(other, _)| *other == stack).map(|(_, bytes)| bytes).sum();
            assert_eq!(bytes, expected, "stack {stack}");
        }
        assert_eq!(device.left().blocks, live.len() as u64);
    }

    #[test]
    fn blocks_pending_on_a_stream_are_live_but_not_leaked() {
        let mut books = Books::default();
        books.alloc(GPU, StackId(1), 8, || false);
        books.free_requested(GPU, StackId(1), 8);
        books.alloc(GPU, StackId(1), 8, || false);
        let device = books.device(GPU).expect("used");
        assert_eq!((device.peak().bytes, device.left().bytes), (16, 8));
        books.free(GPU, StackId(1), 8, true);
        assert_eq!(books.device(GPU).expect("used").left(), Amount { bytes: 8, blocks: 1 });
    }

    #[test]
    fn excluded_stacks_are_not_counted() {
        let mut books = Books::default();
        assert!(!books.alloc(GPU, StackId(1), 8, || true));
        assert!(!books.alloc(GPU, StackId(1), 8, || unreachable!("queried once")));
        let device = books.device(GPU).expect("used");
        assert_eq!((device.peak().bytes, device.allocated().blocks, device.stacks().count()), (0, 0, 0));
    }
}
