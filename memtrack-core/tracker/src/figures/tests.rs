//! Tests for the figure files: their content, their size, and whether they are self-contained.

use super::*;
use crate::AllocatedPeak;

fn run_of_operators(count: usize) -> TrackerStats {
    let mut stats = TrackerStats::default();
    stats.mark("fw_start");
    for index in 0..count {
        if index == count / 2 {
            stats.mark("fw_bw_boundary");
        }
        let mib = ((index * 7919) % 1000) as f64 / 10.0;
        stats.push(&format!("layer.forward.mm.default_{index}"), mib, mib + 1.0, 128.0);
    }
    stats
}

#[test]
fn figure_names_its_series_and_its_markers() {
    let svg = render_svg(&run_of_operators(10), Figure::All).unwrap();
    for text in [
        "allocated",
        "active",
        "reserved",
        "fw_start (at 0)",
        "fw_bw_boundary (at 5)",
        "MiB",
        "operator calls",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    let svg = render_svg(&run_of_operators(10), Figure::Active).unwrap();
    assert!(svg.contains("Active memory") && !svg.contains("reserved"));
}

/// Returns the first point of every line of this colour, in image pixels.
fn line_starts(svg: &str, color: &str) -> Vec<(i32, i32)> {
    let stroke = format!("stroke=\"{color}\"");
    let points = svg.lines().filter(|line| line.contains(&stroke)).filter_map(|line| {
        let (_, points) = line.split_once("points=\"")?;
        let mut numbers = points.split(['"', ' ']).next()?.split(',').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    points.collect()
}

const START_COLOUR: &str = "#101214";
const BOUNDARY_COLOUR: &str = "#CF222E";

/// Creates a run of `count` steps, each of which sets both markers.
fn run_of_steps(count: usize, operators: usize) -> TrackerStats {
    let mut stats = TrackerStats::default();
    for step in 0..count {
        stats.mark("fw_start");
        for operator in 0..operators {
            if operator == operators / 2 {
                stats.mark("fw_bw_boundary");
            }
            stats.push(&format!("layer.mm_{}", step * operators + operator), 14.0, 14.0, 128.0);
        }
    }
    stats
}

#[test]
fn each_step_has_its_markers() {
    for count in [1, 3, 200] {
        let stats = run_of_steps(count, 5);
        let svg = render_svg(&stats, Figure::All).unwrap();
        for (name, color, first) in [("fw_start", START_COLOUR, 0), ("fw_bw_boundary", BOUNDARY_COLOUR, 2)] {
            let mut columns: Vec<i32> = line_starts(&svg, color).iter().map(|(x, _)| *x).collect();
            columns.sort_unstable();
            columns.dedup();
            // One of the lines is in the legend.
            assert_eq!(columns.len(), count + 1, "{name} of {count} steps");
            let at = match count {
                1 => format!("{name} (at {first})"),
                _ => format!("{name} ({count}, at {first} to {})", (count - 1) * 5 + first),
            };
            assert!(svg.contains(&at), "{at}");
        }
    }
}

#[test]
fn markers_of_very_many_steps_are_thinned_out_and_do_not_hide_series() {
    let svg = render_svg(&run_of_steps(50_000, 4), Figure::Allocated).unwrap();
    assert!(svg.len() < 250_000, "{} bytes", svg.len());
    assert!(svg.contains("fw_start (50000, at 0 to 199996)"));
    for color in [START_COLOUR, BOUNDARY_COLOUR] {
        let lines = line_starts(&svg, color);
        assert!(lines.len() > 300, "{}", lines.len());
        let lowest = lines.iter().map(|(_, y)| *y).max().unwrap();
        let top = lines.iter().map(|(_, y)| *y).min().unwrap();
        assert!(lowest - top < 150, "ticks at the upper edge, from {top} to {lowest}");
    }
}

#[test]
fn peak_inside_operator_is_drawn_with_its_distance_above_series() {
    let mut stats = run_of_steps(10, 5);
    stats.peak = Some(AllocatedPeak::new(77.7, 77.7, Some(31), true));
    for figure in [Figure::All, Figure::Allocated] {
        let svg = render_svg(&stats, figure).unwrap();
        assert!(svg.contains(
            "peak 77.7 MiB inside layer.mm_31: 63.7 MiB above the highest value after an operator"
        ));
        assert!(svg.contains(">\npeak 77.7 MiB\n<"), "its number stands in the plot: {svg}");
    }
    assert!(!render_svg(&stats, Figure::Reserved).unwrap().contains("peak"));
    assert!(render_html(&stats).unwrap().contains("<strong>Peak 77.7 MiB inside"));
    // The axis includes the peak.
    let svg = render_svg(&stats, Figure::Allocated).unwrap();
    assert!(
        svg.contains("\n80\n")
            && !render_svg(&run_of_steps(10, 5), Figure::Allocated).unwrap().contains("\n80\n")
    );
}

#[test]
fn peak_that_may_have_been_higher_is_lower_bound() {
    let mut stats = run_of_steps(2, 5);
    stats.peak = Some(AllocatedPeak::new(20.0, f64::INFINITY, Some(10), false));
    let svg = render_svg(&stats, Figure::Allocated).unwrap();
    assert!(svg.contains("peak at least 20.0 MiB after the last operator: at least 6.0 MiB above"), "{svg}");
    // No peak is below a sample.
    stats.peak = Some(AllocatedPeak::new(13.0, 15.0, None, false));
    let svg = render_svg(&stats, Figure::Allocated).unwrap();
    assert!(svg.contains("peak at least 14.0 MiB, before the operators that were kept\n"), "{svg}");
    stats.peak = Some(AllocatedPeak::new(f64::NAN, 1.0, None, false));
    assert!(!render_svg(&stats, Figure::Allocated).unwrap().contains("peak"));
}

#[test]
fn figures_of_many_operators_stay_small() {
    let page = render_html(&run_of_operators(200_000)).unwrap();
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

#[test]
fn names_from_files_are_escaped() {
    let mut stats = run_of_operators(3);
    stats.mark("<script>&\u{1}");
    stats.push("<b>bold</b>", 1e6, 1.0, 1.0);
    let page = render_html(&stats).unwrap();
    assert!(!page.contains("<script>") && !page.contains("<b>") && !page.contains('\u{1}'));
    assert!(page.contains("&lt;script"));
}

#[test]
fn page_loads_no_other_files() {
    let page = render_html(&run_of_operators(10)).unwrap();
    let links = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!links.contains("http") && !links.contains("src=") && !links.contains("url("));
    assert_eq!(page.matches("<svg").count(), 4);
}

#[test]
fn runs_without_records_or_numbers_are_drawn() {
    assert!(render_html(&TrackerStats::default()).unwrap().contains("no operator was recorded"));
    let mut stats = TrackerStats::default();
    for mib in [f64::NAN, f64::INFINITY, 1e308, -1e308, 0.0] {
        stats.push("op", mib, mib, mib);
    }
    stats.markers.push(("far away".to_owned(), u64::MAX));
    render_html(&stats).unwrap();
}

#[test]
fn markers_without_room_in_legend_are_counted() {
    let mut stats = run_of_operators(10);
    for index in 0..50 {
        stats.mark(&format!("iteration {index} with quite a long name, longer than fits"));
    }
    let svg = render_svg(&stats, Figure::All).unwrap();
    assert!(svg.contains("iteration 0 with") && !svg.contains("iteration 49 with"));
    let named = svg.matches("(at ").count();
    assert!(svg.contains(&format!("and {} more", stats.markers.len() - named)));
}

#[test]
fn suffix_determines_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    assert_eq!(write_figures(&run_of_operators(5), path("run.html")).unwrap(), [path("run.html")]);
    let files = write_figures(&run_of_operators(5), path("run.svg")).unwrap();
    assert_eq!(
        files,
        ["all", "allocated", "active", "reserved"].map(|name| path(&format!("run-{name}.svg")))
    );
    assert!(files.iter().all(|file| file.exists()));
    assert!(matches!(write_figures(&run_of_operators(5), path("run.png")), Err(FigureError::Suffix(_))));
}
