//! Determines the owners of many stacks, judging the functions at each address only once.

use super::{ForwardLines, JudgedFrame, Owner, Rules, StackOwner, stack_owner};
use memtrack_model::Frame;
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;
use std::rc::Rc;

/// The cached owners of a snapshot's stacks.
#[derive(Debug)]
pub struct Owners<'a> {
    rules: &'a Rules,
    /// The judged functions by key. The number of keys is at most the size of the snapshot's table of frames.
    known: HashMap<u64, Rc<[JudgedFrame]>, foldhash::fast::RandomState>,
    /// The lines that created autograd nodes.
    forwards: Rc<ForwardLines>,
    /// The judged functions that callers passed as frames rather than as keys.
    named: HashMap<Frame, Rc<JudgedFrame>, foldhash::fast::RandomState>,
}

impl<'a> Owners<'a> {
    /// Creates an empty cache that uses these rules.
    pub fn new(rules: &'a Rules) -> Self {
        Self { rules, known: HashMap::default(), forwards: Rc::default(), named: HashMap::default() }
    }

    /// Attributes stacks of the backward pass to the lines that created their autograd nodes.
    #[must_use]
    pub fn with_forward_lines(self, forwards: Rc<ForwardLines>) -> Self {
        Self { forwards, ..self }
    }

    /// Returns the lines that created autograd nodes.
    pub fn forwards(&self) -> Rc<ForwardLines> {
        Rc::clone(&self.forwards)
    }

    /// Adds the line from the forward pass if the stack has no line in the user's code.
    fn add_forward_line(&self, mut owned: StackOwner) -> StackOwner {
        if owned.mine.is_none()
            && let Some(node) = &owned.called
        {
            owned.mine = self.forwards.line_of(node).cloned();
        }
        owned
    }

    /// Returns the owner of the stack with these [`frame_keys`](memtrack_model::snapshot::Snapshot::frame_keys),
    /// innermost first.
    pub fn owner(&mut self, keys: &[u64], symbols: &mut Symbolizer) -> StackOwner {
        let stack = self.judge(keys, symbols);
        let owned =
            stack_owner::find_owner(&stack.iter().flat_map(|functions| functions.iter()).collect::<Vec<_>>());
        self.add_forward_line(owned)
    }

    /// Returns the functions of the stack with these keys, innermost first, along with their owners.
    pub fn functions(&mut self, keys: &[u64], symbols: &mut Symbolizer) -> Vec<(Frame, Owner)> {
        let stack = self.judge(keys, symbols);
        let stack: Vec<&JudgedFrame> = stack.iter().flat_map(|functions| functions.iter()).collect();
        let owners = stack_owner::frame_owners(&stack);
        stack.iter().map(|judged| judged.frame.clone()).zip(owners).collect()
    }

    fn judge(&mut self, keys: &[u64], symbols: &mut Symbolizer) -> Vec<Rc<[JudgedFrame]>> {
        let rules = self.rules;
        let mut judged = |key: u64| {
            let functions = self.known.entry(key).or_insert_with(|| {
                symbols.frames(key).iter().map(|frame| JudgedFrame::new(frame, rules)).collect()
            });
            Rc::clone(functions)
        };
        keys.iter().map(|&key| judged(key)).collect()
    }

    /// Returns the owner of the stack that consists of these functions, innermost first.
    pub fn owner_of<'f>(&mut self, frames: impl IntoIterator<Item = &'f Frame>) -> StackOwner {
        let stack = self.judge_by_name(frames);
        let owned = stack_owner::find_owner(&stack.iter().map(|judged| &**judged).collect::<Vec<_>>());
        self.add_forward_line(owned)
    }

    /// Returns the owner of each function in the stack that consists of these functions, innermost first.
    pub fn owners_of<'f>(&mut self, frames: impl IntoIterator<Item = &'f Frame>) -> Vec<Owner> {
        let stack = self.judge_by_name(frames);
        stack_owner::frame_owners(&stack.iter().map(|judged| &**judged).collect::<Vec<_>>())
    }

    fn judge_by_name<'f>(&mut self, frames: impl IntoIterator<Item = &'f Frame>) -> Vec<Rc<JudgedFrame>> {
        let rules = self.rules;
        let mut judged = |frame: &Frame| match self.named.get(frame) {
            Some(judged) => Rc::clone(judged),
            None => {
                let judged = Rc::new(JudgedFrame::new(frame, rules));
                self.named.insert(frame.clone(), Rc::clone(&judged));
                judged
            }
        };
        frames.into_iter().map(&mut judged).collect()
    }
}
