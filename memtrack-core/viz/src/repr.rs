//! Formats values like Python's `repr` and `str`. The event listing prints unknown events in this form. The text
//! consists of bytes, because names may contain lone surrogates.

use super::number::format_wide_decimal;
use super::printable::is_printable;
use super::sink::push_decimal;
use memtrack_model::python_float::python_float_repr;
use memtrack_model::snapshot::pytorch::event_value_at;
use memtrack_model::snapshot::{FrameId, Snapshot, Value};

/// The maximum length, in bytes, of a value that appears in place of a number or a word. Longer text is cut, because
/// values that refer to each other could make it arbitrarily long.
const MAX_VALUE_BYTES: usize = 4 << 10;
/// The maximum length of a whole event in bytes. It is larger than [`MAX_VALUE_BYTES`], because an event's stack may be
/// long.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// The maximum combined length, in bytes, of all events in a snapshot, apart from the [`MAX_BYTES_PER_EVENT`] bytes that
/// are added for each event.
const MAX_EVENT_BYTES_BASE: usize = 64 << 20;
const MAX_BYTES_PER_EVENT: usize = 64 << 10;

/// A writer for the values of one snapshot.
pub(super) struct Repr<'a> {
    snapshot: &'a Snapshot,
    /// The maximum length of one text, in bytes.
    max_bytes: usize,
    /// The number of bytes left for all further texts.
    bytes_left: usize,
    /// The output length at which the current text is cut.
    end: usize,
    /// Whether the last text was cut.
    pub(super) cut: bool,
}

impl<'a> Repr<'a> {
    /// Creates a writer for a value that appears in place of a number or a word.
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        Self { snapshot, max_bytes: MAX_VALUE_BYTES, bytes_left: usize::MAX, end: 0, cut: false }
    }

    /// Creates a writer for the events of a listing.
    pub(super) fn of_events(snapshot: &'a Snapshot) -> Self {
        let bytes_left =
            MAX_EVENT_BYTES_BASE.saturating_add(snapshot.events.len().saturating_mul(MAX_BYTES_PER_EVENT));
        Self { snapshot, max_bytes: MAX_EVENT_BYTES, bytes_left, end: 0, cut: false }
    }

    /// Writes `str(value)`: a string unchanged, and any other value as its `repr`, which is cut if it gets too long.
    pub(super) fn write_str(&mut self, out: &mut Vec<u8>, value: &Value) {
        match value {
            Value::Str(id) => out.extend_from_slice(self.snapshot.strings.bytes(*id)),
            _ => self.write_bounded(out, |repr, out| repr.write_value(out, value)),
        }
    }

    fn write_bounded(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Self, &mut Vec<u8>)) {
        let start = out.len();
        self.cut = false;
        self.end = start + self.max_bytes.min(self.bytes_left);
        write(self, out);
        self.bytes_left = self.bytes_left.saturating_sub(out.len() - start);
    }

    /// Returns whether the text has reached its maximum length. If so, appends `...` and marks the text as cut.
    fn cut_if_full(&mut self, out: &mut Vec<u8>) -> bool {
        let full = out.len() >= self.end;
        if full {
            out.extend_from_slice(b"...");
            self.cut = true;
        }
        full
    }

    /// Writes the event in `row` as a dictionary like the one in the file.
    pub(super) fn write_event(&mut self, out: &mut Vec<u8>, row: usize) {
        let Some(pytorch) = self.snapshot.pytorch.as_deref() else { return };
        let keys = &pytorch.events.shape_of(row).keys;
        let entries = keys.iter().enumerate().map(|(place, key)| {
            let value = event_value_at(&self.snapshot.events, &pytorch.events, row, place);
            (key.clone(), value.unwrap_or(Value::None))
        });
        let entries: Vec<_> = entries.collect();
        self.write_bounded(out, |repr, out| repr.write_dictionary(out, &entries));
    }

    /// Writes `repr(value)`.
    fn write_value(&mut self, out: &mut Vec<u8>, value: &Value) {
        match value {
            Value::None => out.extend_from_slice(b"None"),
            Value::Bool(truth) => out.extend_from_slice(if *truth { b"True" } else { b"False" }),
            Value::Int(number) => push_decimal(out, (*number).into()),
            Value::Big(bytes) => match format_wide_decimal(bytes) {
                Some(digits) => out.extend_from_slice(digits.as_bytes()),
                None => out.extend_from_slice(b"<integer of too many digits>"),
            },
            Value::Float(number) => out.extend_from_slice(python_float_repr(*number).as_bytes()),
            Value::Str(id) => push_quoted(out, self.snapshot.strings.bytes(*id)),
            Value::Bytes(bytes) => push_quoted_bytes(out, bytes),
            Value::Tuple(items) => match &items[..] {
                [one] => {
                    out.push(b'(');
                    self.write_value(out, one);
                    out.extend_from_slice(b",)");
                }
                items => self.write_items(out, "(", items, ")"),
            },
            Value::List(items) => self.write_items(out, "[", items, "]"),
            Value::Set(items) if items.is_empty() => out.extend_from_slice(b"set()"),
            Value::Set(items) => self.write_items(out, "{", items, "}"),
            Value::FrozenSet(items) if items.is_empty() => out.extend_from_slice(b"frozenset()"),
            Value::FrozenSet(items) => self.write_items(out, "frozenset({", items, "})"),
            Value::Dict(entries) => self.write_dictionary(out, entries),
            Value::Stack(stack) => {
                out.push(b'[');
                for (place, &frame) in self.snapshot.named.get(*stack).iter().enumerate() {
                    push_separator(out, place);
                    if self.cut_if_full(out) {
                        break;
                    }
                    self.write_frame(out, frame);
                }
                out.push(b']');
            }
            Value::Frame(frame) => self.write_frame(out, *frame),
        }
    }

    fn write_items(&mut self, out: &mut Vec<u8>, open: &str, items: &[Value], close: &str) {
        out.extend_from_slice(open.as_bytes());
        for (place, item) in items.iter().enumerate() {
            push_separator(out, place);
            if self.cut_if_full(out) {
                break;
            }
            self.write_value(out, item);
        }
        out.extend_from_slice(close.as_bytes());
    }

    fn write_dictionary(&mut self, out: &mut Vec<u8>, entries: &[(Value, Value)]) {
        out.push(b'{');
        for (place, (key, value)) in entries.iter().enumerate() {
            push_separator(out, place);
            if self.cut_if_full(out) {
                break;
            }
            self.write_value(out, key);
            out.extend_from_slice(b": ");
            self.write_value(out, value);
        }
        out.push(b'}');
    }

    fn write_frame(&mut self, out: &mut Vec<u8>, frame: FrameId) {
        let records = &self.snapshot.frames.records;
        let row = frame.index();
        if row >= records.len() {
            return out.extend_from_slice(b"{}");
        }
        let keys = &records.shape_of(row).keys;
        let value = |place| records.value_at(row, place).unwrap_or(Value::None);
        let entries: Vec<_> =
            keys.iter().enumerate().map(|(place, key)| (key.clone(), value(place))).collect();
        self.write_dictionary(out, &entries);
    }
}

fn push_separator(out: &mut Vec<u8>, place: usize) {
    if place > 0 {
        out.extend_from_slice(b", ");
    }
}

/// Returns the quote character that Python would choose.
fn quote_for(bytes: &[u8]) -> u8 {
    if bytes.contains(&b'\'') && !bytes.contains(&b'"') { b'"' } else { b'\'' }
}

/// Writes a byte that strings and bytes objects escape alike. Returns `false` for any other byte.
fn push_escape(out: &mut Vec<u8>, byte: u8, quote: u8) -> bool {
    match byte {
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\\' => out.extend_from_slice(b"\\\\"),
        _ if byte == quote => out.extend_from_slice(&[b'\\', quote]),
        _ => return false,
    }
    true
}

/// Writes a string in quotes.
fn push_quoted(out: &mut Vec<u8>, text: &[u8]) {
    let quote = quote_for(text);
    out.push(quote);
    let mut at = 0;
    while let Some(&first) = text.get(at) {
        let length = match first {
            0..0x80 => 1,
            0x80..0xe0 => 2,
            0xe0..0xf0 => 3,
            _ => 4,
        };
        let character = &text[at..(at + length).min(text.len())];
        at += length;
        if length == 1 && push_escape(out, first, quote) {
            continue;
        }
        // The bits of a character are those of its first byte, followed by six from each continuation byte.
        let lead = if length == 1 { u32::from(first) } else { u32::from(first) & (0x7f >> length) };
        let code = character[1..].iter().fold(lead, |code, byte| code << 6 | u32::from(byte & 0x3f));
        match code {
            _ if is_printable(code) => out.extend_from_slice(character),
            0..0x100 => out.extend_from_slice(format!("\\x{code:02x}").as_bytes()),
            0x100..0x10000 => out.extend_from_slice(format!("\\u{code:04x}").as_bytes()),
            _ => out.extend_from_slice(format!("\\U{code:08x}").as_bytes()),
        }
    }
    out.push(quote);
}

fn push_quoted_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let quote = quote_for(bytes);
    out.extend_from_slice(&[b'b', quote]);
    for &byte in bytes {
        if !push_escape(out, byte, quote) {
            match byte {
                0x20..0x7f => out.push(byte),
                _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
            }
        }
    }
    out.push(quote);
}
