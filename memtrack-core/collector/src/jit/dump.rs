//! Jitdump files (`jit-PID.dump`): binary records about generated code, with the code itself, which is skipped here. A
//! record begins with its kind, its size and a time. Records about lines precede the code that they belong to; the first
//! of its lines is that of the function. (Further ones may be lines of functions that were inlined into it, which the
//! format does not name.)
//!
//! **Why are the times not used?** A stack is stored once for all its events, so it may be older and newer than a record.

use super::found::Found;
use std::io::{self, BufRead, Seek};

/// The first word of a file in the byte order of this machine.
const MAGIC: u32 = 0x4A69_5444;
const FILE_HEADER_BYTES: u64 = 40;
const RECORD_HEADER_BYTES: u64 = 16;

/// The kinds of records.
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const LINES: u32 = 2;

/// The maximum length of a name; longer ones are cut.
const MAX_NAME_BYTES: u64 = 2048;

/// Reads a dump. A record that is cut is skipped, because the program may have been killed while it wrote the record.
///
/// # Errors
/// Fails when the file cannot be read, or is no dump of this machine.
pub(super) fn read(dump: &mut (impl BufRead + Seek), found: &mut Found) -> io::Result<()> {
    let mut record = Record { dump, left: FILE_HEADER_BYTES };
    match record.read_header() {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        header => header?,
    }
    let read = read_records(dump, found);
    read.or_else(|error| if error.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(error) })
}

fn read_records(dump: &mut (impl BufRead + Seek), found: &mut Found) -> io::Result<()> {
    let mut lines: Option<(u64, (String, u32))> = None;
    loop {
        let mut record = Record { dump, left: RECORD_HEADER_BYTES };
        let (kind, bytes) = (record.u32()?, record.u32()?);
        record.skip_rest()?;
        record.left = u64::from(bytes).checked_sub(RECORD_HEADER_BYTES).ok_or_else(malformed)?;
        match kind {
            LINES => {
                let (start, count) = (record.u64()?, record.u64()?);
                if count > 0 {
                    record.u64()?;
                    let line = record.u32()?;
                    record.u32()?;
                    lines = Some((start, (record.text()?, line)));
                }
            }
            CODE_LOAD => {
                record.skip(16)?;
                let (start, size) = (record.u64()?, record.u64()?);
                record.skip(8)?;
                let place = lines.take().filter(|(of, _)| *of == start).map(|(_, place)| place);
                if found.is_needed(start, size) {
                    let name = record.text()?;
                    found.add(start, size, Some(name.as_str()).filter(|name| !name.is_empty()), place);
                }
            }
            // The name of the code that was moved is not kept.
            CODE_MOVE => {
                record.skip(24)?;
                let (start, size) = (record.u64()?, record.u64()?);
                found.add(start, size, None, None);
            }
            _ => {}
        }
        record.skip_rest()?;
    }
}

/// A record that is being read.
struct Record<'a, R> {
    dump: &'a mut R,
    /// The number of bytes of the record that follow.
    left: u64,
}

impl<R: BufRead + Seek> Record<'_, R> {
    /// Reads the header of the file.
    fn read_header(&mut self) -> io::Result<()> {
        let (magic, _version, bytes) = (self.u32()?, self.u32()?, self.u32()?);
        if magic != MAGIC || u64::from(bytes) < FILE_HEADER_BYTES {
            return Err(malformed());
        }
        self.left = u64::from(bytes) - 12;
        self.skip_rest()
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.left = self.left.checked_sub(N as u64).ok_or_else(malformed)?;
        let mut bytes = [0; N];
        self.dump.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.bytes().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.bytes().map(u64::from_ne_bytes)
    }

    /// Reads a text that ends with a zero byte.
    fn text(&mut self) -> io::Result<String> {
        let mut text = Vec::new();
        loop {
            let [byte] = self.bytes()?;
            if byte == 0 {
                return Ok(String::from_utf8_lossy(&text).trim().to_owned());
            }
            if (text.len() as u64) < MAX_NAME_BYTES {
                text.push(byte);
            }
        }
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(malformed)?;
        // A record has less than 4 GiB.
        self.dump.seek_relative(bytes as i64)
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        self.skip(self.left)
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is no jitdump file of this machine")
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::Frame;
    use std::collections::BTreeMap;
    use std::io::Cursor;

    fn record(kind: u32, content: &[&[u8]]) -> Vec<u8> {
        let content = content.concat();
        let bytes = RECORD_HEADER_BYTES as u32 + content.len() as u32;
        [&kind.to_ne_bytes()[..], &bytes.to_ne_bytes(), &7_u64.to_ne_bytes(), &content].concat()
    }

    fn header() -> Vec<u8> {
        let words = [MAGIC, 1, FILE_HEADER_BYTES as u32, 62, 0, 1, 0, 0, 0, 0];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn load(start: u64, size: u64, name: &str) -> Vec<u8> {
        let code = vec![0x90; size as usize];
        let numbers = [0, start, start, size, 1].map(u64::to_ne_bytes).concat();
        record(CODE_LOAD, &[&numbers, name.as_bytes(), &[0], &code])
    }

    fn lines(start: u64, lines: &[(u32, &str)]) -> Vec<u8> {
        let numbers = [start, lines.len() as u64].map(u64::to_ne_bytes).concat();
        let row = |(line, file): &(u32, &str)| {
            [&start.to_ne_bytes()[..], &line.to_ne_bytes(), &[0; 4], file.as_bytes(), &[0]].concat()
        };
        record(LINES, &[&numbers, &lines.iter().flat_map(row).collect::<Vec<u8>>()])
    }

    fn frames(dump: &[u8], addresses: &[u64]) -> io::Result<BTreeMap<u64, Vec<Frame>>> {
        let mut found = Found::new(addresses.to_vec());
        read(&mut Cursor::new(dump), &mut found)?;
        Ok(found.into_frames(|text| super::super::forms::split(text, false)))
    }

    fn sample() -> Vec<u8> {
        let other = record(4, &[&[0; 100]]);
        let parts = [
            header(),
            load(0x1000, 16, "JS:*foo /a/app.js:3:12"),
            other,
            lines(0x2000, &[(12, "/a/b.jl"), (7, "/a/inlined.jl")]),
            load(0x2000, 32, "julia_work_12"),
            load(0x3000, 8, "plain"),
        ];
        parts.concat()
    }

    #[test]
    fn code_has_its_name_and_the_line_of_its_function() {
        let frames = frames(&sample(), &[0x1010, 0x2001, 0x3001, 0x3009]).unwrap();
        let frame = |address: u64| {
            let frame = &frames[&address][0];
            (frame.function.as_str(), frame.file.as_deref(), frame.line)
        };
        assert_eq!(frame(0x1010), ("foo", Some("/a/app.js"), Some(3)));
        assert_eq!(frame(0x2001), ("julia_work_12", Some("/a/b.jl"), Some(12)));
        assert_eq!(frame(0x3001), ("plain", None, None));
        assert!(!frames.contains_key(&0x3009));
    }

    #[test]
    fn moved_code_has_no_name() {
        let numbers = [0, 0x1000, 0x1000, 0x3000, 8, 1].map(u64::to_ne_bytes).concat();
        let dump = [sample(), record(CODE_MOVE, &[&numbers])].concat();
        assert_eq!(frames(&dump, &[0x3001]).unwrap()[&0x3001], []);
    }

    #[test]
    fn cut_or_malformed_dumps_do_not_panic() {
        let whole = sample();
        for end in 0..whole.len() {
            let named = frames(&whole[..end], &[0x1005, 0x2005]).unwrap();
            assert!(named.len() <= 2, "{end}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _ = frames(&damaged, &[0x1005, 0x2005]);
            }
        }
        assert!(frames(&[0; 100], &[0x1005]).is_err());
        assert!(frames(b"", &[0x1005]).unwrap().is_empty());
    }
}
