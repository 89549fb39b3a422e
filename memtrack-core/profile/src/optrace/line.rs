//! The JSON form of a line in a trace. A single type has the fields of all kinds of records, which is
//! possible because no two kinds give the same field name different meanings. A line can therefore be parsed
//! in one go, before its kind is known.

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A string in a line. It is borrowed from the line unless it contains escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// The `parent` field, which may be absent, null or an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ParentLine {
    /// The field is absent, so the parent is the thread's innermost open record.
    #[default]
    Absent,
    Root,
    Id(u64),
}

impl<'de> Deserialize<'de> for ParentLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map_or(Self::Root, Self::Id))
    }
}

/// An argument that is not null. It is a scalar if it has neither `t` nor `ts`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ArgLine {
    pub(super) t: Option<u64>,
    pub(super) ts: Option<Vec<u64>>,
    pub(super) w: Option<bool>,
}

/// A parameter of a module or an optimizer.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ParamLine<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    pub(super) t: u64,
    pub(super) grad: Option<u64>,
    #[serde(borrow, default)]
    pub(super) state: Vec<(Text<'a>, u64)>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct BufferLine<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    pub(super) t: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct FrameLine<'a> {
    #[serde(borrow)]
    pub(super) file: Option<Text<'a>>,
    pub(super) line: Option<u32>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ProducerLine {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) version: String,
}

/// The kind of a line, parsed without the line's other fields.
#[derive(Debug, Deserialize)]
pub(super) struct KindLine<'a> {
    #[serde(borrow)]
    pub(super) ev: Text<'a>,
}

/// A line of any kind.
#[derive(Debug, Deserialize)]
pub(super) struct TraceLine<'a> {
    #[serde(borrow)]
    pub(super) ev: Text<'a>,
    pub(super) id: Option<u64>,
    #[serde(default)]
    pub(super) parent: ParentLine,
    pub(super) ts: Option<i64>,
    #[serde(default)]
    pub(super) thread: u64,
    #[serde(borrow)]
    pub(super) phase: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    // Fields of operators.
    #[serde(borrow)]
    pub(super) overload: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) kind: Option<Text<'a>>,
    pub(super) schema: Option<bool>,
    #[serde(default, deserialize_with = "deserialize_args")]
    pub(super) args: Vec<Option<ArgLine>>,
    pub(super) seq: Option<i64>,
    pub(super) stack: Option<u64>,
    #[serde(default)]
    pub(super) outs: Vec<u64>,
    // Fields of allocations and frees.
    #[serde(borrow)]
    pub(super) dev: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) ptr: Option<Text<'a>>,
    pub(super) bytes: Option<u64>,
    pub(super) requested: Option<u64>,
    pub(super) stream: Option<u64>,
    // Fields of modules and optimizers.
    #[serde(borrow, rename = "self")]
    pub(super) identity: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) class: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) path: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) params: Vec<ParamLine<'a>>,
    #[serde(borrow, default)]
    pub(super) buffers: Vec<BufferLine<'a>>,
    // Fields of gradients.
    pub(super) param: Option<u64>,
    pub(super) grad: Option<u64>,
    // Fields of definitions of tensors, element types and stacks.
    pub(super) t: Option<u64>,
    #[serde(borrow, rename = "impl")]
    pub(super) object: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) storage: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) dtype: Option<Text<'a>>,
    pub(super) sizes: Option<Vec<u64>>,
    pub(super) strides: Option<Vec<i64>>,
    #[serde(borrow)]
    pub(super) layout: Option<Text<'a>>,
    pub(super) storage_bytes: Option<u64>,
    pub(super) s: Option<u64>,
    #[serde(borrow, default)]
    pub(super) frames: Vec<FrameLine<'a>>,
    // Fields of the header and the footer.
    #[serde(borrow)]
    pub(super) format: Option<Text<'a>>,
    pub(super) version: Option<serde_json::Value>,
    #[serde(borrow)]
    pub(super) time: Option<Text<'a>>,
    pub(super) producer: Option<ProducerLine>,
    pub(super) pid: Option<u64>,
    pub(super) host: Option<String>,
    pub(super) rank: Option<u64>,
    pub(super) devices: Option<Vec<String>>,
    pub(super) partial: Option<bool>,
    pub(super) records: Option<u64>,
    pub(super) dropped: Option<u64>,
}

/// The maximum number of arguments that an operator may have. A list of tensors counts as one argument.
const MAX_ARGS: usize = 100_000;

fn deserialize_args<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Option<ArgLine>>, D::Error> {
    struct ArgsVisitor;
    impl<'de> Visitor<'de> for ArgsVisitor {
        type Value = Vec<Option<ArgLine>>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of arguments")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut args = Vec::new();
            while let Some(arg) = list.next_element()? {
                if args.len() == MAX_ARGS {
                    return Err(A::Error::custom("more than 100,000 arguments"));
                }
                args.push(arg);
            }
            Ok(args)
        }
    }
    deserializer.deserialize_seq(ArgsVisitor)
}

impl TraceLine<'_> {
    /// Returns the approximate in-memory size, in bytes, of the record built from this line.
    pub(super) fn memory_bytes(&self) -> u64 {
        let listed = |list: &Option<Vec<u64>>| list.as_ref().map_or(0, Vec::len);
        let in_args: usize = self.args.iter().flatten().map(|arg| listed(&arg.ts)).sum();
        let states: usize = self.params.iter().map(|param| param.state.len()).sum();
        let words = listed(&self.sizes) + self.strides.as_ref().map_or(0, Vec::len);
        let bytes = 200
            + 40 * self.args.len()
            + 4 * (in_args + self.outs.len())
            + 64 * self.params.len()
            + 32 * (states + self.buffers.len() + self.frames.len())
            + 8 * words;
        bytes as u64
    }
}
