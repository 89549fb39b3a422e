//! Tells operator traces apart from snapshots and recordings, for commands that accept all of them.

use memtrack_formats::unpacked_head;

/// The maximum number of decompressed bytes to inspect.
const MAX_HEAD_BYTES: usize = 4096;

/// Returns whether a file that starts with these bytes, compressed or not, should be read as an operator
/// trace, so that errors in it are reported as trace errors. This is the case if the file starts with a
/// trace's header or record, even a damaged one, if it is another kind of JSON Lines, or if it is empty. The
/// first few KiB of the file are enough.
pub fn looks_like_trace(head: &[u8]) -> bool {
    if head.is_empty() {
        return true;
    }
    let line = first_line(head);
    is_record(&line) || is_other_object(&line)
}

/// Returns whether a file that starts with these bytes, compressed or not, starts with a record of an
/// operator trace.
pub fn is_operator_trace(head: &[u8]) -> bool {
    is_record(&first_line(head))
}

/// Returns the first line of a file that starts with these bytes, or as much of the line as they contain.
fn first_line(head: &[u8]) -> Vec<u8> {
    let unpacked = unpacked_head(head, MAX_HEAD_BYTES);
    unpacked.split(|&byte| byte == b'\n').next().unwrap_or_default().to_vec()
}

fn is_record(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{") && line.windows(4).any(|window| window == b"\"ev\"")
}

/// Returns whether the line is a complete JSON object that is not a snapshot.
fn is_other_object(line: &[u8]) -> bool {
    let object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line);
    object.is_ok_and(|object| !object.contains_key("segments") && !object.contains_key("device_traces"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    #[test]
    fn traces_are_distinguished_from_snapshots_even_if_truncated_or_compressed() {
        let header =
            b"{\"ev\":\"header\",\"format\":\"memtrack-optrace\",\"version\":9}\n{\"ev\":\"mark\"}\n"
                .repeat(999);
        assert!(looks_like_trace(&header) && looks_like_trace(&header[..60]) && looks_like_trace(b""));
        assert!(
            looks_like_trace(b"{\"ev\":\"op\",\"id\":1}") && looks_like_trace(b"{}\n"),
            "without a header"
        );
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&header).unwrap();
        let packed = packed.finish().unwrap();
        assert!(looks_like_trace(&packed) && looks_like_trace(&packed[..packed.len() / 2]));
        for other in
            [&b"{\"segments\": [], \"device_traces\": []}"[..], b"[]", b"\x80\x02}q\x00", b"MEMTRACK"]
        {
            assert!(!looks_like_trace(other), "{}", String::from_utf8_lossy(other));
        }
    }
}
