//! The mappings of a process, from `/proc/PID/smaps` or `maps`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// A mapping of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The first address, and one past the last.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The path of the mapped file, a name in brackets, or nothing.
    pub(crate) path: String,
    /// The offset in the file.
    pub(crate) offset: u64,
    pub(crate) is_shared: bool,
    pub(crate) is_writable: bool,
    pub(crate) is_executable: bool,
    /// Whether nothing may be read, written or executed there.
    pub(crate) is_closed: bool,
    pub(crate) resident_bytes: u64,
    pub(crate) swapped_bytes: u64,
    /// Whether memtrack has marked these pages as its own: the advice `dd` and `rr` (`memtrack_recorder::internal_pages`).
    pub(crate) is_marked: bool,
    /// Whether the program asked for no huge pages, as Linux 6.7 and newer do for mappings that were made as a stack.
    pub(crate) has_no_huge_pages: bool,
}

impl Mapping {
    /// Returns whether the mapping is shared memory without a file on a disk.
    pub(crate) fn is_shared_memory(&self) -> bool {
        const NAMES: [&str; 4] = ["/dev/zero", "/dev/shm/", "/memfd:", "/SYSV"];
        self.is_shared && NAMES.iter().any(|name| self.path.starts_with(name))
    }

    /// Returns whether this is probably a stack: writable memory right above addresses that nothing may use. Threads, and stacks
    /// of signal handlers, have such a guard; `before` is the mapping before this one. Allocators reserve addresses above their
    /// memory, not below it.
    pub(crate) fn is_above_guard(&self, before: Option<&Mapping>) -> bool {
        /// Threads have stacks of at most some megabytes, unless a limit says otherwise.
        const MAX_STACK_BYTES: u64 = 1 << 30;
        /// glibc's guard is a page, others take up to a megabyte.
        const MAX_GUARD_BYTES: u64 = 1 << 20;
        // The guard may continue into other addresses that are only reserved.
        let is_guard = |before: &Mapping| {
            let is_small = before.end - before.start <= MAX_GUARD_BYTES;
            before.is_closed
                && before.path.is_empty()
                && before.end == self.start
                && (is_small || self.has_no_huge_pages)
        };
        self.is_writable && self.end - self.start <= MAX_STACK_BYTES && before.is_some_and(is_guard)
    }
}

/// Reads the mappings of a process by address, and the size of its pages in bytes.
///
/// # Errors
/// Fails when the process has ended, or when the system does not let the caller read them.
pub(crate) fn read_mappings(process: &Path) -> io::Result<(Vec<Mapping>, u64)> {
    parse(BufReader::with_capacity(64 << 10, File::open(process.join("smaps"))?))
}

/// Does the same as [`read_mappings`] without resident bytes, flags and the size of pages, which is returned as 0: a process
/// of any size is listed at once (`/proc/PID/maps`).
///
/// # Errors
/// As for [`read_mappings`].
pub(crate) fn list_mappings(process: &Path) -> io::Result<(Vec<Mapping>, u64)> {
    parse(BufReader::with_capacity(64 << 10, File::open(process.join("maps"))?))
}

/// The memory of a process by the kernel's counters, which may be behind by 64 pages a processor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) resident_bytes: u64,
    pub(crate) anonymous_bytes: u64,
    pub(crate) swapped_bytes: u64,
}

/// Reads the counters of a process.
///
/// # Errors
/// Fails when the process has ended.
pub(crate) fn read_counters(process: &Path) -> io::Result<Counters> {
    let status = std::fs::read_to_string(process.join("status"))?;
    let number = |name: &str| status.lines().find_map(|line| kibibytes(line, name)).unwrap_or(0);
    Ok(Counters {
        resident_bytes: number("VmRSS:"),
        anonymous_bytes: number("RssAnon:"),
        swapped_bytes: number("VmSwap:"),
    })
}

fn parse(mut input: impl BufRead) -> io::Result<(Vec<Mapping>, u64)> {
    let (mut mappings, mut page_bytes): (Vec<Mapping>, u64) = (Vec::new(), u64::MAX);
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        // A path may be any bytes.
        let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line));
        if let Some(mapping) = parse_head(&text) {
            mappings.push(mapping);
        } else if let Some(mapping) = mappings.last_mut() {
            if let Some(bytes) = kibibytes(&text, "Rss:") {
                mapping.resident_bytes = bytes;
            } else if let Some(bytes) = kibibytes(&text, "Swap:") {
                mapping.swapped_bytes = bytes;
            } else if let Some(bytes) = kibibytes(&text, "MMUPageSize:") {
                page_bytes = page_bytes.min(bytes);
            } else if let Some(flags) = text.strip_prefix("VmFlags:") {
                let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
                mapping.has_no_huge_pages = has("nh");
                mapping.is_marked = has("dd") && has("rr");
            }
        }
        line.clear();
    }
    if mappings.is_empty() {
        // The list of a process that has just ended is empty.
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok((mappings, if page_bytes.is_power_of_two() { page_bytes } else { 0 }))
}

/// Parses the first line of a mapping, as in `7f12a000-7f12c000 rw-p 0001e000 fe:00 1234   /usr/lib/libc.so.6`.
fn parse_head(line: &str) -> Option<Mapping> {
    let (addresses, rest) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    let mut fields = rest.splitn(5, ' ');
    let (access, offset) = (fields.next()?.as_bytes(), number(fields.next()?)?);
    let path = fields.nth(2).unwrap_or_default().trim_start();
    let has = |place: usize, letter: u8| access.get(place) == Some(&letter);
    (start < end && access.len() == 4).then(|| Mapping {
        start,
        end,
        path: path.to_owned(),
        offset,
        is_shared: has(3, b's'),
        is_writable: has(1, b'w'),
        is_executable: has(2, b'x'),
        is_closed: access.starts_with(b"---"),
        ..Mapping::default()
    })
}

/// Returns the number of bytes in a line as `Rss:   8 kB`, if it has this name.
fn kibibytes(line: &str, name: &str) -> Option<u64> {
    let number = line.strip_prefix(name)?.trim().strip_suffix("kB")?;
    number.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0c8a00000-55d0c8a02000 r--p 00001000 fe:00 1573001                    /opt/my app/bin (deleted)
Size:                  8 kB
MMUPageSize:           4 kB
Rss:                   4 kB
Swap:                  0 kB
VmFlags: rd mr mw me
7f0000000000-7f0000001000 ---p 00000000 00:00 0 
Rss:                   0 kB
7f0000001000-7f0000801000 rw-p 00000000 00:00 0 
Rss:                  12 kB
Swap:                 16 kB
VmFlags: rd wr mr mw me ac nh
7f0000801000-7f0000802000 rw-p 00000000 00:00 0 
VmFlags: rd wr mr mw me rr ac dd
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                  20 kB
";

    #[test]
    fn fields_are_parsed() {
        let (mappings, page_bytes) = parse(TEXT.as_bytes()).unwrap();
        assert_eq!((mappings.len(), page_bytes), (5, 4096));
        let first = &mappings[0];
        assert_eq!((first.path.as_str(), first.offset), ("/opt/my app/bin (deleted)", 4096));
        assert_eq!((first.resident_bytes, first.is_writable, first.is_closed), (4096, false, false));
        let stack = &mappings[2];
        assert_eq!(
            (stack.resident_bytes, stack.swapped_bytes, stack.has_no_huge_pages),
            (12288, 16384, true)
        );
        assert!(stack.is_above_guard(Some(&mappings[1])) && !stack.is_above_guard(Some(first)));
        assert!(mappings[3].is_marked && !stack.is_marked);
        assert_eq!(mappings[4].path, "[stack]");
    }

    #[test]
    fn the_list_of_an_ended_process_is_an_error() {
        assert!(parse(&b""[..]).is_err());
        assert!(parse(&b"nonsense\nRss: 12 kB\n"[..]).is_err());
    }
}
