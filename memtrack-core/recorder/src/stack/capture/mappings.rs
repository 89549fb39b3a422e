//! The system's list of the process's mappings, read without allocating memory.
#![allow(unsafe_code)]

use std::ops::Range;

/// Returns the mapping that contains an address, and the end of the mapping before it (0 if there is none).
pub(super) fn around(address: u64) -> Option<(u64, Range<u64>)> {
    // SAFETY: a C string; the descriptor was opened here.
    let file = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    let mut search = Search { address, previous_end: 0, line: Line::default() };
    let mut buffer = [0_u8; 1024];
    let found = loop {
        // SAFETY: the bytes read go into the buffer.
        let count = unsafe { libc::read(file, buffer.as_mut_ptr().cast(), buffer.len()) };
        let Some(bytes) =
            usize::try_from(count).ok().filter(|&count| count > 0).map(|count| &buffer[..count])
        else {
            break None;
        };
        if let Some(found) = bytes.iter().find_map(|&byte| search.add(byte)) {
            break Some(found);
        }
    };
    // SAFETY: the descriptor was opened here.
    unsafe { libc::close(file) };
    found
}

/// A search in the text of the list, which arrives byte by byte.
struct Search {
    address: u64,
    previous_end: u64,
    line: Line,
}

/// The part of a line that has been read.
#[derive(Default)]
struct Line {
    /// The first and the last address, as far as their digits have been read.
    limits: [u64; 2],
    /// The number of limits that are complete; 2 in the rest of the line.
    complete: usize,
}

impl Search {
    /// Reads the next byte. Returns the result when the mapping is found.
    fn add(&mut self, byte: u8) -> Option<(u64, Range<u64>)> {
        let line = &mut self.line;
        match (byte, line.complete) {
            (b'\n', _) => *line = Line::default(),
            (_, 2) => {}
            (byte, place) => match char::from(byte).to_digit(16) {
                Some(digit) => line.limits[place] = line.limits[place] << 4 | u64::from(digit),
                None => {
                    line.complete += 1;
                    if line.complete == 2 {
                        let [start, end] = line.limits;
                        if (start..end).contains(&self.address) {
                            return Some((self.previous_end, start..end));
                        }
                        self.previous_end = end;
                    }
                }
            },
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_is_found_in_the_text() {
        let text =
            b"55d0-55e0 r--p 00000000 08:01 77 /bin/cat\n7ff0-8000 rw-p 0 00:00 0 [heap]\n\n9000-a000 rw-p 0";
        let find = |address| {
            let mut search = Search { address, previous_end: 0, line: Line::default() };
            text.iter().find_map(|&byte| search.add(byte))
        };
        assert_eq!(find(0x55d0), Some((0, 0x55d0..0x55e0)));
        assert_eq!(find(0x7fff), Some((0x55e0, 0x7ff0..0x8000)));
        assert_eq!(find(0x9001), Some((0x8000, 0x9000..0xa000)));
        assert_eq!(find(0x8000), None);
    }

    #[test]
    fn this_functions_variables_are_on_a_mapping() {
        let variable = 0_u8;
        let address = std::ptr::from_ref(&variable).addr() as u64;
        let (below, mapping) = around(address).unwrap();
        assert!(mapping.contains(&address) && below <= mapping.start);
    }
}
