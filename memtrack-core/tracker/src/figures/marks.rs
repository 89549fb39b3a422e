//! The markers of a run as shown in a figure. However often markers of the same name were set, there is a single entry
//! for the name, with all of their positions.

use super::palette;
use crate::TrackerStats;
use plotters::style::RGBColor;

/// The maximum length of a marker name in a figure, in characters.
const MAX_NAME_CHARACTERS: usize = 40;

/// A marker name and its positions.
pub(super) struct Mark {
    /// The name, shortened for display.
    name: String,
    /// The indices of the operators that followed the markers, sorted and without duplicates.
    pub(super) positions: Vec<u64>,
    pub(super) color: RGBColor,
}

impl Mark {
    /// Formats the legend label: the name with its position or, if there are several, with their number and range.
    pub(super) fn format_legend(&self) -> String {
        match self.positions[..] {
            [at] => format!("{} (at {at})", self.name),
            [first, .., last] => format!("{} ({}, at {first} to {last})", self.name, self.positions.len()),
            [] => self.name.clone(),
        }
    }
}

/// Returns the markers of a run, in the order in which their names were first set.
pub(super) fn collect_marks(stats: &TrackerStats) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::with_capacity(stats.markers.len());
    let mut indices: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    let earlier = stats.earlier_markers.iter().map(|(name, at)| (&**name, *at));
    let newest = stats.markers.iter().map(|(name, at)| (&**name, *at));
    for (name, at) in earlier.chain(newest) {
        let index = *indices.entry(name).or_insert_with(|| {
            let color = palette::marker_colour(name, marks.len());
            marks.push(Mark { name: display_name(name), positions: Vec::new(), color });
            marks.len() - 1
        });
        marks[index].positions.push(at);
    }
    for mark in &mut marks {
        mark.positions.sort_unstable();
        mark.positions.dedup();
    }
    marks
}

/// Shortens a name from a file and replaces its control characters, most of which XML does not allow.
pub(super) fn display_name(name: &str) -> String {
    let clean =
        |character: char| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
    let mut shown: String = name.chars().take(MAX_NAME_CHARACTERS).map(clean).collect();
    if name.chars().nth(MAX_NAME_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}
