//! Questions to a [`Snapshot`](crate::snapshot::Snapshot): what was live at the peak ([`peak`]), who made it
//! ([`top`], [`attribution`]), and in which phase ([`phases`]). Reports and programs call in here; nothing here knows
//! where the snapshot came from.

pub mod attribution;
pub mod lifetimes;
pub mod patterns;
pub mod peak;
pub mod phases;
pub mod top;
pub mod trim;
pub mod units;
