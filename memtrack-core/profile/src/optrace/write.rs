//! Writes operator traces, one JSON object per line.

use super::roles::{Role, for_each_tensor};
use memtrack_file::ReplacingFile;
use memtrack_formats::{Compression, write_compressed};
use memtrack_model::optrace::{
    Arg, Memory, NamedTensor, OpKind, OperatorTrace, OptimizedParam, Param, Record, RecordId, RecordKind,
    Tensor, TensorId, TracePhase,
};
use memtrack_model::snapshot::StringId;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes the trace to a file. The file does not appear until it is complete. It is compressed if its name
/// ends in `.gz` or `.zst`.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn save(trace: &OperatorTrace, path: &Path) -> io::Result<()> {
    let mut file = ReplacingFile::create(path)?;
    let suffix = path.extension().unwrap_or_default().to_string_lossy();
    let compression = Compression::named(&suffix).unwrap_or_default();
    write_compressed(&mut file, compression, |output| {
        write(trace, BufWriter::with_capacity(1 << 16, output))
    })?;
    file.commit()
}

/// Writes the trace. Handles and ids are the indices of tensors and records in the trace. Tensors and stacks
/// that no record refers to are omitted.
///
/// # Errors
/// Fails if writing to `out` fails.
pub fn write(trace: &OperatorTrace, out: impl Write) -> io::Result<()> {
    let mut writer = Writer {
        trace,
        out,
        tensors: vec![false; trace.tensors.len()],
        stacks: vec![false; trace.stacks.len()],
        lines: 0,
    };
    writer.write_header()?;
    let mut ends: BinaryHeap<Reverse<(i64, RecordId)>> = BinaryHeap::new();
    for (number, record) in (0..).zip(&trace.records) {
        while let Some(&Reverse((end_ns, ended))) = ends.peek()
            && end_ns < record.time_ns
        {
            ends.pop();
            writer.write_end(ended, end_ns)?;
        }
        writer.write_record(number, record)?;
        if let Some(end_ns) = record.end_ns {
            ends.push(Reverse((end_ns, number)));
        }
    }
    while let Some(Reverse((end_ns, ended))) = ends.pop() {
        writer.write_end(ended, end_ns)?;
    }
    writer.write_footer()
}

struct Writer<'a, W> {
    trace: &'a OperatorTrace,
    out: W,
    /// For each tensor, whether its description has been written.
    tensors: Vec<bool>,
    stacks: Vec<bool>,
    lines: u64,
}

/// The serializer for the fields of a line.
type Fields<'a, W> = <&'a mut serde_json::Serializer<W> as Serializer>::SerializeMap;

impl<W: Write> Writer<'_, W> {
    fn write_line(
        &mut self,
        kind: &str,
        fields: impl FnOnce(&mut Fields<'_, &mut W>) -> serde_json::Result<()>,
    ) -> io::Result<()> {
        let mut json = serde_json::Serializer::new(&mut self.out);
        let mut map = json.serialize_map(None)?;
        map.serialize_entry("ev", kind)?;
        fields(&mut map)?;
        SerializeMap::end(map)?;
        self.lines += 1;
        self.out.write_all(b"\n")
    }

    fn text(&self, id: StringId) -> String {
        self.trace.strings.get(id).into_owned()
    }

    fn write_header(&mut self) -> io::Result<()> {
        let header = &self.trace.header;
        let devices = if header.devices.is_empty() { &self.trace.devices } else { &header.devices };
        self.write_line("header", |map| {
            map.serialize_entry("format", "memtrack-optrace")?;
            map.serialize_entry("version", &1)?;
            map.serialize_entry("time", if header.unix_time { "unix_ns" } else { "monotonic_ns" })?;
            let (name, version) = &header.producer;
            map.serialize_entry("producer", &serde_json::json!({ "name": name, "version": version }))?;
            serialize_some(map, "pid", header.pid)?;
            serialize_some(map, "host", header.host.as_ref())?;
            serialize_some(map, "rank", header.rank)?;
            map.serialize_entry("devices", devices)?;
            serialize_some(map, "partial", header.partial.then_some(true))
        })
    }

    fn write_footer(&mut self) -> io::Result<()> {
        let records = self.lines - 1;
        self.write_line("footer", |map| map.serialize_entry("records", &records))?;
        self.out.flush()
    }

    fn write_tensor(&mut self, tensor: TensorId) -> io::Result<()> {
        if std::mem::replace(&mut self.tensors[tensor as usize], true) {
            return Ok(());
        }
        let Tensor {
            identity,
            storage,
            device,
            dtype,
            sizes,
            strides,
            layout,
            storage_bytes,
            name,
            element_bytes,
        } = &self.trace.tensors[tensor as usize];
        let dtype = self.text(*dtype);
        self.write_dtype(&dtype, *element_bytes)?;
        let (identity, layout, name) = (self.text(*identity), self.text(*layout), self.text(*name));
        let device = &self.trace.devices[device.0 as usize];
        self.write_line("tensor", |map| {
            map.serialize_entry("t", &tensor)?;
            map.serialize_entry("impl", &identity)?;
            map.serialize_entry("storage", &storage.map(format_address))?;
            map.serialize_entry("dev", device)?;
            map.serialize_entry("dtype", &dtype)?;
            map.serialize_entry("sizes", sizes)?;
            map.serialize_entry("strides", strides)?;
            map.serialize_entry("layout", &layout)?;
            serialize_some(map, "storage_bytes", *storage_bytes)?;
            serialize_some(map, "name", (!name.is_empty()).then_some(name))
        })
    }

    /// Declares an element type that is not predefined. The declaration is repeated for every tensor of this
    /// type, which the format allows.
    fn write_dtype(&mut self, dtype: &str, bytes: u64) -> io::Result<()> {
        if super::resolve::known_element_bytes(dtype).is_some() {
            return Ok(());
        }
        self.write_line("dtype", |map| {
            map.serialize_entry("name", dtype)?;
            map.serialize_entry("bytes", &bytes)
        })
    }

    fn write_stack(&mut self, stack: Option<u32>) -> io::Result<()> {
        let Some(stack) = stack else { return Ok(()) };
        if std::mem::replace(&mut self.stacks[stack as usize], true) {
            return Ok(());
        }
        let strings = &self.trace.strings;
        let frames: Vec<_> = self.trace.stacks[stack as usize]
            .iter()
            .map(|frame| {
                serde_json::json!({
                    "file": strings.get(frame.file), "line": frame.line, "name": strings.get(frame.name)
                })
            })
            .collect();
        self.write_line("stack", |map| {
            map.serialize_entry("s", &stack)?;
            map.serialize_entry("frames", &frames)
        })
    }

    fn write_record(&mut self, number: RecordId, record: &Record) -> io::Result<()> {
        // An operator's results are written with its end.
        let mut tensors = Vec::new();
        for_each_tensor(&record.what, |tensor, role| {
            tensors.extend((role != Role::Result).then_some(tensor))
        });
        tensors.into_iter().try_for_each(|tensor| self.write_tensor(tensor))?;
        let trace = self.trace;
        let text = |id: StringId| trace.strings.get(id);
        let place = |map: &mut Fields<'_, &mut W>| {
            map.serialize_entry("parent", &record.parent)?;
            map.serialize_entry("ts", &record.time_ns)?;
            map.serialize_entry("thread", &record.thread)?;
            let phase = match record.phase {
                TracePhase::Inherited => None,
                TracePhase::Of(phase) => Some(phase.name()),
                TracePhase::Other => Some("other"),
            };
            serialize_some(map, "phase", phase)
        };
        match &record.what {
            RecordKind::Op(op) => {
                self.write_stack(op.stack)?;
                self.write_line("op", |map| {
                    map.serialize_entry("id", &number)?;
                    place(map)?;
                    map.serialize_entry("name", &text(op.name))?;
                    if op.overload != StringId::EMPTY {
                        map.serialize_entry("overload", &text(op.overload))?;
                    }
                    let kind = match op.kind {
                        OpKind::Op => "op",
                        OpKind::Backward => "backward",
                        OpKind::User => "user",
                        OpKind::Other => "other",
                    };
                    map.serialize_entry("kind", kind)?;
                    map.serialize_entry("schema", &op.known)?;
                    map.serialize_entry("args", &op.args.iter().map(ArgJson).collect::<Vec<_>>())?;
                    serialize_some(map, "seq", op.sequence)?;
                    serialize_some(map, "stack", op.stack)
                })
            }
            RecordKind::Memory(memory) => {
                self.write_stack(memory.stack)?;
                let Memory { is_free, device, address: at, bytes, requested, stream, stack } = memory;
                self.write_line(if *is_free { "free" } else { "alloc" }, |map| {
                    place(map)?;
                    map.serialize_entry("dev", &trace.devices[device.0 as usize])?;
                    map.serialize_entry("ptr", &format_address(*at))?;
                    map.serialize_entry("bytes", bytes)?;
                    serialize_some(map, "requested", *requested)?;
                    serialize_some(map, "stream", *stream)?;
                    serialize_some(map, "stack", *stack)
                })
            }
            RecordKind::Module(module) => {
                let named =
                    |named: &NamedTensor| serde_json::json!({ "name": text(named.name), "t": named.tensor });
                let param = |param: &Param| serde_json::json!({ "name": text(param.name), "t": param.tensor, "grad": param.grad });
                self.write_line("module", |map| {
                    map.serialize_entry("id", &number)?;
                    place(map)?;
                    map.serialize_entry("self", &text(module.identity))?;
                    map.serialize_entry("class", &text(module.class))?;
                    if module.path != StringId::EMPTY {
                        map.serialize_entry("path", &text(module.path))?;
                    }
                    map.serialize_entry("params", &module.params.iter().map(param).collect::<Vec<_>>())?;
                    let buffers = module.buffers.iter().map(named).collect::<Vec<_>>();
                    serialize_some(map, "buffers", (!buffers.is_empty()).then_some(buffers))
                })
            }
            RecordKind::Optimizer(optimizer) => {
                let state = |state: &NamedTensor| serde_json::json!([text(state.name), state.tensor]);
                let param = |param: &OptimizedParam| {
                    let state: Vec<_> = param.state.iter().map(state).collect();
                    serde_json::json!({ "t": param.tensor, "grad": param.grad, "state": state })
                };
                self.write_line("optimizer", |map| {
                    map.serialize_entry("id", &number)?;
                    place(map)?;
                    map.serialize_entry("self", &text(optimizer.identity))?;
                    if optimizer.class != StringId::EMPTY {
                        map.serialize_entry("class", &text(optimizer.class))?;
                    }
                    map.serialize_entry("params", &optimizer.params.iter().map(param).collect::<Vec<_>>())
                })
            }
            RecordKind::Grad { param, grad } => self.write_line("grad", |map| {
                place(map)?;
                map.serialize_entry("param", param)?;
                map.serialize_entry("grad", grad)
            }),
            RecordKind::Mark(name) => self.write_line("mark", |map| {
                place(map)?;
                map.serialize_entry("name", &text(*name))
            }),
        }
    }

    fn write_end(&mut self, record: RecordId, end_ns: i64) -> io::Result<()> {
        let outs = match &self.trace.records[record as usize].what {
            RecordKind::Op(op) => &op.outs[..],
            _ => &[],
        };
        for &tensor in outs {
            self.write_tensor(tensor)?;
        }
        self.write_line("end", |map| {
            map.serialize_entry("id", &record)?;
            map.serialize_entry("ts", &end_ns)?;
            serialize_some(map, "outs", (!outs.is_empty()).then_some(outs))
        })
    }
}

/// Serializes an argument as JSON.
struct ArgJson<'a>(&'a Arg);

impl Serialize for ArgJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Arg::None => serializer.serialize_none(),
            Arg::Tensor(tensor, written) => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("t", tensor)?;
                map.serialize_entry("w", written)?;
                map.end()
            }
            Arg::Tensors(tensors, written) => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("ts", tensors)?;
                map.serialize_entry("w", written)?;
                map.end()
            }
        }
    }
}

fn serialize_some<M: SerializeMap>(
    map: &mut M,
    name: &str,
    value: Option<impl Serialize>,
) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(name, &value))
}

fn format_address(address: u64) -> String {
    format!("{address:#x}")
}
