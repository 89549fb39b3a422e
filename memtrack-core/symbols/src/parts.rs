//! The parts of a function. Compilers move rarely executed code of a function to another place, under the function's name
//! with a suffix (`.cold`).

use object::read::{Object, ObjectSymbol};
use std::fs::Metadata;
use std::ops::Range;
use std::path::Path;

/// Larger files are not read.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Returns the addresses, within the ELF file at `path`, of the function with this C name and of the parts that the
/// compiler has split off it. Returns an empty list if the file cannot be read or does not have the function.
pub fn parts_of_function(path: &Path, name: &str) -> Vec<Range<u64>> {
    // Opening a FIFO or a device could block forever.
    let is_readable = |metadata: Metadata| metadata.is_file() && metadata.len() <= MAX_FILE_BYTES;
    if !path.metadata().is_ok_and(is_readable) {
        return Vec::new();
    }
    // Reading the file as a whole takes some milliseconds. Reading the names of all symbols one by one takes ten times as
    // long, during which the collector would read no events.
    let Ok(content) = std::fs::read(path) else { return Vec::new() };
    let Ok(file) = object::File::parse(&*content) else { return Vec::new() };
    let is_part = |symbol: &str| {
        symbol.strip_prefix(name).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('.'))
    };
    let mut parts = Vec::new();
    for symbol in file.dynamic_symbols().chain(file.symbols()) {
        if symbol.is_definition() && symbol.size() > 0 && symbol.name().is_ok_and(is_part) {
            let part = symbol.address()..symbol.address().saturating_add(symbol.size());
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_of_this_program_is_found_by_its_name() {
        let program = std::env::current_exe().unwrap();
        let parts = parts_of_function(&program, "main");
        assert_eq!(parts.len(), 1, "{parts:?}");
        assert!(parts[0].end > parts[0].start);
        assert!(parts_of_function(&program, "no_such_function").is_empty());
        assert!(parts_of_function(Path::new("/dev/null"), "main").is_empty());
    }
}
