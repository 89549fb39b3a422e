//! The exact allocations of each scope, however few of its blocks were recorded individually. They come from the
//! threads' running sums, which are read whenever a thread changes its scope.

use super::Snapshot;
use crate::event::{DeviceId, ScopeId};

/// The sums of all scopes at one moment of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeSums {
    /// The time of the sums, in ticks of the recorder's clock. It is the end of the recording, or up to a few seconds
    /// earlier if the program was killed.
    pub ticks: u64,
    /// The number of times that the program entered a scope that did not fit into the recorder's tables. The
    /// allocations of such scopes are in the sums of a scope called "(other)" or, if scopes were nested too deeply, of
    /// the innermost scope that fit.
    pub folded: u64,
    /// A row for each device and scope that allocated anything, sorted by device and scope. A device's rows, including
    /// the row for allocations outside all scopes, add up to all allocations on that device.
    pub rows: Vec<ScopeSum>,
}

/// The allocations on a device while a scope was the innermost scope of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScopeSum {
    /// The device.
    pub device: DeviceId,
    /// The scope, or none for allocations outside all scopes.
    pub scope: ScopeId,
    /// The bytes allocated since the session started, whether or not they have been freed since.
    pub allocated_bytes: u64,
    /// The number of blocks allocated.
    pub allocations: u64,
}

impl ScopeSums {
    /// Returns the rows of a device.
    pub fn of(&self, device: DeviceId) -> impl Iterator<Item = &ScopeSum> {
        self.rows.iter().filter(move |row| row.device == device)
    }
}

impl Snapshot {
    /// Returns the exact sums of a device's scopes, if the recorder kept them.
    pub fn scope_sums_of(&self, device: DeviceId) -> Option<impl Iterator<Item = &ScopeSum>> {
        self.scope_sums.as_ref().map(|sums| sums.of(device))
    }
}
