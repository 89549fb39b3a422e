//! Draws the graph as a picture. The modules choose the values that are drawn, their positions, and their appearance.

mod boxes;
mod layers;
mod layout;
mod select;
pub mod svg;

pub(crate) use boxes::weak_verb;
pub(crate) use select::{DrawnValues, MAX_CYCLES, cycles_by_value};
