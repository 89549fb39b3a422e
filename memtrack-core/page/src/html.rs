//! Writes the HTML page around the tables.
//!
//! Names in a snapshot are untrusted. The page contains them only in JSON and compressed tables, which a browser treats
//! as data, and the script shows them as text. The content security policy in the page's head forbids other scripts and
//! all requests, except that a served page may send requests to its own server.

use crate::Page;
use crate::head::PageHead;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use memtrack_model::escape::escape_line;
use std::io::{self, Write};

const SCRIPT: &str = include_str!("../viewer/dist/viewer.js");
const STYLE: &str = include_str!("../viewer/dist/viewer.css");
/// The script's hash in base64. The policy allows only this script.
const SCRIPT_SHA256: &str = include_str!("../viewer/dist/viewer.sha256");

/// Writes a page with all its tables.
pub(crate) fn write(page: &Page, mut out: impl Write) -> io::Result<()> {
    write_start(page, false, &mut out)?;
    for (number, section) in page.sections.iter().enumerate() {
        write!(out, "<script type=\"text/plain\" id=\"memtrack-section-{number}\">")?;
        // Encode in chunks, so that the base64 text is never in memory as a whole.
        for piece in section.packed().chunks(3 << 14) {
            write!(out, "{}", Base64Display::new(piece, &STANDARD))?;
        }
        out.write_all(b"</script>\n")?;
    }
    write_end(out)
}

/// Writes a page without its tables. The page requests them from a server.
pub(crate) fn write_served(page: &Page, mut out: impl Write) -> io::Result<()> {
    write_start(page, true, &mut out)?;
    write_end(out)
}

fn write_start(page: &Page, served: bool, out: &mut impl Write) -> io::Result<()> {
    let script = SCRIPT_SHA256.trim();
    let connect = if served { "connect-src 'self'; " } else { "" };
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{script}'; \
         style-src 'unsafe-inline'; img-src data: blob:; {connect}base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{} · memtrack</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <noscript>This page draws with JavaScript, which is turned off here. `memtrack summary` prints what it says \
         first.</noscript>\n<main id=\"memtrack\"></main>\n\
         <script type=\"application/json\" id=\"memtrack-head\">",
        escape_line(&page.head.name, usize::MAX)
    )?;
    let head = PageHead { head: &page.head, served, sections: &page.sections };
    let json = serde_json::to_string(&head).map_err(io::Error::from)?;
    // `</script` would end the element even inside quotes. In JSON, the escape is equivalent.
    out.write_all(json.replace('<', "\\u003c").as_bytes())?;
    out.write_all(b"</script>\n")
}

fn write_end(mut out: impl Write) -> io::Result<()> {
    write!(out, "<script>{SCRIPT}</script>\n</body>\n</html>\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;

    #[test]
    fn script_cannot_end_its_element_and_has_checksum() {
        assert!(!SCRIPT.to_ascii_lowercase().contains("</script") && !STYLE.contains("</style"));
        assert_eq!(STANDARD.decode(SCRIPT_SHA256.trim()).unwrap().len(), 32);
    }
}
