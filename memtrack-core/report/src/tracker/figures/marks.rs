//! The markers of a run for a figure: one entry for each name, with every position at which it was set, for any
//! number of steps.

use super::palette;
use crate::tracker::TrackerStats;
use plotters::style::RGBColor;

/// The most characters of a marker's name.
const NAME_CHARACTERS: usize = 40;

/// A marker and its positions.
pub(super) struct Mark {
    /// Its name, of bounded length.
    name: String,
    /// The indices of the operators that came next, rising, each once.
    pub(super) at: Vec<u64>,
    pub(super) color: RGBColor,
}

impl Mark {
    /// Formats its label in the legend: its position, or the number of positions.
    pub(super) fn legend(&self) -> String {
        match self.at[..] {
            [at] => format!("{} (at {at})", self.name),
            [first, .., last] => format!("{} ({}, at {first} to {last})", self.name, self.at.len()),
            [] => self.name.clone(),
        }
    }
}

/// Returns the markers of a run, in the order in which their names were first set.
pub(super) fn marks(stats: &TrackerStats) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::with_capacity(stats.markers.len());
    let mut places: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    let earlier = stats.earlier_markers.iter().map(|(name, at)| (&**name, *at));
    let newest = stats.markers.iter().map(|(name, at)| (&**name, *at));
    for (name, at) in earlier.chain(newest) {
        let place = *places.entry(name).or_insert_with(|| {
            let color = palette::marker(name, marks.len());
            marks.push(Mark { name: readable(name), at: Vec::new(), color });
            marks.len() - 1
        });
        marks[place].at.push(at);
    }
    for mark in &mut marks {
        mark.at.sort_unstable();
        mark.at.dedup();
    }
    marks
}

/// Returns a name from a file, of bounded length and without characters that XML does not allow.
pub(super) fn readable(name: &str) -> String {
    let clean =
        |character: char| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
    let mut shown: String = name.chars().take(NAME_CHARACTERS).map(clean).collect();
    if name.chars().nth(NAME_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}
