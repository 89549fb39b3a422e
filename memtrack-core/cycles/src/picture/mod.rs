//! The graph as a picture: which of its values are drawn, where each is, and how that looks.

mod boxes;
mod layers;
mod layout;
mod lines;
mod select;
pub mod svg;

pub(crate) use boxes::weak_verb;
use lines::Line;
pub(crate) use select::{Drawn, MOST_CYCLES};
