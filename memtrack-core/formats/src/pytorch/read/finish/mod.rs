//! The last step: from the root value to the snapshot.

pub(super) mod misplaced;
pub(super) mod order;
pub(super) mod state;
pub(super) mod values;
pub(super) mod whole;
