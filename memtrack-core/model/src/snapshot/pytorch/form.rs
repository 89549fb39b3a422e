//! Snapshots that are known to be in PyTorch's form.

use super::PyTorch;
use crate::snapshot::Snapshot;
use std::ops::Deref;

/// A [`Snapshot`] in PyTorch's form, as required for writing PyTorch's files and for the texts that PyTorch's own tools
/// print. All other reports take any snapshot. A recording is not in this form; `SnapshotFiles::as_pytorch` converts it.
///
/// It dereferences to the snapshot, which is read-only.
#[derive(Clone, Debug, PartialEq)]
pub struct PytorchSnapshot {
    snapshot: Snapshot,
}

impl PytorchSnapshot {
    /// Returns the parts that only PyTorch's files contain.
    pub fn details(&self) -> &PyTorch {
        self.pytorch.as_deref().expect("checked when it was created")
    }

    /// Returns the snapshot itself.
    pub fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }
}

impl Default for PytorchSnapshot {
    /// Creates an empty snapshot.
    fn default() -> Self {
        Self { snapshot: Snapshot { pytorch: Some(Box::default()), ..Snapshot::default() } }
    }
}

impl TryFrom<Snapshot> for PytorchSnapshot {
    /// The recording, returned unchanged.
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
