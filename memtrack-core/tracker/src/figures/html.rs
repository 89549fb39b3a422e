//! The figures as a single HTML page: four inline SVG images and a table of the operators that made memory grow most.
//! The page loads no other files, runs no scripts, and follows the browser's light or dark colour scheme.

use super::peak::PeakLabel;
use super::{Figure, FigureError, palette, render_svg};
use crate::TrackerStats;
use memtrack_model::escape::escape_line;
use std::fmt::Write;

/// The maximum number of operators in the table.
const MAX_TABLE_ROWS: usize = 20;

/// Returns a page with the four figures and, if there are any records, the 20 operators that made memory grow most.
///
/// # Errors
/// Fails when [`render_svg`] does.
pub fn render_html(stats: &TrackerStats) -> Result<String, FigureError> {
    let mut page = String::from(HTML_HEAD);
    page.push_str("<style>\n@media (prefers-color-scheme: dark) {\n");
    for (color, dark) in palette::DARK {
        let light = format!("#{:02X}{:02X}{:02X}", color.0, color.1, color.2);
        push_line(&mut page, format_args!("svg [fill=\"{light}\"] {{ fill: #{dark} }}"));
        push_line(&mut page, format_args!("svg [stroke=\"{light}\"] {{ stroke: #{dark} }}"));
    }
    page.push_str("}\n</style>\n</head>\n<body>\n<h1>Memory tracker</h1>\n");
    let retries = stats.num_alloc_retries;
    let operators = stats.op_index;
    push_line(
        &mut page,
        format_args!(
            "<p>{operators} operator calls; {retries} allocation retries. Memory is in MiB (1048576 bytes), read after each operator: what an operator allocates and frees again is between two readings.</p>"
        ),
    );
    if let Some(peak) = PeakLabel::of(stats) {
        let peak = peak.format_long();
        push_line(
            &mut page,
            format_args!("<p><strong>P{}.</strong></p>", escape_line(&peak[1..], usize::MAX)),
        );
    }
    for figure in Figure::EACH {
        let svg = render_svg(stats, figure)?;
        push_line(
            &mut page,
            format_args!(
                "<figure id=\"{}\" aria-label=\"{}\">\n{svg}\n</figure>",
                figure.name(),
                figure.title()
            ),
        );
    }
    push_table(&mut page, stats);
    page.push_str("</body>\n</html>\n");
    Ok(page)
}

/// Writes the table of operators that made memory grow most, or nothing if the run has no summary.
fn push_table(page: &mut String, stats: &TrackerStats) {
    let Ok(summary) = stats.summary(MAX_TABLE_ROWS) else { return };
    push_line(page, format_args!("<h2>Operators that made memory grow most</h2>"));
    push_line(
        page,
        format_args!(
            "<p>Growth of allocated memory over the operator before; the first operator is the baseline.</p>"
        ),
    );
    push_line(
        page,
        format_args!(
            "<div class=\"wide\"><table>\n<thead><tr><th>Operator</th><th>Growth (MiB)</th></tr></thead>\n<tbody>"
        ),
    );
    for growth in &summary.operators {
        let name = escape_line(&growth.operator, usize::MAX);
        push_line(page, format_args!("<tr><td>{name}</td><td>{:.4}</td></tr>", growth.growth_mib));
    }
    page.push_str("</tbody>\n</table></div>\n");
}

/// Appends a line. Writing to a `String` cannot fail.
fn push_line(page: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(page, "{text}");
}

const HTML_HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Memory tracker</title>
<style>
:root { color-scheme: light dark }
body { margin: 2rem auto; max-width: 960px; padding: 0 1rem; background: #fff; color: #1f2328; font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; margin: 0 }
h2 { font-size: 1.1rem; margin: 2rem 0 0 }
p { margin: .3rem 0 1rem; color: #57606a }
figure { margin: 1.2rem 0; border: 1px solid #e6e9ed; border-radius: 8px; overflow: hidden }
figure svg { display: block; width: 100%; height: auto }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th, td { padding: .3rem .6rem; text-align: left; border-bottom: 1px solid #e6e9ed }
td:first-child { font-family: ui-monospace, monospace; font-size: 13px; overflow-wrap: anywhere }
th:last-child, td:last-child { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
@media (prefers-color-scheme: dark) {
body { background: #0d1117; color: #e6edf3 }
p { color: #9aa4af }
figure, th, td { border-color: #262c34 }
}
</style>
"#;
