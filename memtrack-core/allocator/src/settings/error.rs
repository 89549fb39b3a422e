//! Errors in a settings string, in PyTorch's words, which programs may look for.

use std::fmt;

/// Why a settings string was refused.
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

    /// PyTorch reports these as its own failure.
    pub(super) fn internal(text: impl Into<String>) -> Self {
        Self { kind: "RuntimeError", ..Self::value(text) }
    }

    /// The error happened while the value of `key` was read.
    pub(super) fn of_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.key);
        self
    }

    /// The name of the Python exception that PyTorch raises.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// PyTorch's own text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The key whose value is wrong; empty when a key itself is.
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
