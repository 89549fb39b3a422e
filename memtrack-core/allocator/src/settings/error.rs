//! Errors in a settings string. Programs might match on the messages, so the messages are PyTorch's.

use std::fmt;

/// The reason a settings string was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    kind: &'static str,
    text: String,
    key: String,
}

impl SettingsError {
    pub(super) fn value(text: impl Into<String>) -> Self {
        Self { kind: "ValueError", text: text.into(), key: String::new() }
    }

    pub(super) fn index(text: impl Into<String>) -> Self {
        Self { kind: "IndexError", ..Self::value(text) }
    }

    /// Creates an error that PyTorch reports as an internal failure.
    pub(super) fn internal(text: impl Into<String>) -> Self {
        Self { kind: "RuntimeError", ..Self::value(text) }
    }

    /// Records that the error is in the value of `key`.
    pub(super) fn in_value_of(mut self, key: &str) -> Self {
        key.clone_into(&mut self.key);
        self
    }

    /// Returns the name of the Python exception that PyTorch raises for this error.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns PyTorch's message.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the key whose value is invalid. It is empty if a key itself is invalid.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            f.write_str(self.text.trim_end())
        } else {
            write!(f, "{}: {}", self.key, self.text.trim_end())
        }
    }
}

impl std::error::Error for SettingsError {}
