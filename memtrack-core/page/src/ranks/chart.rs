//! The chart that compares the outliers with the other ranks, over the same columns as the heat map below. Outliers are
//! drawn as lines, and the others as a band from their least to their most bytes, with the median in it.

use super::{MAX_NAME_BYTES, Page, tint_of};
use memtrack_model::escape::escape_line;
use memtrack_model::units::human_bytes;
use memtrack_report::ranks::heat::HeatMap;
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

pub(super) fn write(page: &Page<'_>, number: usize, heat: &HeatMap, out: &mut String) {
    let columns = heat.columns.count();
    let lines = &heat.histories[..heat.histories.len().min(MAX_LINES)];
    let top = heat.most.max(1) as f64 * HEADROOM;
    let y = |bytes: u64| HEIGHT * (1.0 - bytes as f64 / top);
    let has_band =
        heat.usual.iter().flatten().any(|(least, most)| least != most) || page.ranks.ranks.len() > 1;
    let _ = write!(
        out,
        "<figure class=\"plot\">\n<figcaption><b>{}</b>",
        match lines.len() {
            0 if has_band => "All ranks together",
            0 => "Over time",
            1 => "The odd rank against the others",
            _ => "The odd ranks against the others",
        }
    );
    for (place, history) in lines.iter().enumerate() {
        let name = escape_line(&page.ranks.label(history.rank), MAX_NAME_BYTES);
        let _ = write!(out, " <span><i class=\"line tint-{}\"></i>{name}</span>", tint_of(place));
    }
    if heat.histories.len() > lines.len() {
        let _ = write!(out, " <span>and {} more</span>", heat.histories.len() - lines.len());
    }
    out.push_str(" <span><i class=\"line median\"></i>median</span>");
    if has_band {
        let others = if lines.is_empty() { "all" } else { "the others" };
        let _ = write!(out, " <span><i class=\"box band\"></i>{others}, least to most</span>");
    }
    let _ = write!(out, "</figcaption>\n<div class=\"frame\"><div class=\"y\" aria-hidden=\"true\">");
    let grid_lines = grid_lines(heat.most);
    for &bytes in &grid_lines {
        let _ = write!(
            out,
            "<span style=\"top:{:.2}%\">{}</span>",
            y(bytes) / HEIGHT * 100.0,
            human_bytes(bytes)
        );
    }
    let _ = write!(
        out,
        "</div><div class=\"area chart\"><svg viewBox=\"0 0 {columns} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"Requested bytes over time: the odd ranks against the median of all; the table below has the numbers\">"
    );
    for &bytes in &grid_lines {
        let _ = write!(out, "<path class=\"across\" d=\"M0 {:.1}H{columns}\"/>", y(bytes));
    }
    let band = |side: fn(&(u64, u64)) -> u64| {
        heat.usual.iter().map(move |range| range.as_ref().map(side)).collect::<Vec<_>>()
    };
    let (least, most) = (band(|range| range.0), band(|range| range.1));
    let _ = write!(out, "<path class=\"band\" d=\"{}\"/>", area_path(&least, &most, y));
    let medians: Vec<Option<u64>> =
        heat.distributions.iter().map(|known| known.map(|known| known.median)).collect();
    let _ = write!(out, "<path class=\"median\" d=\"{}\"/>", step_path(&medians, y));
    // The first rank is the most important one, so its line is drawn last, on top of the others.
    for (place, history) in lines.iter().enumerate().rev() {
        let _ = write!(
            out,
            "<path class=\"odd tint-{}\" d=\"{}\"/>",
            tint_of(place),
            step_path(&history.bytes, y)
        );
    }
    out.push_str("</svg></div><div class=\"side\">");
    let ends: Vec<f64> = lines
        .iter()
        .map(|history| {
            history.bytes.iter().flatten().next_back().map_or(0.0, |&bytes| y(bytes) / HEIGHT * 100.0)
        })
        .collect();
    for (place, (history, top)) in lines.iter().zip(spread_out(&ends)).enumerate() {
        let attributes = format!("class=\"tint-{}\" style=\"top:{top:.1}%\"", tint_of(place));
        out.push_str(&page.format_name_element(
            number,
            history.rank,
            &attributes,
            &page.short_name(history.rank),
        ));
    }
    out.push_str("</div>");
    write_axis(heat, out);
    out.push_str("</div>\n</figure>\n");
}

/// Writes the axis below a drawing.
pub(super) fn write_axis(heat: &HeatMap, out: &mut String) {
    const MAX_LABELS: usize = 8;
    let columns = heat.columns.count() as f64;
    out.push_str("<div class=\"x\" aria-hidden=\"true\">");
    for (at, text) in heat.columns.axis_labels(MAX_LABELS) {
        let at = 100.0 * at / columns;
        // A label that starts at the right end would not fit.
        if at <= 99.0 {
            let _ = write!(out, "<span style=\"left:{at:.2}%\">{text}</span>");
        }
    }
    out.push_str("</div>");
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
