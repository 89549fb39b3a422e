//! The line of an instruction, from the tables of a code object. The input is the table's bytes, read one after another
//! until the line is known. CPython's `PyCode_Addr2Line` returns the same lines.

use super::layout::LineTable;

/// Returns the line of the instruction at `offset` bytes (negative before the first instruction), or `None` if the
/// instruction has no line.
pub(super) fn line_at(
    kind: LineTable,
    first_line: i32,
    table: impl Iterator<Item = u8>,
    offset: i64,
) -> Option<u32> {
    let line = match kind {
        LineTable::Lnotab => Some(in_lnotab(first_line, table, offset)),
        LineTable::Ranges => in_ranges(first_line, table, offset),
        LineTable::Locations => in_locations(first_line, table, offset),
    };
    line.and_then(|line| u32::try_from(line).ok()).filter(|&line| line > 0)
}

/// Pairs of bytes: instructions and lines to advance by.
fn in_lnotab(first_line: i32, mut table: impl Iterator<Item = u8>, offset: i64) -> i32 {
    let (mut line, mut address) = (first_line, 0);
    while let (Some(bytes), Some(lines)) = (table.next(), table.next()) {
        address += i64::from(bytes);
        if address > offset {
            break;
        }
        line = line.saturating_add(i32::from(lines as i8));
    }
    line
}

/// Pairs of bytes: the length of a range of instructions, and the difference of its line to that of the previous range that
/// has one. -128 is a range without a line.
fn in_ranges(first_line: i32, mut table: impl Iterator<Item = u8>, offset: i64) -> Option<i32> {
    if offset < 0 {
        return Some(first_line);
    }
    let (mut line, mut end) = (first_line, 0);
    while let (Some(bytes), Some(lines)) = (table.next(), table.next()) {
        end += i64::from(bytes);
        let has_line = lines as i8 != i8::MIN;
        if has_line {
            line = line.saturating_add(i32::from(lines as i8));
        }
        if offset < end {
            return has_line.then_some(line);
        }
    }
    None
}

/// Entries whose first byte has the kind and the number of instructions of two bytes each; the kind determines the bytes
/// that follow, none of which has the highest bit.
fn in_locations(first_line: i32, mut table: impl Iterator<Item = u8>, offset: i64) -> Option<i32> {
    const NO_LINE: u8 = 15;
    const LONG: u8 = 14;
    const NO_COLUMN: u8 = 13;
    const ONE_LINE: std::ops::RangeInclusive<u8> = 10..=12;
    if offset < 0 {
        return Some(first_line);
    }
    let (mut line, mut end) = (first_line, 0);
    let mut first = table.next()?;
    loop {
        let kind = first >> 3 & 15;
        end += 2 * (i64::from(first & 7) + 1);
        let mut next = table.next();
        let delta = match kind {
            LONG | NO_COLUMN => signed_number(&mut next, &mut table)?,
            kind if ONE_LINE.contains(&kind) => i32::from(kind - 10),
            _ => 0,
        };
        line = line.saturating_add(delta);
        if offset < end {
            return (kind != NO_LINE).then_some(line);
        }
        while next? & 0x80 == 0 {
            next = table.next();
        }
        first = next?;
    }
}

/// Reads a number of six bits per byte, the lowest first, whose lowest bit is the sign. `next` is its first byte, and then
/// the byte after it.
fn signed_number(next: &mut Option<u8>, table: &mut impl Iterator<Item = u8>) -> Option<i32> {
    let (mut value, mut shift) = (0_u32, 0);
    loop {
        let byte = (*next)?;
        value |= u32::from(byte & 63).checked_shl(shift).unwrap_or(0);
        *next = table.next();
        if byte & 64 == 0 {
            let magnitude = (value >> 1) as i32;
            return Some(if value & 1 == 1 { -magnitude } else { magnitude });
        }
        shift += 6;
    }
}

#[cfg(test)]
mod tests {
    use super::LineTable::{Lnotab, Locations, Ranges};
    use super::*;

    /// The tables of this function, as the versions of CPython compiled it from its second line on, with the lines of their
    /// instructions according to `dis.findlinestarts` or `co_lines()`: from which offset on, and which line (0: none).
    ///
    /// ```python
    /// def f(a):
    ///     x = [1,
    ///          2,
    ///          a]
    ///
    ///     for y in x:
    ///         if y:
    ///             continue
    ///         print(y,
    ///               x)
    ///     try:
    ///         z = x[0]
    ///     except E:
    ///         pass
    ///     return z
    /// ```
    fn check(kind: LineTable, table: &[u8], end: i64, lines: &[(i64, u32)]) {
        for (at, &(start, line)) in lines.iter().enumerate() {
            let next = lines.get(at + 1).map_or(end, |next| next.0);
            for offset in (start..next).step_by(2) {
                let found = line_at(kind, 2, table.iter().copied(), offset).unwrap_or(0);
                assert_eq!(found, line, "{kind:?}, offset {offset}");
            }
        }
        assert_eq!(line_at(kind, 2, table.iter().copied(), -1), Some(2), "before the first instruction");
    }

    #[test]
    fn lines_of_3_9() {
        let table =
            [0, 1, 2, 1, 2, 1, 2, 254, 4, 4, 8, 1, 4, 1, 2, 1, 4, 1, 2, 255, 6, 2, 2, 1, 12, 1, 12, 1, 6, 1];
        let lines = [
            (0, 3),
            (2, 4),
            (4, 5),
            (6, 3),
            (10, 7),
            (18, 8),
            (22, 9),
            (24, 10),
            (28, 11),
            (30, 10),
            (36, 12),
            (38, 13),
            (50, 14),
            (62, 15),
            (68, 16),
        ];
        check(Lnotab, &table, 72, &lines);
    }

    #[test]
    fn lines_of_3_10() {
        let table = [
            2, 1, 2, 1, 2, 1, 4, 254, 8, 4, 4, 1, 2, 1, 4, 1, 2, 1, 6, 255, 2, 2, 10, 1, 4, 3, 12, 254, 2, 1,
            4, 1, 2, 254,
        ];
        let lines = [
            (0, 3),
            (2, 4),
            (4, 5),
            (6, 3),
            (10, 7),
            (18, 8),
            (22, 9),
            (24, 10),
            (28, 11),
            (30, 10),
            (36, 12),
            (38, 13),
            (48, 16),
            (52, 14),
            (64, 15),
            (66, 16),
            (70, 14),
        ];
        check(Ranges, &table, 72, &lines);
        assert_eq!(line_at(Ranges, 2, [4, 128, 2, 3].into_iter(), 0), None, "a range without a line");
        assert_eq!(line_at(Ranges, 2, [4, 128, 2, 3].into_iter(), 4), Some(5));
    }

    #[test]
    fn lines_of_3_11() {
        let table = [
            128, 0, 216, 9, 10, 216, 9, 10, 216, 9, 10, 240, 5, 2, 9, 12, 128, 65, 240, 8, 0, 14, 15, 240, 0,
            4, 5, 17, 240, 0, 4, 5, 17, 136, 1, 216, 11, 12, 240, 0, 1, 9, 21, 216, 12, 20, 221, 8, 13, 136,
            97, 216, 14, 15, 241, 3, 1, 9, 17, 244, 0, 1, 9, 17, 240, 0, 1, 9, 17, 240, 0, 1, 9, 17, 240, 4,
            3, 5, 13, 216, 12, 13, 136, 97, 140, 68, 136, 1, 136, 1, 248, 221, 11, 12, 240, 0, 1, 5, 13, 240,
            0, 1, 5, 13, 240, 0, 1, 5, 13, 216, 8, 12, 136, 4, 240, 3, 1, 5, 13, 248, 248, 248, 224, 11, 12,
            128, 72,
        ];
        let lines = [
            (0, 2),
            (2, 3),
            (4, 4),
            (6, 5),
            (8, 3),
            (12, 7),
            (20, 8),
            (24, 9),
            (26, 10),
            (40, 11),
            (42, 10),
            (60, 12),
            (62, 13),
            (80, 0),
            (82, 14),
            (100, 15),
            (104, 14),
            (106, 0),
            (112, 16),
        ];
        check(Locations, &table, 116, &lines);
    }

    #[test]
    fn lines_of_3_13() {
        let table = [
            128, 0, 216, 9, 10, 216, 9, 10, 216, 9, 10, 240, 5, 2, 9, 12, 128, 65, 243, 8, 0, 14, 15, 136, 1,
            222, 11, 12, 217, 12, 20, 220, 8, 13, 136, 97, 216, 14, 15, 246, 3, 1, 9, 17, 241, 7, 0, 14, 15,
            240, 10, 3, 5, 13, 216, 12, 13, 136, 97, 137, 68, 136, 1, 240, 6, 0, 12, 13, 128, 72, 248, 244,
            5, 0, 12, 13, 243, 0, 1, 5, 13, 216, 8, 12, 216, 11, 12, 128, 72, 240, 5, 1, 5, 13, 250,
        ];
        let lines = [
            (0, 2),
            (2, 3),
            (4, 4),
            (6, 5),
            (8, 3),
            (12, 7),
            (22, 8),
            (36, 9),
            (40, 10),
            (52, 11),
            (54, 10),
            (68, 7),
            (72, 12),
            (74, 13),
            (84, 16),
            (88, 0),
            (90, 14),
            (108, 15),
            (110, 16),
            (114, 14),
            (116, 0),
        ];
        check(Locations, &table, 122, &lines);
    }

    #[test]
    fn damaged_tables_have_no_line() {
        for kind in [Ranges, Locations] {
            assert_eq!(line_at(kind, 2, [].into_iter(), 0), None);
        }
        assert_eq!(line_at(Ranges, 2, [4, 1, 2].into_iter(), 4), None, "half a pair");
        assert_eq!(line_at(Locations, 2, [240, 255, 255].into_iter(), 0), None, "an unfinished number");
        assert_eq!(line_at(Locations, 2, std::iter::repeat_n(255, 100), 4000), None);
        assert_eq!(line_at(Lnotab, 2, [0, 128].into_iter(), 0), None, "a line below the first");
        let long = [128 | 14 << 3, 127, 127, 127, 127, 127, 127, 127, 1];
        assert!(line_at(Locations, 2, long.into_iter(), 0).is_none_or(|line| line > 0));
    }
}
