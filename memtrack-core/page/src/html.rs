//! The page around the tables.
//!
//! Names in a snapshot are untrusted. They are in the page only as JSON and compressed tables, both of which a browser treats
//! as data, and its script shows them as text. The policy in the page's head forbids everything outside the page: other
//! scripts, and all addresses except, when it is served, its own.

use crate::Page;
use crate::head::Whole;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use std::io::{self, Write};

const SCRIPT: &str = include_str!("../viewer/dist/viewer.js");
const STYLE: &str = include_str!("../viewer/dist/viewer.css");
/// The script's hash in base64: the only script that the policy allows.
const SCRIPT_SHA256: &str = include_str!("../viewer/dist/viewer.sha256");

/// Writes a page with all its tables.
pub(crate) fn whole(page: &Page, mut out: impl Write) -> io::Result<()> {
    begin(page, false, &mut out)?;
    for (number, section) in page.sections.iter().enumerate() {
        write!(out, "<script type=\"text/plain\" id=\"memtrack-section-{number}\">")?;
        // In pieces: the text is a third longer than the data.
        for piece in section.packed().chunks(3 << 14) {
            write!(out, "{}", Base64Display::new(piece, &STANDARD))?;
        }
        out.write_all(b"</script>\n")?;
    }
    end(out)
}

/// Writes a page that requests its tables.
pub(crate) fn served(page: &Page, mut out: impl Write) -> io::Result<()> {
    begin(page, true, &mut out)?;
    end(out)
}

fn begin(page: &Page, served: bool, out: &mut impl Write) -> io::Result<()> {
    let script = SCRIPT_SHA256.trim();
    let connect = if served { "connect-src 'self'; " } else { "" };
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{script}'; \
         style-src 'unsafe-inline'; img-src data: blob:; {connect}base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>"
    )?;
    escaped(&page.head.name, out)?;
    write!(
        out,
        " · memtrack</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <noscript>This page draws with JavaScript, which is turned off here. `memtrack summary` prints what it says \
         first.</noscript>\n<main id=\"memtrack\"></main>\n\
         <script type=\"application/json\" id=\"memtrack-head\">"
    )?;
    let whole = Whole { head: &page.head, served, sections: &page.sections };
    let json = serde_json::to_string(&whole).map_err(io::Error::from)?;
    // `</script` would end the element inside any quotes; in JSON this is equivalent.
    out.write_all(json.replace('<', "\\u003c").as_bytes())?;
    out.write_all(b"</script>\n")
}

fn end(mut out: impl Write) -> io::Result<()> {
    write!(out, "<script>{SCRIPT}</script>\n</body>\n</html>\n")?;
    out.flush()
}

/// Writes text between tags.
fn escaped(text: &str, out: &mut impl Write) -> io::Result<()> {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    out.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;

    #[test]
    fn the_script_cannot_end_its_element_and_has_a_checksum() {
        assert!(!SCRIPT.to_ascii_lowercase().contains("</script") && !STYLE.contains("</style"));
        assert_eq!(STANDARD.decode(SCRIPT_SHA256.trim()).unwrap().len(), 32);
    }
}
