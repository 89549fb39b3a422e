//! The log of operators (`OPER`): the lines in which the recorder writes a program's reports about its operators, and
//! their reader. A line depends on nothing but the base of its ticks, so that any sequence of lines can be a chunk.
//!
//! [`OperatorLine`] is a report in progress: it is on the reporting thread's stack and allocates nothing.

use super::varint::{Bytes, Malformed};
use memtrack_model::event::{DeviceId, ScopeId, ThreadId};
use memtrack_model::operators::{Dtype, TensorInfo};
use memtrack_model::text::cut;
use std::borrow::Cow;

/// The maximum size of a line's content.
pub const MAX_LINE_BYTES: usize = 1024;
/// The maximum size of a line with its head: length, ticks and thread.
pub const MAX_FRAMED_BYTES: usize = MAX_LINE_BYTES + 24;
/// Names are truncated to this length in bytes.
const MAX_NAME_BYTES: usize = 128;
/// The maximum number of dimensions of a tensor in a line; if a tensor has more, the first ones are combined.
const MAX_DIMENSIONS: usize = 16;

const ENTER: u8 = 0;
const LEAVE: u8 = 1;
const INPUTS: u8 = 2;
const OUTPUTS: u8 = 3;
const PARAMETER: u8 = 4;
const BUFFER: u8 = 5;
const STATE: u8 = 6;
const GRADIENT: u8 = 7;

const WRITTEN: u8 = 1;
const STRIDED: u8 = 2;
const HAS_STORAGE: u8 = 4;
const HAS_STORAGE_BYTES: u8 = 8;

/// A line that is being written.
#[derive(Clone)]
pub struct OperatorLine {
    bytes: [u8; MAX_LINE_BYTES],
    len: usize,
    /// Whether everything that was appended fitted into `bytes`.
    fits: bool,
}

impl OperatorLine {
    const fn of(kind: u8) -> Self {
        let mut bytes = [0; MAX_LINE_BYTES];
        bytes[0] = kind;
        Self { bytes, len: 1, fits: true }
    }

    fn of_scope(kind: u8, scope: ScopeId) -> Self {
        let mut line = Self::of(kind);
        line.push_number(u64::from(scope.0));
        line
    }

    /// Begins the line of a scope that is entered.
    pub fn enter(scope: ScopeId) -> Self {
        Self::of_scope(ENTER, scope)
    }

    /// Begins the line of a scope that is left.
    pub fn leave(scope: ScopeId) -> Self {
        Self::of_scope(LEAVE, scope)
    }

    /// Begins the line of the inputs of the thread's innermost operator; the tensors are added with [`Self::with`].
    pub const fn inputs() -> Self {
        Self::of(INPUTS)
    }

    /// Begins the line of the outputs of the thread's innermost operator; the tensors are added with [`Self::with`].
    pub const fn outputs() -> Self {
        Self::of(OUTPUTS)
    }

    /// Begins the line of a parameter of the module with the number `owner`. The tensor is added with [`Self::with`], and
    /// then its gradient if it has one.
    pub fn parameter(owner: u64, class: &str, name: &str) -> Self {
        Self::registered(PARAMETER, owner, class, name)
    }

    /// Begins the line of a buffer of the module with the number `owner`; the tensor is added with [`Self::with`].
    pub fn buffer(owner: u64, class: &str, name: &str) -> Self {
        Self::registered(BUFFER, owner, class, name)
    }

    /// Begins the line of a state of the optimizer with the number `owner`. The parameter is added with [`Self::with`],
    /// and then the state.
    pub fn state(owner: u64, class: &str, name: &str) -> Self {
        Self::registered(STATE, owner, class, name)
    }

    /// Begins the line of a gradient. The parameter, if it is known, and then the gradient are added with
    /// [`Self::with`].
    pub const fn gradient() -> Self {
        Self::of(GRADIENT)
    }

    fn registered(kind: u8, owner: u64, class: &str, name: &str) -> Self {
        let mut line = Self::of(kind);
        line.push_number(owner);
        line.push_text(class);
        line.push_text(name);
        line
    }

    /// Appends a tensor. Returns whether it fitted; if not, the line is unchanged.
    pub fn with(&mut self, tensor: &TensorInfo<'_>, written: bool) -> bool {
        let before = self.len;
        self.push_tensor(tensor, written);
        if !self.fits {
            (self.len, self.fits) = (before, true);
            return false;
        }
        true
    }

    /// Returns the line's content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push_tensor(&mut self, tensor: &TensorInfo<'_>, written: bool) {
        let sizes = &tensor.sizes[..];
        let strides = tensor.strides.as_deref().filter(|strides| strides.len() == sizes.len());
        let flag = |condition: bool, flag: u8| if condition { flag } else { 0 };
        self.push_byte(
            flag(written, WRITTEN)
                | flag(strides.is_some() && sizes.len() <= MAX_DIMENSIONS, STRIDED)
                | flag(tensor.storage.is_some(), HAS_STORAGE)
                | flag(tensor.storage_bytes.is_some(), HAS_STORAGE_BYTES),
        );
        self.push_number(tensor.identity);
        self.push_byte(tensor.dtype as u8);
        // The complement is written, so that the number of the host's heap, which is the largest, takes one byte.
        self.push_number(u64::from(!tensor.device.0));
        if let Some(address) = tensor.storage {
            self.push_number(address);
        }
        if let Some(bytes) = tensor.storage_bytes {
            self.push_number(bytes);
        }
        let (combined, rest) = sizes.split_at(sizes.len().saturating_sub(MAX_DIMENSIONS - 1));
        if sizes.len() <= MAX_DIMENSIONS {
            self.push_number(sizes.len() as u64);
            sizes.iter().for_each(|&size| self.push_number(size as u64));
            strides.into_iter().flatten().for_each(|&stride| self.push_number(stride as u64));
        } else {
            self.push_number(rest.len() as u64 + 1);
            self.push_number(combined.iter().fold(1, |all: u64, &size| all.saturating_mul(size as u64)));
            rest.iter().for_each(|&size| self.push_number(size as u64));
        }
    }

    fn push_byte(&mut self, byte: u8) {
        match self.bytes.get_mut(self.len) {
            Some(place) => (*place, self.len) = (byte, self.len + 1),
            None => self.fits = false,
        }
    }

    fn push_number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push_byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.push_byte(value as u8);
    }

    fn push_text(&mut self, text: &str) {
        let text = cut(text, MAX_NAME_BYTES);
        self.push_number(text.len() as u64);
        text.bytes().for_each(|byte| self.push_byte(byte));
    }
}

/// Appends a line, written at `ticks` by `thread`, to lines whose ticks count from `base_ticks`. Allocates nothing if
/// `out` has room for [`MAX_FRAMED_BYTES`].
pub fn append(out: &mut Vec<u8>, base_ticks: u64, ticks: u64, thread: ThreadId, line: &[u8]) {
    super::varint::put(out, line.len() as u64);
    super::varint::put_delta(out, base_ticks, ticks);
    super::varint::put(out, u64::from(thread.0));
    out.extend_from_slice(line);
}

/// A tensor in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedTensor {
    /// The tensor's description.
    pub info: TensorInfo<'static>,
    /// Whether the operator writes to the tensor.
    pub written: bool,
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A scope was entered.
    Enter(ScopeId),
    /// A scope was left.
    Leave(ScopeId),
    /// The inputs of the innermost operator.
    Inputs(Vec<LoggedTensor>),
    /// The outputs of the innermost operator.
    Outputs(Vec<LoggedTensor>),
    /// A parameter of a module, and its gradient if it had one.
    Parameter(Registration<'a>, LoggedTensor, Option<LoggedTensor>),
    /// A buffer of a module.
    Buffer(Registration<'a>, LoggedTensor),
    /// A parameter, and the state that an optimizer keeps for it.
    State(Registration<'a>, LoggedTensor, LoggedTensor),
    /// A parameter, if it is known, and its gradient.
    Gradient(Option<LoggedTensor>, LoggedTensor),
}

/// The owner of a tensor, and the tensor's name in its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration<'a> {
    /// The number of the module or optimizer.
    pub owner: u64,
    /// The type of the module or optimizer.
    pub class: &'a str,
    /// The name of the parameter, buffer or state.
    pub name: &'a str,
}

/// A line that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedLine<'a> {
    /// The time at which the line was written.
    pub ticks: u64,
    /// The thread that wrote the line.
    pub thread: ThreadId,
    /// The line's content.
    pub entry: Entry<'a>,
}

/// Reads lines whose ticks count from `base_ticks`, up to the first damaged line. Lines of unknown kinds are skipped.
pub fn read_lines(base_ticks: u64, lines: &[u8]) -> impl Iterator<Item = LoggedLine<'_>> {
    let mut bytes = Bytes(lines);
    std::iter::from_fn(move || {
        while !bytes.0.is_empty() {
            let (ticks, thread, content) = read_line(base_ticks, &mut bytes).ok()?;
            match read_entry(content) {
                Ok(Some(entry)) => return Some(LoggedLine { ticks, thread, entry }),
                Ok(None) => {}
                Err(Malformed) => return None,
            }
        }
        None
    })
}

/// Checks that the bytes are a sequence of lines; only the heads of the lines are checked.
pub(super) fn check_lines(lines: &[u8]) -> Result<(), Malformed> {
    let mut bytes = Bytes(lines);
    while !bytes.0.is_empty() {
        read_line(0, &mut bytes)?;
    }
    Ok(())
}

fn read_line<'a>(base_ticks: u64, bytes: &mut Bytes<'a>) -> Result<(u64, ThreadId, &'a [u8]), Malformed> {
    let length = usize::try_from(bytes.read_number()?).map_err(|_| Malformed)?;
    let ticks = bytes.read_delta(base_ticks)?;
    let thread = ThreadId(bytes.read_u32()?);
    let (content, rest) = bytes.0.split_at_checked(length).ok_or(Malformed)?;
    bytes.0 = rest;
    Ok((ticks, thread, content))
}

fn read_entry(content: &[u8]) -> Result<Option<Entry<'_>>, Malformed> {
    let mut bytes = Bytes(content);
    Ok(Some(match bytes.read_byte()? {
        ENTER => Entry::Enter(ScopeId(bytes.read_u32()?)),
        LEAVE => Entry::Leave(ScopeId(bytes.read_u32()?)),
        INPUTS => Entry::Inputs(read_tensors(&mut bytes)?),
        OUTPUTS => Entry::Outputs(read_tensors(&mut bytes)?),
        PARAMETER => {
            let registration = read_registration(&mut bytes)?;
            Entry::Parameter(registration, read_tensor(&mut bytes)?, read_optional_tensor(&mut bytes)?)
        }
        BUFFER => Entry::Buffer(read_registration(&mut bytes)?, read_tensor(&mut bytes)?),
        STATE => {
            Entry::State(read_registration(&mut bytes)?, read_tensor(&mut bytes)?, read_tensor(&mut bytes)?)
        }
        GRADIENT => {
            let first = read_tensor(&mut bytes)?;
            match read_optional_tensor(&mut bytes)? {
                Some(gradient) => Entry::Gradient(Some(first), gradient),
                None => Entry::Gradient(None, first),
            }
        }
        _ => return Ok(None),
    }))
}

fn read_registration<'a>(bytes: &mut Bytes<'a>) -> Result<Registration<'a>, Malformed> {
    Ok(Registration { owner: bytes.read_number()?, class: read_text(bytes)?, name: read_text(bytes)? })
}

fn read_text<'a>(bytes: &mut Bytes<'a>) -> Result<&'a str, Malformed> {
    let length = bytes.read_count(1)?;
    let (text, rest) = bytes.0.split_at(length);
    bytes.0 = rest;
    std::str::from_utf8(text).map_err(|_| Malformed)
}

/// Reads the last tensor of a line; `None` if the line has no further tensor.
fn read_optional_tensor(bytes: &mut Bytes<'_>) -> Result<Option<LoggedTensor>, Malformed> {
    if bytes.0.is_empty() { Ok(None) } else { read_tensor(bytes).map(Some) }
}

fn read_tensors(bytes: &mut Bytes<'_>) -> Result<Vec<LoggedTensor>, Malformed> {
    let mut tensors = Vec::new();
    while !bytes.0.is_empty() {
        tensors.push(read_tensor(bytes)?);
    }
    Ok(tensors)
}

fn read_tensor(bytes: &mut Bytes<'_>) -> Result<LoggedTensor, Malformed> {
    let flags = bytes.read_byte()?;
    let identity = bytes.read_number()?;
    // Types that a later version added are read as bytes by this version.
    let dtype = Dtype::ALL.get(usize::from(bytes.read_byte()?)).copied().unwrap_or(Dtype::U8);
    let device = DeviceId(!u16::try_from(bytes.read_number()?).map_err(|_| Malformed)?);
    let has = |flag: u8| flags & flag != 0;
    let storage = if has(HAS_STORAGE) { Some(bytes.read_number()?) } else { None };
    let storage_bytes = if has(HAS_STORAGE_BYTES) { Some(bytes.read_number()?) } else { None };
    let rank = bytes.read_count(1)?;
    let sizes = read_dimensions(bytes, rank)?;
    let strides = if has(STRIDED) { Some(read_dimensions(bytes, rank)?) } else { None };
    let mut info = TensorInfo::new(identity, device, dtype, sizes);
    if let Some(address) = storage {
        info = info.storage(address, None);
    }
    info.storage_bytes = storage_bytes;
    info.strides = strides;
    Ok(LoggedTensor { info, written: has(WRITTEN) })
}

fn read_dimensions(bytes: &mut Bytes<'_>, rank: usize) -> Result<Cow<'static, [usize]>, Malformed> {
    let numbers: Result<Vec<usize>, Malformed> =
        (0..rank).map(|_| Ok(usize::try_from(bytes.read_number()?).unwrap_or(usize::MAX))).collect();
    numbers.map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(identity: u64, sizes: &[usize]) -> TensorInfo<'static> {
        TensorInfo::new(identity, DeviceId::HOST, Dtype::Bf16, sizes.to_vec()).storage(0x7f00_1234_5678, 4096)
    }

    fn read(written: &[(u64, OperatorLine)]) -> Vec<LoggedLine<'static>> {
        let mut out = Vec::new();
        for (ticks, line) in written {
            append(&mut out, 1_000, *ticks, ThreadId(7), line.bytes());
        }
        check_lines(&out).unwrap();
        let lines = read_lines(1_000, out.leak());
        lines.collect()
    }

    #[test]
    fn lines_are_read_back_unchanged() {
        let (one, two) = (info(1, &[2, 3]), info(u64::MAX, &[]));
        let strided = info(3, &[4, 4]).strides(&[1, 4][..]);
        let without = TensorInfo::new(4, DeviceId(3), Dtype::C128, &[0][..]);
        let mut inputs = OperatorLine::inputs();
        assert!(inputs.with(&one, true) && inputs.with(&strided, false) && inputs.with(&without, false));
        let mut parameter = OperatorLine::parameter(9, "Linear", "weight");
        assert!(parameter.with(&one, false) && parameter.with(&two, false));
        let mut gradient = OperatorLine::gradient();
        assert!(gradient.with(&two, false));
        let read = read(&[
            (1_000, OperatorLine::enter(ScopeId(5))),
            (1_010, inputs),
            (990, parameter),
            (2_000, gradient),
            (u64::MAX, OperatorLine::leave(ScopeId(5))),
        ]);
        let tensor =
            |info: &TensorInfo<'_>, written| LoggedTensor { info: info.clone().into_owned(), written };
        assert_eq!(
            read.iter().map(|line| line.ticks).collect::<Vec<_>>(),
            [1_000, 1_010, 990, 2_000, u64::MAX]
        );
        assert!(read.iter().all(|line| line.thread == ThreadId(7)));
        assert_eq!(read[0].entry, Entry::Enter(ScopeId(5)));
        let expected = vec![tensor(&one, true), tensor(&strided, false), tensor(&without, false)];
        assert_eq!(read[1].entry, Entry::Inputs(expected));
        let owned = Registration { owner: 9, class: "Linear", name: "weight" };
        assert_eq!(read[2].entry, Entry::Parameter(owned, tensor(&one, false), Some(tensor(&two, false))));
        assert_eq!(read[3].entry, Entry::Gradient(None, tensor(&two, false)));
        assert_eq!(read[4].entry, Entry::Leave(ScopeId(5)));
    }

    #[test]
    fn full_line_accepts_no_tensor_and_stays_valid() {
        let mut line = OperatorLine::inputs();
        let fitted =
            (0..1000).take_while(|&identity| line.with(&info(identity, &[usize::MAX; 12]), false)).count();
        assert!((2..20).contains(&fitted), "{fitted}");
        let read = read(&[(1_000, line)]);
        assert!(matches!(&read[0].entry, Entry::Inputs(tensors) if tensors.len() == fitted));
    }

    #[test]
    fn long_names_and_extra_dimensions_are_truncated() {
        let mut line = OperatorLine::buffer(1, &"é".repeat(2000), "mean");
        assert!(line.with(&info(1, &[2; 20]), false));
        let read = read(&[(1_000, line)]);
        let Entry::Buffer(owned, tensor) = &read[0].entry else { panic!("{:?}", read[0]) };
        assert_eq!((owned.class.len(), owned.name), (128, "mean"));
        assert_eq!(&tensor.info.sizes[..], [&[32_usize][..], &[2; 15]].concat());
    }

    #[test]
    fn damaged_lines_end_reading_and_unknown_kinds_are_skipped() {
        let mut out = Vec::new();
        append(&mut out, 0, 1, ThreadId(1), &[200, 1, 2, 3]);
        append(&mut out, 0, 2, ThreadId(1), OperatorLine::enter(ScopeId(1)).bytes());
        let whole = out.len();
        append(&mut out, 0, 3, ThreadId(1), &[INPUTS, 0xff]);
        append(&mut out, 0, 4, ThreadId(1), OperatorLine::leave(ScopeId(1)).bytes());
        assert_eq!(
            read_lines(0, &out).map(|line| line.entry).collect::<Vec<_>>(),
            [Entry::Enter(ScopeId(1))]
        );
        assert_eq!(read_lines(0, &out[..whole - 1]).count(), 0);
        assert!(check_lines(&out[..whole - 1]).is_err() && check_lines(&out).is_ok());
    }
}
