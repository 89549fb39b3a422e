//! The heat map, with a row for each rank and a column for each step or time. It shows one of two layers at a time:
//! differences from the median, if there are at least three ranks, or the bytes themselves.
//!
//! **Why images?** As an image, half a million cells are one element that a browser scales. As SVG rectangles, they
//! would make the page too slow to open. The images have a palette and are embedded as `data:` URLs, and the exact
//! bytes are in packed data for the script. The `png` crate (MIT or Apache-2.0) writes the images. The command needs
//! this crate for figures anyway, and a program that only writes pages for snapshots does not compile it (feature
//! `ranks`).

use super::cells::{encode_bytes_image, encode_difference_image, pack_cells};
use super::colours::{GREY, bytes_palette, difference_palette, format_css, scale_colours};
use super::{MAX_NAME_BYTES, NameLook, Page, chart, text, tint_of};
use maud::{Markup, PreEscaped, html};
use memtrack_model::units::{counted, human_bytes, human_count, printable};
use memtrack_report::ranks::heat::{HeatMap, HeatRow};
use memtrack_report::ranks::rule::MIN_RANKS;
use serde::Serialize;

/// The height of a map in pixels, unless its rows would be taller than [`MAX_ROW_HEIGHT`] or shorter than a pixel.
const HEIGHT: usize = 512;
/// The maximum height of a row in pixels.
const MAX_ROW_HEIGHT: usize = 28;
/// The maximum number of columns with which each column is at least one pixel wide even in the narrowest window.
const MAX_NARROW_COLUMNS: usize = 240;
/// The height of a line of text in pixels.
const TEXT_HEIGHT: usize = 14;

/// A map's data for the script.
#[derive(Serialize)]
struct Head<'a> {
    /// The names of the columns.
    columns: Vec<String>,
    /// The name of each row, with the index of the first rank in the row.
    rows: Vec<(String, usize)>,
    /// The median of the bytes in each column.
    medians: Vec<Option<u64>>,
    /// The bytes of the cells, as encoded by [`pack_cells`].
    cells: &'a str,
    /// Whether ranks share rows. If so, the highest values in `cells` are followed by the values furthest from the
    /// median.
    folded: bool,
    /// Whether the map has a layer of differences from the median.
    off: bool,
}

pub(super) fn figure(page: &Page<'_>, number: usize, heat: &HeatMap) -> Markup {
    let memory = &page.ranks.memories[number];
    let has_differences = memory.members.len() >= MIN_RANKS;
    let [left, cell] = heat.columns.sentences();
    let (rows, height) = (heat.rows.len().max(1), map_height(heat.rows.len()));
    // If there is no room for all names, show every n-th name. n is a power of two, because the number of ranks usually
    // is too, so that n divides it evenly.
    let every = match TEXT_HEIGHT.div_ceil(height / rows) {
        1 => 1,
        _ => (3 * TEXT_HEIGHT).div_ceil(height / rows).next_power_of_two(),
    };
    let is_fine = heat.columns.count() > MAX_NARROW_COLUMNS;
    let id = |part: &str| format!("m{number}-{part}");
    let (width, image_height) = (heat.columns.count(), heat.rows.len());
    let alternative_text = alternative_text(page, heat);
    html! {
        figure class="plot heat" id=(id("heat")) {
            figcaption {
                b {
                    (counted(memory.members.len() as u64, "rank"))
                    @if heat.is_folded() {
                        ", " (human_count(heat.ranks_per_row as u64)) " in each row"
                    }
                }
                " From left to right: " (text(&left, MAX_NAME_BYTES)) " " (text(&cell, MAX_NAME_BYTES))
                @if heat.is_folded() {
                    " Of the ranks that share a row, the one that is highest is shown, and of differences the one that is furthest off."
                }
            }
            @if has_differences {
                @for (class, name, is_on) in [("off", "Off the median", true), ("bytes", "Bytes", false)] {
                    input type="radio" name=(id("layer")) id=(id(class)) class={ "pick pick-" (class) }
                        checked=[is_on.then_some("checked")];
                    label for=(id(class)) { (name) }
                }
            }
            (legend(heat, has_differences))
            div.frame {
                nav.y aria-label="Ranks" {
                    @for (at, row) in heat.rows.iter().enumerate().filter(|(at, _)| at % every == 0) {
                        @let rank = memory.members[row.members.start].0;
                        @let title = format_row_name(page, number, row);
                        @let style = format!("top:{:.3}%", row_middle(at, rows));
                        @let look = NameLook { class: None, style, title: Some(&title) };
                        (page.rank_name(number, rank, &look, &page.short_name(rank)))
                    }
                }
                div class=(if is_fine { "area map fine" } else { "area map" }) id=(id("map"))
                    style=(format!("height:{height}px")) aria-describedby=(id("said")) {
                    @if has_differences {
                        img class="off" width=(width) height=(image_height)
                            alt={ "What is off the median. " (alternative_text) } src=(encode_difference_image(heat));
                    }
                    img class="bytes" width=(width) height=(image_height)
                        alt={ "Requested bytes. " (alternative_text) } src=(encode_bytes_image(heat));
                    div.cursor hidden="hidden" {}
                }
                (outlier_names(page, number, heat, height))
                (chart::axis(heat))
            }
            p.said id=(id("said")) aria-live="polite" hidden="hidden" {}
            script type="application/json" id=(id("cells")) {
                (PreEscaped(format_json(page, number, heat, has_differences)))
            }
        }
    }
}

/// Returns the height of a map with `rows` rows. Each row is at least one pixel tall, so that none is omitted.
fn map_height(rows: usize) -> usize {
    let rows = rows.max(1);
    rows * (HEIGHT / rows).clamp(1, MAX_ROW_HEIGHT)
}

/// Returns the middle of a row, as a percentage from the top.
fn row_middle(row: usize, rows: usize) -> f64 {
    100.0 * (row as f64 + 0.5) / rows as f64
}

/// Returns the name of a row.
fn format_row_name(page: &Page<'_>, number: usize, row: &HeatRow) -> String {
    let members = &page.ranks.memories[number].members;
    let label = |at: usize| page.ranks.label(members[at].0);
    match row.members.len() {
        1 => label(row.members.start),
        _ => format!("{} to {}", label(row.members.start), label(row.members.end - 1)),
    }
}

/// Returns the alternative text of the images.
fn alternative_text(page: &Page<'_>, heat: &HeatMap) -> PreEscaped<String> {
    let odd: Vec<String> =
        heat.histories.iter().take(8).map(|history| page.ranks.label(history.rank)).collect();
    let odd = match odd.len() {
        0 => "No rank is odd.".to_owned(),
        _ => format!("Odd: {}.", odd.join(", ")),
    };
    text(&format!("{odd} The table below has the numbers."), MAX_NAME_BYTES)
}

/// Returns the legend for the colours.
fn legend(heat: &HeatMap, has_differences: bool) -> Markup {
    let scale = |stops: Vec<[u8; 4]>| {
        let stops = stops.into_iter().map(format_css).collect::<Vec<_>>().join(",");
        html! { i.scale style=(format!("background:linear-gradient(90deg,{stops})")) {} }
    };
    let has_empty = heat.rows.iter().any(|row| row.cells.iter().any(Option::is_none));
    let nothing = html! {
        @if has_empty {
            " " span { i.box style=(format!("background:{}", format_css(GREY))) {} "no data" }
        }
    };
    let by = human_bytes(heat.furthest_off);
    html! {
        @if has_differences {
            p class="legend off" {
                span { "−" (by) } " " (scale(scale_colours(&difference_palette(), true))) " " span { "+" (by) } " "
                span { "pale: no more than usual" } (nothing)
            }
        }
        p class="legend bytes" {
            span { "0 B" } " " (scale(scale_colours(&bytes_palette(), false))) " " span { (human_bytes(heat.most)) } (nothing)
        }
    }
}

/// Returns the names of the outliers beside their rows, starting with the ranks furthest from the median. If a name
/// would overlap another, there is a mark instead of it.
fn outlier_names(page: &Page<'_>, number: usize, heat: &HeatMap, height: usize) -> Markup {
    let memory = &page.ranks.memories[number];
    let mut named: Vec<f64> = Vec::new();
    let names = heat.histories.iter().enumerate().filter_map(|(place, history)| {
        let member = memory.members.iter().position(|member| member.0 == history.rank)?;
        let top = row_middle(member / heat.ranks_per_row, heat.rows.len().max(1));
        let pixels = top * height as f64 / 100.0;
        let has_room = named.iter().all(|other| (other - pixels).abs() >= TEXT_HEIGHT as f64);
        let name = if has_room { format!("◂ {}", page.short_name(history.rank)) } else { "◂".to_owned() };
        if has_room {
            named.push(pixels);
        }
        let title = page.ranks.label(history.rank);
        let style = format!("top:{top:.3}%");
        let look = NameLook { class: Some(tint_of(place)), style, title: Some(&title) };
        Some(page.rank_name(number, history.rank, &look, &name))
    });
    html! {
        nav.side aria-label="Odd ranks" { @for name in names { (name) } }
    }
}

fn format_json(page: &Page<'_>, number: usize, heat: &HeatMap, off: bool) -> String {
    let memory = &page.ranks.memories[number];
    let head = Head {
        columns: (0..heat.columns.count()).map(|column| printable(&heat.columns.label(column))).collect(),
        rows: heat
            .rows
            .iter()
            .map(|row| (printable(&format_row_name(page, number, row)), memory.members[row.members.start].0))
            .collect(),
        medians: heat.distributions.iter().map(|known| known.map(|known| known.median)).collect(),
        cells: &pack_cells(heat),
        folded: heat.is_folded(),
        off,
    };
    // All keys are strings, so this does not fail. `</script` would end the element even inside quotes. In JSON, the
    // escapes are equivalent.
    serde_json::to_string(&head)
        .unwrap_or_default()
        .replace('<', "\\u003c")
        .replace('&', "\\u0026")
        .replace('>', "\\u003e")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_at_least_pixel_high() {
        for (rows, pixels) in [(0, 28), (1, 28), (8, 224), (64, 512), (500, 500), (1024, 1024)] {
            assert_eq!(map_height(rows), pixels, "{rows}");
        }
    }
}
