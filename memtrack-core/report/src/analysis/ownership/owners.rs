//! Finds the owners of many stacks: the functions at an address are judged once.

use super::{Judged, Owned, Rules, owned};
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;
use std::rc::Rc;

/// Finds the owners of a snapshot's stacks.
#[derive(Debug)]
pub struct Owners<'a> {
    rules: &'a Rules,
    /// The functions by their keys. No larger than the snapshot's own table of frames.
    known: HashMap<u64, Rc<[Judged]>, foldhash::fast::RandomState>,
}

impl<'a> Owners<'a> {
    /// By these rules.
    pub fn new(rules: &'a Rules) -> Self {
        Self { rules, known: HashMap::default() }
    }

    /// The owner of the stack with these [`frame_keys`](memtrack_model::snapshot::Snapshot::frame_keys), innermost first.
    pub fn owner(&mut self, keys: &[u64], symbols: &mut Symbolizer) -> Owned {
        let rules = self.rules;
        let mut judged = |key: u64| {
            let functions = self.known.entry(key).or_insert_with(|| {
                symbols.frames(key).iter().map(|frame| Judged::new(frame, rules)).collect()
            });
            Rc::clone(functions)
        };
        let stack: Vec<Rc<[Judged]>> = keys.iter().map(|&key| judged(key)).collect();
        let stack: Vec<&Judged> = stack.iter().flat_map(|functions| functions.iter()).collect();
        owned::of(&stack)
    }
}
