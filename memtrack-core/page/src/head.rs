//! The head of a page, in the form that its script reads (see `viewer/README.md`).

use crate::columns::Section;
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::{Snapshot, Value};
use serde::Serialize;
use serde_json::{Value as Json, json};

/// The version of the page format that `viewer/README.md` describes.
pub(crate) const FORMAT: u32 = 1;

#[derive(Debug, Serialize)]
pub(crate) struct Head {
    pub(crate) format: u32,
    pub(crate) memtrack: &'static str,
    pub(crate) name: String,
    pub(crate) view: &'static str,
    pub(crate) kept: bool,
    pub(crate) start_us: u64,
    pub(crate) since: &'static str,
    pub(crate) has_time: bool,
    pub(crate) settings: Json,
    pub(crate) first: Vec<String>,
    pub(crate) devices: Vec<DeviceHead>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DeviceHead {
    pub(crate) name: String,
    pub(crate) ordinal: u16,
    pub(crate) kind: Kind,
    pub(crate) estimated: bool,
    pub(crate) events: usize,
    pub(crate) blocks: usize,
    pub(crate) segments: usize,
    /// Whether an allocator reserved the device's segments.
    pub(crate) reserved: bool,
    pub(crate) streams: Vec<String>,
    pub(crate) pools: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// Whether [`Self::categories`] were inferred because the file does not contain them.
    pub(crate) inferred: bool,
    /// The property of blocks that colours initially show, either `category` or `stack`.
    pub(crate) color: &'static str,
    pub(crate) capacity_bytes: Option<u64>,
    pub(crate) first: Vec<Sentence>,
    pub(crate) ooms: Vec<usize>,
    pub(crate) markers: Vec<Marker>,
    pub(crate) sections: Sections,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Device,
    Heap,
    Mapped,
    Pinned,
}

/// A sentence in the summary, and the view of the page to which it links.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Sentence {
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) show: Option<PageState>,
}

/// The state of the page: its view, the selected event and the search query.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PageState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) view: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) query: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Marker {
    pub(crate) event: u32,
    pub(crate) name: &'static str,
}

/// The section numbers of a device's tables.
#[derive(Debug, Serialize)]
pub(crate) struct Sections {
    pub(crate) texts: usize,
    pub(crate) blocks: usize,
    pub(crate) events: usize,
    pub(crate) segments: usize,
    pub(crate) bands: usize,
}

impl Sections {
    /// Increases the section numbers by `offset`, the number of sections that were put in front of them.
    pub(crate) fn move_by(&mut self, offset: usize) {
        let Self { texts, blocks, events, segments, bands } = self;
        for section in [texts, blocks, events, segments, bands] {
            *section += offset;
        }
    }
}

/// A page's head, along with the fields that depend on whether the page contains its tables or requests them from a
/// server.
#[derive(Serialize)]
pub(crate) struct PageHead<'a> {
    #[serde(flatten)]
    pub(crate) head: &'a Head,
    pub(crate) served: bool,
    pub(crate) sections: &'a [Section],
}

/// The maximum depth of nested values in the settings.
const MAX_DEPTH: usize = 32;

/// Returns the settings in the file, or null if the file contains none.
pub(crate) fn settings_to_json(snapshot: &Snapshot) -> Json {
    let pytorch = snapshot.pytorch.as_deref();
    let value = pytorch.and_then(|pytorch| pytorch.root_value(Key::AllocatorSettings));
    value.map_or(Json::Null, |value| remove_memtrack(setting_to_json(snapshot, value, 0)))
}

/// Converts a setting to JSON. Values that JSON cannot represent become text.
fn setting_to_json(snapshot: &Snapshot, value: &Value, depth: usize) -> Json {
    let inner = |value: &Value| setting_to_json(snapshot, value, depth + 1);
    if depth > MAX_DEPTH {
        return json!("…");
    }
    let text = |value: &Value| match inner(value) {
        Json::String(text) => text,
        other => other.to_string(),
    };
    match value {
        Value::None => Json::Null,
        Value::Bool(truth) => json!(truth),
        Value::Int(number) => json!(number),
        Value::Float(number) if number.is_finite() => json!(number),
        Value::Float(number) => json!(number.to_string()),
        Value::Str(id) => json!(snapshot.strings.get(*id)),
        Value::Tuple(of) | Value::List(of) | Value::Set(of) | Value::FrozenSet(of) => {
            of.iter().map(inner).collect()
        }
        Value::Dict(entries) => {
            let entries = entries.iter().map(|(key, value)| (text(key), inner(value)));
            Json::Object(entries.collect())
        }
        Value::Big(_) => {
            value.as_i128().map_or_else(|| json!("a large integer"), |big| json!(big.to_string()))
        }
        Value::Bytes(_) | Value::Stack(_) | Value::Frame(_) => json!(value.type_name()),
    }
}

/// Removes the settings that memtrack adds to the files that it writes. The result is null if there are no other
/// settings.
fn remove_memtrack(mut settings: Json) -> Json {
    match settings.as_object_mut().map(|entries| (entries.remove("memtrack").is_some(), entries.is_empty())) {
        Some((true, true)) => Json::Null,
        _ => settings,
    }
}
