//! The figures as files: what they say, how large they are, and that they stand alone.

use super::*;

fn run(count: usize) -> TrackerStats {
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
fn a_figure_names_its_series_and_its_markers() {
    let svg = render_svg(&run(10), Figure::All).unwrap();
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
    let svg = render_svg(&run(10), Figure::Active).unwrap();
    assert!(svg.contains("Active memory") && !svg.contains("reserved"));
}

#[test]
fn many_operators_stay_a_sane_size() {
    let page = render_html(&run(200_000)).unwrap();
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

#[test]
fn names_from_files_are_escaped() {
    let mut stats = run(3);
    stats.mark("<script>&\u{1}");
    stats.push("<b>bold</b>", 1e6, 1.0, 1.0);
    let page = render_html(&stats).unwrap();
    assert!(!page.contains("<script>") && !page.contains("<b>") && !page.contains('\u{1}'));
    assert!(page.contains("&lt;script"));
}

#[test]
fn a_page_loads_nothing() {
    let page = render_html(&run(10)).unwrap();
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
fn markers_without_room_in_the_legend_are_counted() {
    let mut stats = run(10);
    for index in 0..50 {
        stats.mark(&format!("iteration {index} with quite a long name, longer than fits"));
    }
    let svg = render_svg(&stats, Figure::All).unwrap();
    assert!(svg.contains("iteration 0 with") && !svg.contains("iteration 49 with"));
    let named = svg.matches("(at ").count();
    assert!(svg.contains(&format!("and {} more", stats.markers.len() - named)));
}

#[test]
fn the_suffix_picks_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    assert_eq!(write_figures(&run(5), path("run.html")).unwrap(), [path("run.html")]);
    let files = write_figures(&run(5), path("run.svg")).unwrap();
    assert_eq!(
        files,
        ["all", "allocated", "active", "reserved"].map(|name| path(&format!("run-{name}.svg")))
    );
    assert!(files.iter().all(|file| file.exists()));
    assert!(matches!(write_figures(&run(5), path("run.png")), Err(FigureError::Suffix(_))));
}
