//! A memory pool's counts: the bytes that the pool has reserved on the device, and how many of them are in use.

/// `CU_MEMPOOL_ATTR_*`: the switches for reuse, which the mock only stores.
const REUSE_SWITCHES: std::ops::RangeInclusive<i32> = 1..=3;

/// A pool of one device.
pub(crate) struct Pool {
    pub alive: bool,
    pub reserved: u64,
    reserved_high: u64,
    pub used: u64,
    used_high: u64,
    threshold: u64,
    switches: [i32; 3],
}

/// The value of an attribute, which is a 32-bit switch or a 64-bit number of bytes.
pub(crate) enum Attribute {
    Switch(i32),
    Bytes(u64),
}

impl Pool {
    /// Creates an empty pool.
    pub fn new() -> Self {
        Self {
            alive: true,
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            threshold: 0,
            switches: [1; 3],
        }
    }

    /// Allocates memory. The pool grows by whole chunks, by at most the `available` bytes of the device. Returns false if
    /// these are not enough.
    pub fn allocate(&mut self, bytes: u64, chunk: u64, available: u64) -> bool {
        let used = self.used + bytes;
        if used > self.reserved {
            if used > self.reserved + available {
                return false;
            }
            self.reserved = used.next_multiple_of(chunk).min(self.reserved + available);
            self.reserved_high = self.reserved_high.max(self.reserved);
        }
        self.used = used;
        self.used_high = self.used_high.max(used);
        true
    }

    /// Frees memory. The pool retains it, unless it was destroyed.
    pub fn free(&mut self, bytes: u64, chunk: u64) {
        self.used -= bytes;
        if !self.alive {
            self.trim(0, chunk);
        }
    }

    /// Returns whether the pool was destroyed and none of its memory is still in use, so that a new pool may reuse its
    /// handle.
    pub fn is_gone(&self) -> bool {
        !self.alive && self.used == 0
    }

    /// Releases unused memory to the device, except for `keep` bytes.
    pub fn trim(&mut self, keep: u64, chunk: u64) {
        let least = self.used.next_multiple_of(chunk).max(keep);
        self.reserved = self.reserved.min(least);
    }

    /// Releases unused memory above the release threshold, as a synchronization does.
    pub fn synchronized(&mut self, chunk: u64) {
        self.trim(self.threshold, chunk);
    }

    /// Returns an attribute's value; `None` for an unknown number.
    pub fn attribute(&self, number: i32) -> Option<Attribute> {
        Some(match number {
            n if REUSE_SWITCHES.contains(&n) => Attribute::Switch(self.switches[n as usize - 1]),
            4 => Attribute::Bytes(self.threshold),
            5 => Attribute::Bytes(self.reserved),
            6 => Attribute::Bytes(self.reserved_high),
            7 => Attribute::Bytes(self.used),
            8 => Attribute::Bytes(self.used_high),
            _ => return None,
        })
    }

    /// Sets an attribute; returns false if the value is invalid for it. A peak can only be set to zero, which resets it to
    /// the current value.
    pub fn set_attribute(&mut self, number: i32, value: u64) -> bool {
        match (number, value) {
            (n, _) if REUSE_SWITCHES.contains(&n) => self.switches[n as usize - 1] = value as i32,
            (4, _) => self.threshold = value,
            (6, 0) => self.reserved_high = self.reserved,
            (8, 0) => self.used_high = self.used,
            _ => return false,
        }
        true
    }
}
