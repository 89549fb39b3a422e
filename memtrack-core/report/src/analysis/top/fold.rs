//! The rule for stacks that look the same: for a Python program its own lines count and not the C++ below them;
//! frames that only pass a call on do not count, and neither do the types that a function was compiled for.
//! `rows` uses this.

use super::frames::is_python;
use crate::analysis::ownership::plain;
use crate::analysis::trim::is_internal;
use memtrack_model::Frame;
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;

/// The visible functions at an address.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Numbers of the Python functions that are visible.
    python: Vec<u32>,
    /// Numbers of all functions that are visible.
    all: Vec<u32>,
    /// Numbers of all Python functions.
    any_python: Vec<u32>,
}

/// Assigns one number to functions that look the same.
#[derive(Debug, Default)]
pub(super) struct Fold {
    numbers: HashMap<(String, Option<String>, Option<u32>), u32>,
    seen: HashMap<u64, Seen, foldhash::fast::RandomState>,
}

impl Fold {
    /// Returns the visible part of a stack; none where that is empty, so that the stack is shown as it is.
    pub(super) fn visible(&mut self, addresses: &[u64], symbols: &mut Symbolizer) -> Option<Vec<u32>> {
        let python = self.python(addresses, symbols);
        if python.is_some() {
            return python;
        }
        let all = self.numbers(addresses, |seen| &seen.all);
        (!all.is_empty()).then_some(all)
    }

    /// Returns the Python lines; none where there are none.
    pub(super) fn python(&mut self, addresses: &[u64], symbols: &mut Symbolizer) -> Option<Vec<u32>> {
        for &address in addresses {
            self.see(address, symbols);
        }
        let informative = self.numbers(addresses, |seen| &seen.python);
        let any = if informative.is_empty() {
            self.numbers(addresses, |seen| &seen.any_python)
        } else {
            informative
        };
        (!any.is_empty()).then_some(any)
    }

    fn numbers(&self, addresses: &[u64], of: impl Fn(&Seen) -> &Vec<u32>) -> Vec<u32> {
        addresses.iter().filter_map(|address| self.seen.get(address)).flat_map(of).copied().collect()
    }

    fn see(&mut self, address: u64, symbols: &mut Symbolizer) {
        if self.seen.contains_key(&address) {
            return;
        }
        let mut seen = Seen::default();
        for frame in symbols.frames(address).iter() {
            let next = self.numbers.len() as u32;
            let number = *self.numbers.entry(look(frame)).or_insert(next);
            let (is_python, is_visible) = (is_python(frame), !is_internal(frame));
            if is_visible {
                seen.all.push(number);
            }
            if is_python {
                seen.any_python.push(number);
            }
            if is_python && is_visible {
                seen.python.push(number);
            }
        }
        self.seen.insert(address, seen);
    }
}

/// Returns the common key of functions that look the same.
fn look(frame: &Frame) -> (String, Option<String>, Option<u32>) {
    let line = frame.line.filter(|&line| line > 0);
    // Without a line, only their parameters distinguish C++ overloads.
    let has_plain_name = line.is_some() || !frame.function.contains('(');
    let function =
        if has_plain_name && !is_python(frame) { plain(&frame.function) } else { frame.function.clone() };
    (function, frame.file.clone(), line)
}
