//! Many ranks of one job: which of them holds more than the others, why, and how far they drift apart from step to step.
//!
//! Each file is reduced to a [`RankDigest`] and dropped before the next is read; the answers are made of those alone. The
//! command `memtrack ranks` prints them, and docs/RANKS.md has the rules.

mod curve;
mod digest;
mod name;
mod reduce;
mod steps;

pub use digest::{
    DeviceDigest, EndDigest, GroupDigest, MomentDigest, OutOfMemoryDigest, RankDigest, StepDigest, Timeline,
};
pub use name::RankName;
pub use reduce::DigestOptions;
