//! The chart that compares the outliers with the other ranks, over the same columns as the heat map below. Outliers are
//! drawn as lines, and the others as a band from their least to their most bytes, with the median in it.

use super::{MAX_NAME_BYTES, NameLook, Page, line, tint_of};
use maud::{Markup, html};
use memtrack_model::units::human_bytes;
use memtrack_report::ranks::heat::{HeatMap, RankHistory};
use std::fmt::Write;

/// The maximum number of outliers that are drawn.
pub(super) const MAX_LINES: usize = 4;
/// The height of the drawing, in units of its view box.
const HEIGHT: f64 = 1000.0;
/// The height of the chart as a multiple of the highest value.
const HEADROOM: f64 = 1.06;
/// The maximum number of grid lines above the line at 0.
const MAX_GRID_LINES: u64 = 3;
/// The minimum distance between two names on the right, as a percentage of the height.
const MIN_NAME_DISTANCE: f64 = 9.0;

pub(super) fn figure(page: &Page<'_>, number: usize, heat: &HeatMap) -> Markup {
    let columns = heat.columns.count();
    let lines = &heat.histories[..heat.histories.len().min(MAX_LINES)];
    let more = heat.histories.len() - lines.len();
    let top = heat.most.max(1) as f64 * HEADROOM;
    let y = |bytes: u64| HEIGHT * (1.0 - bytes as f64 / top);
    let percent = |bytes: u64| y(bytes) / HEIGHT * 100.0;
    let has_band =
        heat.usual.iter().flatten().any(|(least, most)| least != most) || page.ranks.ranks.len() > 1;
    let title = match lines.len() {
        0 if has_band => "All ranks together",
        0 => "Over time",
        1 => "The odd rank against the others",
        _ => "The odd ranks against the others",
    };
    let others = if lines.is_empty() { "all" } else { "the others" };
    let grid_lines = grid_lines(heat.most);
    let band = |side: fn(&(u64, u64)) -> u64| {
        heat.usual.iter().map(move |range| range.as_ref().map(side)).collect::<Vec<_>>()
    };
    let medians: Vec<Option<u64>> =
        heat.distributions.iter().map(|known| known.map(|known| known.median)).collect();
    let last = |history: &RankHistory| history.bytes.iter().flatten().next_back().copied();
    let ends: Vec<f64> = lines.iter().map(|history| last(history).map_or(0.0, percent)).collect();
    html! {
        figure.plot {
            figcaption {
                b { (title) }
                @for (place, history) in lines.iter().enumerate() {
                    " " span { i class={ "line " (tint_of(place)) } {} (line(&page.ranks.label(history.rank), MAX_NAME_BYTES)) }
                }
                @if more > 0 { " " span { "and " (more) " more" } }
                " " span { i class="line median" {} "median" }
                @if has_band { " " span { i class="box band" {} (others) ", least to most" } }
            }
            div.frame {
                div.y aria-hidden="true" {
                    @for &bytes in &grid_lines {
                        span style=(format!("top:{:.2}%", percent(bytes))) { (human_bytes(bytes)) }
                    }
                }
                div class="area chart" {
                    svg viewBox=(format!("0 0 {columns} {HEIGHT}")) preserveAspectRatio="none" role="img"
                        aria-label="Requested bytes over time: the odd ranks against the median of all; the table below has the numbers" {
                        @for &bytes in &grid_lines {
                            path.across d=(format!("M0 {:.1}H{columns}", y(bytes))) {}
                        }
                        path.band d=(area_path(&band(|range| range.0), &band(|range| range.1), y)) {}
                        path.median d=(step_path(&medians, y)) {}
                        // The first rank is the most important one, so its line is drawn last, on top of the others.
                        @for (place, history) in lines.iter().enumerate().rev() {
                            path class={ "odd " (tint_of(place)) } d=(step_path(&history.bytes, y)) {}
                        }
                    }
                }
                div.side {
                    @for (place, (history, top)) in lines.iter().zip(spread_out(&ends)).enumerate() {
                        @let look = NameLook { class: Some(tint_of(place)), style: format!("top:{top:.1}%"), title: None };
                        (page.rank_name(number, history.rank, &look, &page.short_name(history.rank)))
                    }
                }
                (axis(heat))
            }
        }
    }
}

/// Returns the axis below a drawing.
pub(super) fn axis(heat: &HeatMap) -> Markup {
    const MAX_LABELS: usize = 8;
    let columns = heat.columns.count() as f64;
    let labels =
        heat.columns.axis_labels(MAX_LABELS).into_iter().map(|(at, text)| (100.0 * at / columns, text));
    html! {
        div.x aria-hidden="true" {
            // A label that starts at the right end would not fit.
            @for (at, text) in labels.filter(|(at, _)| *at <= 99.0) {
                span style=(format!("left:{at:.2}%")) { (text) }
            }
        }
    }
}

/// Returns round numbers of bytes up to `most`, which are 0 and the multiples of a power of two.
fn grid_lines(most: u64) -> Vec<u64> {
    let mut every = 1u64;
    while most / every > MAX_GRID_LINES {
        match every.checked_mul(2) {
            Some(twice) => every = twice,
            None => break,
        }
    }
    (0..=most / every).map(|times| times * every).collect()
}

/// Returns the SVG path of a line that is level within each column.
fn step_path(bytes: &[Option<u64>], y: impl Fn(u64) -> f64) -> String {
    let mut path = String::new();
    let mut before = None;
    for (column, &bytes) in bytes.iter().enumerate() {
        let Some(level) = bytes.map(&y) else {
            before = None;
            continue;
        };
        // Writing to a string cannot fail.
        let _ = match before {
            None => write!(path, "M{column} {level:.1}h1"),
            Some(before) if before == level => write!(path, "h1"),
            Some(_) => write!(path, "V{level:.1}h1"),
        };
        before = Some(level);
    }
    path
}

/// Returns the SVG path of the area between two lines that are level within each column.
fn area_path(least: &[Option<u64>], most: &[Option<u64>], y: impl Fn(u64) -> f64) -> String {
    let mut path = String::new();
    let mut from = 0;
    while from < least.len() {
        let run = least[from..]
            .iter()
            .zip(&most[from..])
            .take_while(|(least, most)| least.is_some() && most.is_some())
            .count();
        if run > 0 {
            let to = from + run;
            let level = |bytes: Option<u64>| y(bytes.unwrap_or(0));
            let _ = write!(path, "M{from} {:.1}", level(most[from]));
            for &bytes in &most[from..to] {
                let _ = write!(path, "V{:.1}h1", level(bytes));
            }
            for &bytes in least[from..to].iter().rev() {
                let _ = write!(path, "V{:.1}h-1", level(bytes));
            }
            path.push('Z');
        }
        from += run.max(1);
    }
    path
}

/// Moves the positions of names down until the names no longer overlap.
fn spread_out(places: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|&a, &b| places[a].total_cmp(&places[b]));
    let mut found = vec![0.0; places.len()];
    let mut least = f64::MIN;
    for at in order {
        found[at] = places[at].max(least);
        least = found[at] + MIN_NAME_DISTANCE;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_lines_are_round() {
        const MIB: u64 = 1 << 20;
        assert_eq!(grid_lines(208 * MIB), [0, 64 * MIB, 128 * MIB, 192 * MIB]);
        assert_eq!(grid_lines(0), [0]);
        assert_eq!(grid_lines(u64::MAX).len(), 4);
    }

    #[test]
    fn line_is_interrupted_at_unknown_values() {
        let y = |bytes: u64| bytes as f64;
        assert_eq!(step_path(&[Some(1), Some(1), Some(3), None, Some(2)], y), "M0 1.0h1h1V3.0h1M4 2.0h1");
        let one = [Some(1), None];
        assert_eq!(area_path(&one, &one, y), "M0 1.0V1.0h1V1.0h-1Z");
    }

    #[test]
    fn names_beside_lines_do_not_overlap() {
        assert_eq!(spread_out(&[50.0, 10.0, 51.0]), [50.0, 10.0, 59.0]);
    }
}
