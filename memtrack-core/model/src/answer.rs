//! The building blocks of all JSON answers. Each thing has one name and one form in every command. Each answer is
//! defined in the package that produces it. The rules are in the repository's docs/JSON.md.
//!
//! Names of byte counts end in `_bytes`, and absent or unknown values are `null`. With the `schema` feature, all types
//! describe themselves as JSON Schema.

use crate::Frame;
use crate::event::DeviceId;
pub use crate::event::DeviceKind;
use crate::snapshot::{Since, Snapshot};
use crate::units::printable;
use serde::Serialize;

/// Makes a type serialize as another one, which it is converted to by reference; both have one schema.
#[doc(hidden)]
#[macro_export]
macro_rules! serialize_as {
    ($of:ty => $form:ty: $convert:expr) => {
        impl serde::Serialize for $of {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let convert: fn(&$of) -> $form = $convert;
                convert(self).serialize(serializer)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $of {
            fn inline_schema() -> bool {
                <$form as schemars::JsonSchema>::inline_schema()
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$form as schemars::JsonSchema>::schema_name()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                <$form as schemars::JsonSchema>::schema_id()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$form as schemars::JsonSchema>::json_schema(generator)
            }
        }
    };
}

/// Serializes a text that a report prints as the name that it is, or as the reason why there is none ([`NameAnswer`]). For fields with
/// `#[serde(flatten, serialize_with = …)]`.
///
/// # Errors
/// Fails if the serializer does.
pub fn serialize_as_name<S: serde::Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    NameAnswer::from_text(text).serialize(to)
}

/// Serializes a text that a report prints as the name that it is; as null if it only says why there is none.
///
/// # Errors
/// Fails if the serializer does.
pub fn serialize_only_name<S: serde::Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    NameAnswer::from_text(text).name.serialize(to)
}

/// Serializes an empty list, or a count of 0, as null: there is none of it in this answer.
///
/// # Errors
/// Fails if the serializer does.
pub fn serialize_unless_empty<T, S>(value: &T, to: S) -> Result<S::Ok, S::Error>
where
    T: Serialize + Default + PartialEq,
    S: serde::Serializer,
{
    if *value == T::default() { to.serialize_none() } else { value.serialize(to) }
}

/// A device that an answer describes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceAnswer {
    /// The device's number; null for the host's memory, which has no number, and if the file contains none.
    pub number: Option<u16>,
    /// The kind of the device's memory.
    pub kind: DeviceKind,
    /// The device's name in texts: `device 0`, `host heap`, `mapped memory` or `pinned host memory`. In an operator
    /// trace, this is the name given there.
    pub name: String,
}

impl DeviceAnswer {
    /// Creates the answer for a device in a snapshot from its ordinal in reports, its name and its kind.
    pub fn new(ordinal: u16, name: &str, kind: DeviceKind) -> Self {
        Self { number: kind.is_accelerator().then_some(ordinal), kind, name: name.to_owned() }
    }

    /// Describes a device of a snapshot.
    pub fn of(snapshot: &Snapshot, device: DeviceId) -> Self {
        Self::new(snapshot.ordinal(device), &snapshot.device_name(device), snapshot.device_kind(device))
    }

    /// Creates the answer for a device in a snapshot from its name in reports.
    pub fn from_name(name: &str) -> Self {
        let number = name.strip_prefix("device ").and_then(|number| number.parse().ok());
        Self::new(number.unwrap_or_default(), name, DeviceKind::of_name(name))
    }

    /// Creates the answer for a device that an operator trace calls `name` (such as `cuda:0` or `cpu`), or for a
    /// recording's device, given its name in reports.
    pub fn from_trace_name(name: &str) -> Self {
        if name.starts_with("device ") || !DeviceKind::of_name(name).is_accelerator() {
            return Self::from_name(name);
        }
        let kind = if name == "cpu" { DeviceKind::Host } else { DeviceKind::Device };
        let number = name.rsplit_once(':').and_then(|(_, number)| number.parse().ok());
        Self { number, kind, name: name.to_owned() }
    }
}

/// One function in a stack. Stacks are arrays of functions, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FrameAnswer {
    /// The function's name; null if the file does not name it.
    pub function: Option<String>,
    /// The source file; null if it is unknown.
    pub file: Option<String>,
    /// The line in the source file, counted from 1; null if it is unknown.
    pub line: Option<u32>,
    /// The return address, as `0x…`, if the program ran on this machine. Functions inlined into one another share it.
    pub address: Option<String>,
}

impl FrameAnswer {
    /// Adds the return address at which the function was found; 0 means that there is none.
    #[must_use]
    pub fn at(mut self, address: u64) -> Self {
        self.address = (address != 0).then(|| format!("{address:#x}"));
        self
    }
}

serialize_as!(Frame => FrameAnswer: |frame| frame.into());
serialize_as!(Since => &'static str: |since| since.name());

impl From<&Frame> for FrameAnswer {
    fn from(frame: &Frame) -> Self {
        Self {
            function: Some(frame.function.clone()).filter(|function| is_known(function)),
            file: frame.file.clone().filter(|file| is_known(file)),
            line: frame.line.filter(|&line| line > 0),
            address: None,
        }
    }
}

/// Returns whether the name is known. PyTorch writes `??` for an unknown name.
fn is_known(name: &str) -> bool {
    !name.is_empty() && name != "??"
}

/// The margin of error of an estimated number. Its key is the number's key with `_error` appended, and its value is
/// null if the number is exact, or exact for the blocks that are always recorded and covers only these.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorAnswer {
    /// The standard error, in the number's unit; 0 if there was no sample or if the number is a counted peak.
    pub standard_error: f64,
    /// The lower end of the interval that contains the true value with 95 % confidence. For a peak reached while small
    /// blocks were sampled, this is the recorder's count, so the peak is certainly not below it.
    pub low: i64,
    /// The upper end of the interval that contains the true value with 95 % confidence. For a counted peak, this is its
    /// certain upper bound, or null if that is unknown.
    pub high: Option<i64>,
}

/// A name, or the reason why there is none. Texts in brackets that reports for people print in place of a name
/// are not names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NameAnswer {
    /// The name; null if there is none.
    pub name: Option<String>,
    /// The reason why there is no name, in a few words; null if there is a name.
    pub why_no_name: Option<String>,
}

impl NameAnswer {
    /// Creates the answer for a text that a report prints. A text such as `(no stack)` is not a name.
    pub fn from_text(text: &str) -> Self {
        let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
        // C++ uses `(anonymous namespace)` as a name.
        match inner.filter(|inner| {
            !inner.is_empty() && !inner.contains(['(', ')']) && *inner != "anonymous namespace"
        }) {
            Some(why) => Self { name: None, why_no_name: Some(printable(why)) },
            None => Self { name: Some(text.to_owned()), why_no_name: None },
        }
    }

    /// Creates the answer for a name, even one in brackets.
    pub fn from_name(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), why_no_name: None }
    }
}

/// A sum of bytes in a file, which may be negative or exceed 64 bits. It is an integer if it fits in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transparent))]
pub struct WideAnswer(#[cfg_attr(feature = "schema", schemars(with = "f64"))] pub i128);

impl Serialize for WideAnswer {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match (i64::try_from(self.0), u64::try_from(self.0)) {
            (Ok(signed), _) => to.serialize_i64(signed),
            (_, Ok(unsigned)) => to.serialize_u64(unsigned),
            _ => to.serialize_f64(self.0 as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_has_no_number() {
        let shown = |device: DeviceAnswer| (device.number, device.kind, device.name);
        let named = |ordinal, name, kind| shown(DeviceAnswer::new(ordinal, name, kind));
        let device = named(3, "device 3", DeviceKind::Device);
        assert_eq!(device, (Some(3), DeviceKind::Device, "device 3".into()));
        assert_eq!(DeviceAnswer::from_name("device 3").number, Some(3));
        for kind in [DeviceKind::Host, DeviceKind::Mapped, DeviceKind::Pinned] {
            let name = kind.name().expect("host memory has a name");
            assert_eq!(named(1, name, kind), (None, kind, name.into()));
            assert_eq!(DeviceAnswer::from_name(name).kind, kind);
            assert_eq!(DeviceAnswer::from_trace_name(name).kind, kind);
        }
        assert_eq!(
            shown(DeviceAnswer::from_trace_name("cuda:1")),
            (Some(1), DeviceKind::Device, "cuda:1".into())
        );
        assert_eq!(shown(DeviceAnswer::from_trace_name("cpu")), (None, DeviceKind::Host, "cpu".into()));
    }

    #[test]
    fn texts_in_brackets_are_not_names() {
        let name = |text| NameAnswer::from_text(text).name;
        assert_eq!(
            (name("(no stack)"), name("(anonymous namespace)::f"), name("f(int)")),
            (None, Some("(anonymous namespace)::f".into()), Some("f(int)".into()))
        );
        assert_eq!(NameAnswer::from_text("(no stack)").why_no_name.as_deref(), Some("no stack"));
    }
}
