//! The model: the content of a recording or a snapshot, as column tables with interned rows. The recorder and all
//! readers produce a [`Snapshot`], and all reports and writers consume one.

mod address_space;
mod categories;
mod chronology;
mod clock;
mod devices;
mod driver_reading;
mod end_state;
mod events;
mod frames;
mod known_names;
mod layout;
mod marks;
mod operator_log;
mod processes;
pub mod pytorch;
mod resident;
mod scope_sums;
mod strings;
mod superseded;
mod tables;
mod tasks;
mod value;
mod weighed;

pub use address_space::AddressSpace;
pub use categories::{EventCategories, InferredCategories};
pub use clock::Since;
pub use devices::Ordinals;
pub use driver_reading::*;
pub use end_state::*;
pub use events::EventTable;
pub use frames::*;
pub use known_names::*;
pub use layout::{Piece, lay_out};
pub use marks::{Mark, Marks};
pub use operator_log::*;
pub use processes::{ProcessEnd, ProcessRow, Unrecorded, main_process};
pub use resident::{Charged, MappingKind, ResidentRange, ResidentReading};
pub use scope_sums::*;
pub use strings::*;
pub use tables::*;
pub use tasks::{Task, TaskPlace, TaskTable};
pub use value::*;
pub use weighed::{WeighedBlock, sample_label};
