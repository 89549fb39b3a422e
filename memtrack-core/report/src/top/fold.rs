//! The rule that decides which stacks look the same. In a program in Python or JavaScript, lines of these languages
//! count but the C++ frames below them do not. Frames that only forward a call are ignored, as are the type arguments
//! of functions. `rows` applies this rule.

use memtrack_frames::language::is_script;
use memtrack_frames::ownership::qualified_path;
use memtrack_frames::trim::is_internal;
use memtrack_model::Frame;
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;

/// The visible functions at an address.
#[derive(Clone, Debug, Default)]
struct VisibleFunctions {
    /// The numbers of the functions of scripts that are visible.
    script: Vec<u32>,
    /// The numbers of all functions that are visible.
    all: Vec<u32>,
    /// The numbers of all functions of scripts, including those that are not visible.
    any_script: Vec<u32>,
}

/// The numbers of functions. Functions that look the same have the same number.
#[derive(Debug, Default)]
pub(super) struct Fold {
    numbers: HashMap<(String, Option<String>, Option<u32>), u32>,
    by_address: HashMap<u64, VisibleFunctions, foldhash::fast::RandomState>,
}

impl Fold {
    /// Returns the visible part of a stack. Returns `None` if no function is visible, in which case the stack is shown
    /// as it is.
    pub(super) fn visible_functions(
        &mut self,
        addresses: &[u64],
        symbols: &mut Symbolizer,
    ) -> Option<Vec<u32>> {
        let script = self.script_functions(addresses, symbols);
        if script.is_some() {
            return script;
        }
        let all = self.function_numbers(addresses, |functions| &functions.all);
        (!all.is_empty()).then_some(all)
    }

    /// Returns the numbers of the visible functions of scripts in a stack or, if none is visible, of all its functions of
    /// scripts. Returns `None` if the stack has none.
    pub(super) fn script_functions(
        &mut self,
        addresses: &[u64],
        symbols: &mut Symbolizer,
    ) -> Option<Vec<u32>> {
        for &address in addresses {
            self.resolve(address, symbols);
        }
        let informative = self.function_numbers(addresses, |functions| &functions.script);
        let any = if informative.is_empty() {
            self.function_numbers(addresses, |functions| &functions.any_script)
        } else {
            informative
        };
        (!any.is_empty()).then_some(any)
    }

    fn function_numbers(&self, addresses: &[u64], of: impl Fn(&VisibleFunctions) -> &Vec<u32>) -> Vec<u32> {
        addresses.iter().filter_map(|address| self.by_address.get(address)).flat_map(of).copied().collect()
    }

    fn resolve(&mut self, address: u64, symbols: &mut Symbolizer) {
        if self.by_address.contains_key(&address) {
            return;
        }
        let mut functions = VisibleFunctions::default();
        for frame in symbols.frames(address).iter() {
            let next = self.numbers.len() as u32;
            let number = *self.numbers.entry(display_key(frame)).or_insert(next);
            let (is_script, is_visible) = (is_script(frame), !is_internal(frame));
            if is_visible {
                functions.all.push(number);
            }
            if is_script {
                functions.any_script.push(number);
            }
            if is_script && is_visible {
                functions.script.push(number);
            }
        }
        self.by_address.insert(address, functions);
    }
}

/// Returns the key that functions share if they look the same.
fn display_key(frame: &Frame) -> (String, Option<String>, Option<u32>) {
    let line = frame.line.filter(|&line| line > 0);
    // If the line is unknown, only the parameters distinguish C++ overloads.
    let has_plain_name = line.is_some() || !frame.function.contains('(');
    let function = if has_plain_name && !is_script(frame) {
        qualified_path(&frame.function)
    } else {
        frame.function.clone()
    };
    (function, frame.file.clone(), line)
}
