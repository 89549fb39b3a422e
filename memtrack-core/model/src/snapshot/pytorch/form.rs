//! Snapshots that are certain to be in PyTorch's form.

use super::PyTorch;
use crate::event::DeviceId;
use crate::snapshot::Snapshot;
use std::ops::Deref;

/// A [`Snapshot`] in PyTorch's form, which reports in PyTorch's terms, the state of segments and replays need. A
/// recording is not in this form by itself; `SnapshotFiles::as_pytorch` converts it.
///
/// It dereferences to the snapshot, for reading only.
#[derive(Clone, Debug, PartialEq)]
pub struct PytorchSnapshot {
    snapshot: Snapshot,
}

impl PytorchSnapshot {
    /// Returns the parts that only PyTorch's files contain.
    pub fn details(&self) -> &PyTorch {
        self.pytorch.as_deref().expect("checked when it was made")
    }

    /// Returns the snapshot itself.
    pub fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }

    /// Like [`Snapshot::order_by_time`].
    pub fn order_by_time(&mut self) -> Vec<DeviceId> {
        self.snapshot.order_by_time()
    }
}

impl Default for PytorchSnapshot {
    /// Creates a file without any content.
    fn default() -> Self {
        Self { snapshot: Snapshot { pytorch: Some(Box::default()), ..Snapshot::default() } }
    }
}

impl TryFrom<Snapshot> for PytorchSnapshot {
    /// The recording, unchanged.
    type Error = Box<Snapshot>;

    fn try_from(snapshot: Snapshot) -> Result<Self, Box<Snapshot>> {
        if snapshot.pytorch.is_some() { Ok(Self { snapshot }) } else { Err(Box::new(snapshot)) }
    }
}

impl Deref for PytorchSnapshot {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}
