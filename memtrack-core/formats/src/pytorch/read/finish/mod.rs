//! The last step of reading, which turns the root value into the snapshot.

pub(super) mod finisher;
pub(super) mod misplaced;
pub(super) mod order;
pub(super) mod state;
pub(super) mod values;
