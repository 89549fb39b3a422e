//! The model: what a recording or a snapshot says, as column tables with interned rows. It is the waist of memtrack:
//! the recorder and every reader make a [`Snapshot`], every report and every writer takes one.

mod clock;
mod devices;
mod end_state;
mod merge;
pub mod recording;
mod tables;

pub use end_state::*;
pub use tables::*;
