//! The records in the log of a process: everything that events refer to by number, and what the process reports about
//! itself. A record is a head (its kind and the length of its content) and its content, in native byte order.

use super::layout::PAGE_CONTENT_BYTES;
use memtrack_model::OutOfMemory;
use memtrack_model::event::{DeviceId, ScopeId, StackId, StreamId, ThreadId};
use memtrack_model::snapshot::{DriverReading, Module, ReadingMoment, Scope, ScopeKind, Thread};
use memtrack_model::text::cut;

/// The size of a record's head, in bytes.
pub(super) const HEAD_BYTES: usize = 8;
/// The maximum length of a text in a record, in bytes. Longer texts are truncated. A page has room for more than one
/// text.
const MAX_TEXT_BYTES: usize = 1600;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RecordKind {
    /// A stack.
    Stack = 1,
    /// A thread.
    Thread = 2,
    /// A loaded binary.
    Module = 3,
    /// A reading of the CUDA driver.
    Driver = 4,
    /// A message for the user.
    Message = 5,
    /// A scope.
    Scope = 6,
    /// A moment that the program marked.
    Mark = 7,
    /// The binary whose `dlsym` makes driver calls bypass the hook.
    Bypass = 8,
    /// A request for memory that failed.
    OutOfMemory = 9,
    /// The program's command line.
    CommandLine = 10,
    /// The Python interpreter.
    Python = 11,
    /// A line of Python.
    PythonLocation = 12,
    /// The reason why Python frames are not recorded.
    PythonRefused = 13,
}

/// A record, as the program writes it.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    /// A thread.
    Thread(ThreadId, &'a Thread),
    /// A loaded binary.
    Module(&'a Module),
    /// A reading of the CUDA driver.
    Driver(&'a DriverReading),
    /// A message for the user.
    Message(&'a str),
    /// A scope.
    Scope(ScopeId, &'a Scope),
    /// A moment that the program marked: ticks, thread and name.
    Mark(u64, ThreadId, &'a str),
    /// The binary whose `dlsym` makes driver calls bypass the hook.
    Bypass(&'a str),
    /// A request for memory that failed, the time just afterwards in ticks, and a text that names the current scope.
    OutOfMemory(&'a OutOfMemory, u64, &'a str),
    /// The arguments of the program, with a null byte between them.
    CommandLine(&'a str),
    /// The addresses of the function that runs Python frames: its first, and one past its last.
    Python(u64, u64),
    /// A line of Python: its number, the line, the file and the function.
    PythonLocation(u32, u32, &'a str, &'a str),
    /// The reason why Python frames are not recorded.
    PythonRefused(&'a str),
}

/// A record, as the command reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadRecord {
    /// A stack: return addresses, innermost first.
    Stack(StackId, Vec<u64>),
    /// A thread.
    Thread(ThreadId, Thread),
    /// A loaded binary.
    Module(Module),
    /// A reading of the CUDA driver.
    Driver(DriverReading),
    /// A message for the user.
    Message(String),
    /// A scope.
    Scope(ScopeId, Scope),
    /// A moment that the program marked: ticks, thread and name.
    Mark(u64, ThreadId, String),
    /// The binary whose `dlsym` makes driver calls bypass the hook.
    Bypass(String),
    /// A request for memory that failed, the time just afterwards in ticks, and a text that names the current scope.
    OutOfMemory(OutOfMemory, u64, String),
    /// The arguments of the program.
    CommandLine(Vec<String>),
    /// The addresses of the function that runs Python frames: its first, and one past its last.
    Python(u64, u64),
    /// A line of Python: its number, the line, the file and the function.
    PythonLocation(u32, u32, String, String),
    /// The reason why Python frames are not recorded.
    PythonRefused(String),
}

/// Returns the head of a record.
pub(super) fn head(kind: RecordKind, bytes: usize) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&(kind as u32).to_ne_bytes());
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

impl Record<'_> {
    /// Returns the record's kind.
    pub(super) fn kind(&self) -> RecordKind {
        match self {
            Self::Thread(..) => RecordKind::Thread,
            Self::Module(_) => RecordKind::Module,
            Self::Driver(_) => RecordKind::Driver,
            Self::Message(_) => RecordKind::Message,
            Self::Scope(..) => RecordKind::Scope,
            Self::Mark(..) => RecordKind::Mark,
            Self::Bypass(_) => RecordKind::Bypass,
            Self::OutOfMemory(..) => RecordKind::OutOfMemory,
            Self::CommandLine(_) => RecordKind::CommandLine,
            Self::Python(..) => RecordKind::Python,
            Self::PythonLocation(..) => RecordKind::PythonLocation,
            Self::PythonRefused(_) => RecordKind::PythonRefused,
        }
    }

    /// Appends the record's content.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Thread(id, thread) => {
                put_word(out, u64::from(id.0));
                put_word(out, thread.os_id);
                put_text(out, &thread.name);
            }
            Self::Module(module) => {
                [module.bias, module.start, module.end].into_iter().for_each(|word| put_word(out, word));
                [&module.path, &module.build_id, &module.code_id]
                    .into_iter()
                    .for_each(|text| put_text(out, text));
            }
            Self::Driver(reading) => driver_words(reading).into_iter().for_each(|word| put_word(out, word)),
            Self::Message(text)
            | Self::Bypass(text)
            | Self::CommandLine(text)
            | Self::PythonRefused(text) => put_text(out, text),
            Self::Python(start, end) => [*start, *end].into_iter().for_each(|word| put_word(out, word)),
            Self::PythonLocation(number, line, file, function) => {
                put_word(out, u64::from(*number));
                put_word(out, u64::from(*line));
                put_text(out, file);
                put_text(out, function);
            }
            Self::Scope(id, scope) => {
                let numbers = [u64::from(id.0), u64::from(scope.parent.0), scope.kind as u64];
                numbers.into_iter().for_each(|word| put_word(out, word));
                put_text(out, &scope.name);
            }
            Self::OutOfMemory(oom, ticks, scope) => {
                let numbers = [
                    u64::from(oom.device.0),
                    oom.stream.0,
                    oom.requested_bytes,
                    oom.device_free_bytes,
                    oom.device_total_bytes,
                    *ticks,
                ];
                numbers.into_iter().for_each(|word| put_word(out, word));
                put_text(out, scope);
            }
            Self::Mark(ticks, thread, name) => {
                put_word(out, *ticks);
                put_word(out, u64::from(thread.0));
                put_text(out, name);
            }
        }
    }
}

fn put_word(out: &mut Vec<u8>, word: u64) {
    out.extend_from_slice(&word.to_ne_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = cut(text, MAX_TEXT_BYTES);
    out.extend_from_slice(&(text.len() as u32).to_ne_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn driver_words(reading: &DriverReading) -> [u64; 13] {
    [
        u64::from(reading.device.0),
        match reading.moment {
            ReadingMoment::Last => 0,
            ReadingMoment::Fullest => 1,
            ReadingMoment::OutOfMemory => 2,
        },
        reading.ticks,
        reading.free_bytes,
        reading.total_bytes,
        reading.tracked_bytes,
        u64::from(reading.pools),
        reading.pool_reserved_bytes,
        reading.pool_reserved_peak_bytes,
        reading.pool_used_bytes,
        reading.pool_used_peak_bytes,
        u64::from(reading.opened),
        reading.opened_bytes,
    ]
}

/// The result of [`take`].
pub(super) enum Taken {
    /// A record; `None` if it is damaged or of an unknown kind.
    Record(Option<ReadRecord>),
    /// The bytes end before the first record does.
    Incomplete,
    /// The bytes begin with something that no program writes as a record, so nothing after it can be read.
    Damaged,
}

/// Takes the first record from the front of `bytes`.
pub(super) fn take(bytes: &mut &[u8]) -> Taken {
    let Some(head) = bytes.get(..HEAD_BYTES) else { return Taken::Incomplete };
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (kind, end) = (word(0), HEAD_BYTES.saturating_add(word(4) as usize));
    if end > PAGE_CONTENT_BYTES {
        return Taken::Damaged;
    }
    let Some(content) = bytes.get(HEAD_BYTES..end) else { return Taken::Incomplete };
    let record = decode(kind, Input(content));
    *bytes = &bytes[end..];
    Taken::Record(record)
}

fn decode(kind: u32, mut input: Input<'_>) -> Option<ReadRecord> {
    const STACK: u32 = RecordKind::Stack as u32;
    const THREAD: u32 = RecordKind::Thread as u32;
    const MODULE: u32 = RecordKind::Module as u32;
    const DRIVER: u32 = RecordKind::Driver as u32;
    const MESSAGE: u32 = RecordKind::Message as u32;
    const SCOPE: u32 = RecordKind::Scope as u32;
    const MARK: u32 = RecordKind::Mark as u32;
    const BYPASS: u32 = RecordKind::Bypass as u32;
    const COMMAND_LINE: u32 = RecordKind::CommandLine as u32;
    const OUT_OF_MEMORY: u32 = RecordKind::OutOfMemory as u32;
    const PYTHON: u32 = RecordKind::Python as u32;
    const PYTHON_LOCATION: u32 = RecordKind::PythonLocation as u32;
    const PYTHON_REFUSED: u32 = RecordKind::PythonRefused as u32;
    match kind {
        STACK => {
            let id = StackId(input.half()?);
            let mut addresses: Vec<u64> = std::iter::from_fn(|| input.word()).collect();
            addresses.reverse();
            Some(ReadRecord::Stack(id, addresses))
        }
        THREAD => {
            let id = ThreadId(input.number()?);
            let os_id = input.word()?;
            Some(ReadRecord::Thread(id, Thread { name: input.text()?, os_id }))
        }
        MODULE => {
            let [bias, start, end] = [input.word()?, input.word()?, input.word()?];
            let [path, build_id, code_id] = [input.text()?, input.text()?, input.text()?];
            Some(ReadRecord::Module(Module { path, bias, start, end, build_id, code_id }))
        }
        DRIVER => Some(ReadRecord::Driver(DriverReading {
            device: DeviceId(u16::try_from(input.word()?).ok()?),
            moment: match input.word()? {
                0 => ReadingMoment::Last,
                1 => ReadingMoment::Fullest,
                _ => ReadingMoment::OutOfMemory,
            },
            ticks: input.word()?,
            free_bytes: input.word()?,
            total_bytes: input.word()?,
            tracked_bytes: input.word()?,
            pools: input.number()?,
            pool_reserved_bytes: input.word()?,
            pool_reserved_peak_bytes: input.word()?,
            pool_used_bytes: input.word()?,
            pool_used_peak_bytes: input.word()?,
            opened: input.number()?,
            opened_bytes: input.word()?,
        })),
        MESSAGE => Some(ReadRecord::Message(input.text()?)),
        SCOPE => {
            let [id, parent] = [input.number()?, input.number()?];
            let kind = *ScopeKind::ALL.get(input.number()? as usize)?;
            Some(ReadRecord::Scope(ScopeId(id), Scope { parent: ScopeId(parent), kind, name: input.text()? }))
        }
        MARK => {
            let (ticks, thread) = (input.word()?, ThreadId(input.number()?));
            Some(ReadRecord::Mark(ticks, thread, input.text()?))
        }
        OUT_OF_MEMORY => {
            let device = DeviceId(u16::try_from(input.word()?).ok()?);
            let [stream, requested, free, total] =
                [input.word()?, input.word()?, input.word()?, input.word()?];
            let oom = OutOfMemory::new(device, StreamId(stream), requested, free, total);
            Some(ReadRecord::OutOfMemory(oom, input.word()?, input.text()?))
        }
        BYPASS => Some(ReadRecord::Bypass(input.text()?)),
        COMMAND_LINE => Some(ReadRecord::CommandLine(input.text()?.split('\0').map(str::to_owned).collect())),
        PYTHON => Some(ReadRecord::Python(input.word()?, input.word()?)),
        PYTHON_LOCATION => {
            let [number, line] = [input.number()?, input.number()?];
            Some(ReadRecord::PythonLocation(number, line, input.text()?, input.text()?))
        }
        PYTHON_REFUSED => Some(ReadRecord::PythonRefused(input.text()?)),
        _ => None,
    }
}

/// The part of a record's content that has not been decoded yet.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn half(&mut self) -> Option<u32> {
        let (half, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*half))
    }

    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }

    /// Takes a word that contains a 32-bit number.
    fn number(&mut self) -> Option<u32> {
        u32::try_from(self.word()?).ok()
    }

    fn text(&mut self) -> Option<String> {
        let len = self.half()? as usize;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}
