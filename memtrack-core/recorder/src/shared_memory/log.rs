//! The records in the log of a process: everything that events refer to by number, and what the process reports about
//! itself. A record is a head (its number and the length of its content) and its content, in native byte order.

use super::layout::PAGE_CONTENT_BYTES;
use memtrack_model::OutOfMemory;
use memtrack_model::event::{DeviceId, ScopeId, StackId, StreamId, ThreadId};
use memtrack_model::snapshot::{DriverReading, Module, ReadingMoment, Scope, ScopeKind, Thread};
use memtrack_model::text::cut;
use std::borrow::Cow;

/// The size of a record's head, in bytes.
pub(super) const HEAD_BYTES: usize = 8;
/// The maximum length of a text in a record, in bytes. Longer texts are truncated. A page has room for more than one
/// text.
const MAX_TEXT_BYTES: usize = 1600;

/// Declares the records: the number of each, its name, and its content.
macro_rules! records {
    ($($(#[doc = $doc:literal])* $number:literal $name:ident($($field:ident: $type:ty),*),)*) => {
        /// A record. The texts are borrowed where the program writes it, and owned where the command reads it.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Record<'a> {
            $($(#[doc = $doc])* $name($($type),*),)*
        }

        impl Record<'_> {
            /// Returns the record's number, for its head.
            pub(super) fn number(&self) -> u32 {
                match self {
                    $(Self::$name(..) => $number,)*
                }
            }

            /// Appends the record's content.
            pub(super) fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name($($field),*) => { $($field.put(out);)* })*
                }
            }
        }

        /// Returns the record with this number; `None` if it is damaged or the number is unknown.
        fn decode(number: u32, mut input: &[u8]) -> Option<Record<'static>> {
            match number {
                $($number => {
                    $(let $field = Field::take(&mut input)?;)*
                    Some(Record::$name($($field),*))
                })*
                _ => None,
            }
        }
    };
}

records! {
    /// A stack: return addresses, innermost first. The program writes it with `stack_pieces`.
    1 Stack(id: StackId, addresses: Vec<u64>),
    /// A thread.
    2 Thread(id: ThreadId, thread: Thread),
    /// A loaded binary.
    3 Module(module: Module),
    /// A reading of the CUDA driver.
    4 Driver(reading: DriverReading),
    /// A message for the user.
    5 Message(text: Cow<'a, str>),
    /// A scope.
    6 Scope(id: ScopeId, scope: Scope),
    /// A moment that the program marked: ticks, thread and name.
    7 Mark(ticks: u64, thread: ThreadId, name: Cow<'a, str>),
    /// The binary whose `dlsym` makes driver calls bypass the hook.
    8 Bypass(owner: Cow<'a, str>),
    /// A request for memory that failed, the time just afterwards in ticks, and a text that names the current scope.
    9 OutOfMemory(oom: OutOfMemory, ticks: u64, scope: Cow<'a, str>),
    /// The arguments of the program, with a null byte between them.
    10 CommandLine(arguments: Cow<'a, str>),
    /// The addresses of the function that runs Python frames: its first, and one past its last.
    11 Python(start: u64, end: u64),
    /// A line of Python: its number, the line, the file and the function.
    12 PythonLocation(number: u32, line: u32, file: Cow<'a, str>, function: Cow<'a, str>),
    /// The reason why Python frames are not recorded.
    13 PythonRefused(reason: Cow<'a, str>),
}

/// The number of [`Record::Stack`].
pub(super) const STACK: u32 = 1;

/// Returns the head of a record.
pub(super) fn head(number: u32, bytes: usize) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&number.to_ne_bytes());
    head[4..].copy_from_slice(&(bytes as u32).to_ne_bytes());
    head
}

/// Returns the content of a stack's record, in two pieces; `addresses` has the outermost frame first.
pub(crate) fn stack_pieces<'a>(id: &'a [u8; 4], addresses: &'a [u64]) -> [&'a [u8]; 2] {
    // SAFETY: integers without padding can be read as bytes.
    let bytes =
        unsafe { std::slice::from_raw_parts(addresses.as_ptr().cast::<u8>(), size_of_val(addresses)) };
    [id, bytes]
}

/// The result of [`take`].
pub(super) enum Taken {
    /// A record; `None` if it is damaged or of an unknown kind.
    Record(Option<Record<'static>>),
    /// The bytes end before the first record does.
    Incomplete,
    /// The bytes begin with something that no program writes as a record, so nothing after it can be read.
    Damaged,
}

/// Takes the first record from the front of `bytes`.
pub(super) fn take(bytes: &mut &[u8]) -> Taken {
    let Some(head) = bytes.get(..HEAD_BYTES) else { return Taken::Incomplete };
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (number, end) = (word(0), HEAD_BYTES.saturating_add(word(4) as usize));
    if end > PAGE_CONTENT_BYTES {
        return Taken::Damaged;
    }
    let Some(content) = bytes.get(HEAD_BYTES..end) else { return Taken::Incomplete };
    let record = decode(number, content);
    *bytes = &bytes[end..];
    Taken::Record(record)
}

/// A part of a record's content.
trait Field: Sized {
    /// Appends the field.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes the field from the front of `input`; `None` if it is damaged.
    fn take(input: &mut &[u8]) -> Option<Self>;
}

fn take_bytes<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*bytes)
}

impl Field for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_ne_bytes());
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        take_bytes(input).map(Self::from_ne_bytes)
    }
}

/// A stack's number takes 4 bytes.
impl Field for StackId {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_ne_bytes());
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        take_bytes(input).map(u32::from_ne_bytes).map(Self)
    }
}

/// The addresses of a stack, up to the end of the record. They are written in the opposite order.
impl Field for Vec<u64> {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().rev().for_each(|address| address.put(out));
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        let mut addresses: Self = std::iter::from_fn(|| u64::take(input)).collect();
        addresses.reverse();
        Some(addresses)
    }
}

/// A text is its length and its bytes. Longer ones are cut.
impl Field for Cow<'_, str> {
    fn put(&self, out: &mut Vec<u8>) {
        let text = cut(self, MAX_TEXT_BYTES);
        out.extend_from_slice(&(text.len() as u32).to_ne_bytes());
        out.extend_from_slice(text.as_bytes());
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        let len = u32::from_ne_bytes(take_bytes(input)?) as usize;
        let (text, rest) = input.split_at_checked(len)?;
        *input = rest;
        Some(String::from_utf8_lossy(text).into_owned().into())
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        Cow::from(self).put(out);
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        Cow::take(input).map(Cow::into_owned)
    }
}

/// Values that are written as a word.
macro_rules! words {
    ($($type:ty: |$value:ident| $to_word:expr, |$word:ident| $from_word:expr;)*) => {
        $(impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let $value = *self;
                u64::from($to_word).put(out);
            }

            fn take(input: &mut &[u8]) -> Option<Self> {
                let $word = u64::take(input)?;
                $from_word
            }
        })*
    };
}

words! {
    u32: |number| number, |word| word.try_into().ok();
    ThreadId: |id| id.0, |word| word.try_into().ok().map(Self);
    ScopeId: |id| id.0, |word| word.try_into().ok().map(Self);
    DeviceId: |id| id.0, |word| word.try_into().ok().map(Self);
    StreamId: |id| id.0, |word| Some(Self(word));
    ScopeKind: |kind| kind as u32, |word| ScopeKind::ALL.get(usize::try_from(word).ok()?).copied();
    ReadingMoment: |moment| moment as u32, |word| READING_MOMENTS.get(usize::try_from(word).ok()?).copied();
}

/// The moments of readings, each at the index by which records refer to it.
const READING_MOMENTS: [ReadingMoment; 3] =
    [ReadingMoment::Last, ReadingMoment::Fullest, ReadingMoment::OutOfMemory];

/// Rows that are written field by field, in this order.
macro_rules! rows {
    ($($row:ident { $($field:ident),* })*) => {
        $(impl Field for $row {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(input: &mut &[u8]) -> Option<Self> {
                $(let $field = Field::take(input)?;)*
                Some(Self { $($field),* })
            }
        })*
    };
}

rows! {
    Thread { os_id, name }
    Module { bias, start, end, path, build_id, code_id }
    Scope { parent, kind, name }
    DriverReading {
        device, moment, ticks, free_bytes, total_bytes, tracked_bytes, pools, pool_reserved_bytes, pool_reserved_peak_bytes,
        pool_used_bytes, pool_used_peak_bytes, opened, opened_bytes
    }
}

impl Field for OutOfMemory {
    fn put(&self, out: &mut Vec<u8>) {
        self.device.put(out);
        self.stream.put(out);
        [self.requested_bytes, self.device_free_bytes, self.device_total_bytes]
            .iter()
            .for_each(|bytes| bytes.put(out));
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        let (device, stream) = (Field::take(input)?, Field::take(input)?);
        let [requested, free, total] = [Field::take(input)?, Field::take(input)?, Field::take(input)?];
        Some(Self::new(device, stream, requested, free, total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let oom = OutOfMemory::new(DeviceId(1), StreamId(2), 3, 4, 5);
        let records = [
            Record::Stack(StackId(7), vec![1, 2, 3]),
            Record::Thread(ThreadId(3), Thread { name: "main".to_owned(), os_id: 12 }),
            Record::Scope(
                ScopeId(4),
                Scope { parent: ScopeId(2), kind: ScopeKind::Backward, name: "backward".to_owned() },
            ),
            Record::Driver(DriverReading {
                moment: ReadingMoment::OutOfMemory,
                opened: 9,
                ..DriverReading::default()
            }),
            Record::OutOfMemory(oom, 6, "loader".into()),
            Record::PythonLocation(1, 2, "train.py".into(), "step".into()),
        ];
        let mut bytes = Vec::new();
        for record in &records {
            let mut content = Vec::new();
            record.encode(&mut content);
            bytes.extend_from_slice(&head(record.number(), content.len()));
            bytes.extend_from_slice(&content);
        }
        let mut rest = &bytes[..];
        for record in records {
            assert!(matches!(take(&mut rest), Taken::Record(Some(read)) if read == record));
        }
        assert!(matches!(take(&mut rest), Taken::Incomplete));
        let [id, addresses] = stack_pieces(&7_u32.to_ne_bytes(), &[3, 2, 1]).map(<[u8]>::to_vec);
        let stack = decode(STACK, &[id, addresses].concat());
        assert_eq!(stack, Some(Record::Stack(StackId(7), vec![1, 2, 3])));
    }
}
