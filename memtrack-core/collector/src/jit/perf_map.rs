//! Perf maps (`/tmp/perf-PID.map`): a line of text for each piece of generated code, `START SIZE NAME`, the numbers in hex.
//! Lines of another form are skipped, and so is a last line without its end, because the program may have been killed
//! while it wrote the line.

use super::found::Found;
use std::io::{self, BufRead, Read};

/// The maximum length of a line; longer names are cut.
const MAX_LINE_BYTES: usize = 2048;

/// Reads the first `bytes` of a map.
///
/// # Errors
/// Fails when the file cannot be read.
pub(super) fn read(map: &mut impl BufRead, bytes: u64, found: &mut Found) -> io::Result<()> {
    let mut map = map.take(bytes);
    let mut line = Vec::new();
    while next_line(&mut map, &mut line)? {
        if let Some((start, size, name)) = parse(&line)
            && found.is_needed(start, size)
        {
            found.add(start, size, Some(&String::from_utf8_lossy(name)), None);
        }
    }
    Ok(())
}

/// Reads the beginning of the next line, without its end. Returns `false` if there is no further complete line.
fn next_line(map: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    loop {
        let buffer = match map.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            buffer => buffer?,
        };
        if buffer.is_empty() {
            return Ok(false);
        }
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = MAX_LINE_BYTES - line.len();
        line.extend_from_slice(&part[..part.len().min(room)]);
        let read = part.len() + usize::from(end.is_some());
        map.consume(read);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// Splits a line into start, size and name.
fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = number(line)?;
    let (size, name) = number(rest)?;
    let name = name.trim_ascii();
    (!name.is_empty()).then_some((start, size, name))
}

/// Splits a text after a number in hex and the spaces that follow.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    let digits = text.iter().position(|digit| !digit.is_ascii_hexdigit())?;
    let number = str::from_utf8(&text[..digits]).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let rest = &text[digits..];
    let spaces = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t'))?;
    if spaces == 0 { None } else { Some((number?, &rest[spaces..])) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    /// Returns the names of addresses in a map, which is read in pieces of a few bytes.
    fn names(map: &[u8], addresses: &[u64]) -> Vec<String> {
        let mut found = Found::new(addresses.to_vec());
        read(&mut BufReader::with_capacity(7, map), map.len() as u64, &mut found).unwrap();
        let frames = found.into_frames(|text| super::super::forms::split(text, false));
        let name = |address| frames.get(address).map_or("", |frames| frames[0].function.as_str());
        addresses.iter().map(|address| name(address).to_owned()).collect()
    }

    #[test]
    fn lines_name_the_code_that_they_cover() {
        let map =
            b"1000 10 foo\n0x2000 0x20 instance void [App] Main::Run(string[])\r\n3000\t8\tLfoo/Bar;::baz\n";
        let expected = ["foo", "foo", "", "instance void [App] Main::Run(string[])", "Lfoo/Bar;::baz"];
        assert_eq!(names(map, &[0x1001, 0x1010, 0x1011, 0x2010, 0x3008]), expected);
    }

    #[test]
    fn malformed_lines_are_skipped() {
        let wrong = "# a comment\n\n1000\n1000 10\n1000 10 \n1000 zz foo\n-1000 10 foo\n1000  foo\n\
                     fffffffffffffffff 10 foo\n1000 0 foo\nffffffffffffffff ffffffffffffffff foo\n";
        assert_eq!(names(wrong.as_bytes(), &[0x1005]), [""]);
        let noise: Vec<u8> = (0..5000_u32).map(|at| (at * at % 251) as u8).collect();
        assert_eq!(names(&noise, &[0x1005]), [""]);
        assert_eq!(names(&[&noise, &b"\n1000 10 foo\n"[..]].concat(), &[0x1005]), ["foo"]);
    }

    #[test]
    fn last_line_without_end_is_skipped() {
        assert_eq!(names(b"1000 10 foo\n2000 10 fo", &[0x1005, 0x2005]), ["foo", ""]);
        assert_eq!(names(b"1000 10 foo\n2000", &[0x1005, 0x2005]), ["foo", ""]);
    }

    #[test]
    fn long_names_are_cut() {
        let map = format!("1000 10 {}\n2000 10 foo\n", "x".repeat(1 << 20));
        let names = names(map.as_bytes(), &[0x1005, 0x2005]);
        assert_eq!((names[0].len(), names[1].as_str()), (MAX_LINE_BYTES - "1000 10 ".len(), "foo"));
    }

    #[test]
    fn names_in_other_encodings_are_readable() {
        assert_eq!(names(b"1000 10 caf\xe9\n", &[0x1005]), ["caf\u{fffd}"]);
    }
}
