//! Writes a snapshot as JSON, which pytorch.org/memory_viz can also read. JSON cannot share values, so the
//! result is larger than a pickle. As in Python, values that JSON cannot represent are refused.

use super::{Container, SharedId, Sink};
use memtrack_model::snapshot::{StringId, Value};
use memtrack_model::text::decode_lossy;
use std::io::{self, Write};

/// A writer for a JSON document.
pub(super) struct JsonSink<W> {
    out: W,
    buffer: Vec<u8>,
    /// The open containers, each with its kind and whether it already has an item.
    open: Vec<(Container, bool)>,
    /// Whether the next value is a key.
    is_key: bool,
}

/// The number of bytes at which the buffer is written to the output.
const FLUSH_BYTES: usize = 64 << 10;

impl<W: Write> JsonSink<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, buffer: Vec::new(), open: Vec::new(), is_key: false }
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.buffer.push(b'\n');
        self.out.write_all(&self.buffer)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes a number or a word. As in Python, it is quoted if it is a key.
    fn write_plain(&mut self, text: &str) -> io::Result<()> {
        let quote: &[u8] = if self.is_key { b"\"" } else { b"" };
        for part in [quote, text.as_bytes(), quote] {
            self.buffer.extend_from_slice(part);
        }
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() >= FLUSH_BYTES {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}

fn unsupported_error(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{what} in the snapshot: JSON has none; write a pickle"),
    )
}

impl<W: Write> Sink for JsonSink<W> {
    fn write_none(&mut self) -> io::Result<()> {
        self.write_plain("null")
    }

    fn write_bool(&mut self, truth: bool) -> io::Result<()> {
        self.write_plain(if truth { "true" } else { "false" })
    }

    fn write_int(&mut self, number: i64) -> io::Result<()> {
        self.write_plain(&number.to_string())
    }

    fn write_big_int(&mut self, bytes: &[u8]) -> io::Result<()> {
        let number = Value::Big(bytes.into()).as_i128();
        let number = number.ok_or_else(|| unsupported_error("an integer of more than 128 bits"))?;
        self.write_plain(&number.to_string())
    }

    fn write_float(&mut self, number: f64) -> io::Result<()> {
        if number.is_nan() {
            return self.write_plain("NaN");
        }
        if number.is_infinite() {
            return self.write_plain(if number > 0.0 { "Infinity" } else { "-Infinity" });
        }
        self.write_plain(&format!("{number:?}"))
    }

    fn write_string(&mut self, _: StringId, text: &[u8]) -> io::Result<()> {
        self.buffer.push(b'"');
        let mut rest = text;
        while !rest.is_empty() {
            let plain = rest.iter().position(|&b| b < 0x20 || matches!(b, b'"' | b'\\' | 0x7f | 0xed));
            let (ready, after) = rest.split_at(plain.unwrap_or(rest.len()));
            self.buffer.extend_from_slice(ready);
            rest = after;
            match *rest {
                // This is a lone surrogate. Other characters may also start with the byte 0xed.
                [0xed, second @ 0xa0..=0xbf, third, ..] => {
                    let unit = 0xd000 | u32::from(second & 0x3f) << 6 | u32::from(third & 0x3f);
                    write!(self.buffer, "\\u{unit:04x}")?;
                    rest = &rest[3..];
                }
                [special @ (b'"' | b'\\'), ..] => {
                    self.buffer.extend_from_slice(&[b'\\', special]);
                    rest = &rest[1..];
                }
                [control, ..] if control < 0x20 || control == 0x7f => {
                    write!(self.buffer, "\\u{control:04x}")?;
                    rest = &rest[1..];
                }
                [byte, ..] => {
                    self.buffer.push(byte);
                    rest = &rest[1..];
                }
                [] => {}
            }
        }
        self.buffer.push(b'"');
        self.flush_if_full()
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        Err(unsupported_error(&format!(
            "bytes ({})",
            decode_lossy(&bytes[..bytes.len().min(20)]).escape_debug()
        )))
    }

    fn try_write_reference(&mut self, _: SharedId) -> io::Result<bool> {
        Ok(false)
    }

    fn begin_container(&mut self, container: Container, _: usize, _: Option<SharedId>) -> io::Result<()> {
        match container {
            _ if self.is_key => return Err(unsupported_error("a tuple as a key")),
            Container::List | Container::Tuple => self.buffer.push(b'['),
            Container::Dict => self.buffer.push(b'{'),
            Container::Set | Container::FrozenSet => return Err(unsupported_error("a set")),
        }
        self.open.push((container, false));
        Ok(())
    }

    fn begin_item(&mut self) -> io::Result<()> {
        if let Some((container, written)) = self.open.last_mut() {
            if std::mem::replace(written, true) {
                self.buffer.extend_from_slice(b", ");
            }
            self.is_key = *container == Container::Dict;
        }
        Ok(())
    }

    fn end_key(&mut self) -> io::Result<()> {
        self.is_key = false;
        self.buffer.extend_from_slice(b": ");
        Ok(())
    }

    fn end_item(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn end_container(&mut self) -> io::Result<()> {
        if let Some((container, _)) = self.open.pop() {
            self.buffer.push(if container == Container::Dict { b'}' } else { b']' });
        }
        self.flush_if_full()
    }
}
