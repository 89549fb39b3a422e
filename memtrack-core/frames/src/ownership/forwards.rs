//! Finds the line in the user's code that created an autograd node. This is needed because the backward pass runs in a
//! separate thread, whose stacks contain no Python frames. Nodes are created by operators in the forward pass, so if
//! all recorded calls of an operator are on the same line, that line created its nodes.

use super::Owners;
use super::Rules;
use crate::torch_stacks::TorchStack;
use memtrack_model::snapshot::Snapshot;
use memtrack_model::{Frame, Phase};
use memtrack_symbols::Symbolizer;
use std::collections::{HashMap, HashSet};

/// The prefix of the functions in which operators create their autograd nodes.
const NODE_CREATION_PREFIX: &str = "torch::autograd::VariableType::(anonymous namespace)::";
/// The prefix of the functions that belong to autograd nodes.
const NODE_PREFIX: &str = "torch::autograd::generated::";

/// The lines that created autograd nodes.
#[derive(Clone, Debug, Default)]
pub struct ForwardLines {
    /// The lines, by node class, such as `BmmBackward0`.
    lines: HashMap<String, Frame>,
}

impl ForwardLines {
    /// Finds the lines in a PyTorch snapshot. The result is empty for other snapshots.
    pub fn of(snapshot: &Snapshot, symbols: &mut Symbolizer, rules: &Rules) -> Self {
        let mut search = Search::default();
        if snapshot.pytorch.is_some() && has_nodes(snapshot) {
            let mut owners = Owners::new(rules);
            let mut seen = HashSet::new();
            for &stack in
                snapshot.events.stack.iter().filter(|&&stack| !stack.is_none() && seen.insert(stack))
            {
                let keys = snapshot.frame_keys(stack);
                let frames: Vec<Frame> = keys.iter().flat_map(|&key| symbols.frames(key).to_vec()).collect();
                search.visit(&frames, || owners.owner(&keys, symbols).mine);
            }
        }
        search.finish()
    }

    /// Returns the line that created the autograd node whose function is `node`.
    pub(super) fn line_of(&self, node: &Frame) -> Option<&Frame> {
        self.lines.get(extract_node_class(&node.function)?)
    }
}

/// The findings from the stacks visited so far.
#[derive(Debug, Default)]
struct Search {
    /// The line that calls each operator; `None` if several lines call it, or if a stack with the operator contains no
    /// line in the user's code.
    calls: HashMap<String, Option<Frame>>,
    nodes: HashSet<String>,
    /// Nodes that ran before any call of their operator was recorded.
    older: HashSet<String>,
}

impl Search {
    /// Visits a stack, innermost frame first; `line` returns the line in the user's code that the stack contains.
    fn visit(&mut self, frames: &[Frame], line: impl FnOnce() -> Option<Frame>) {
        if let Some(node) = frames.iter().find_map(|frame| extract_node_class(&frame.function)) {
            if !self.calls.keys().any(|operator| creates_node(operator, node)) {
                self.older.insert(node.to_owned());
            }
            self.nodes.insert(node.to_owned());
            return;
        }
        let operators: Vec<&str> =
            frames.iter().filter_map(|frame| extract_operator(&frame.function)).collect();
        // Optimizers compute without creating autograd nodes.
        if operators.is_empty() || TorchStack::of(frames).phase == Some(Phase::Optimizer) {
            return;
        }
        let line = line();
        for operator in operators {
            match self.calls.get_mut(operator) {
                None => {
                    self.calls.insert(operator.to_owned(), line.clone());
                }
                Some(known) if *known != line => *known = None,
                Some(_) => {}
            }
        }
    }

    fn finish(self) -> ForwardLines {
        let mut lines = HashMap::new();
        for node in self.nodes.difference(&self.older) {
            let mut calls =
                self.calls.iter().filter(|(operator, _)| creates_node(operator, node)).map(|(_, line)| line);
            let Some(Some(line)) = calls.next() else { continue };
            if calls.all(|other| other.as_ref() == Some(line)) {
                lines.insert(node.clone(), line.clone());
            }
        }
        ForwardLines { lines }
    }
}

/// Returns whether the snapshot contains a function of any autograd node.
fn has_nodes(snapshot: &Snapshot) -> bool {
    let names = (0..snapshot.frames.len() as u32).map(memtrack_model::snapshot::FrameId);
    names
        .map(|frame| snapshot.strings.get(snapshot.frames.name(frame)))
        .any(|name| extract_node_class(&name).is_some())
}

/// Extracts the class of an autograd node from the name of its function, e.g. `BmmBackward0` from
/// `torch::autograd::generated::BmmBackward0::apply(…)`.
fn extract_node_class(function: &str) -> Option<&str> {
    let (node, rest) = function.strip_prefix(NODE_PREFIX)?.split_once("::")?;
    (rest.starts_with("apply(") && node.contains("Backward")).then_some(node)
}

/// Extracts the operator, such as `mul_Tensor`, from the name of the function that creates its autograd node.
fn extract_operator(function: &str) -> Option<&str> {
    let at = function.find(NODE_CREATION_PREFIX)? + NODE_CREATION_PREFIX.len();
    let name = function[at..].split(['(', '<']).next()?;
    // The prefix may also occur in template arguments.
    let is_itself = !function[..at - NODE_CREATION_PREFIX.len()].contains(['<', '(']);
    (is_itself && !name.is_empty() && !name.contains("::")).then_some(name)
}

/// Returns whether the operator creates nodes of this class: `mul_Tensor` creates `MulBackward0`, and `_to_copy`
/// creates `ToCopyBackward0`. The trailing number, which stands for an overload, is ignored.
fn creates_node(operator: &str, node: &str) -> bool {
    let Some((class, _)) = node.split_once("Backward") else { return false };
    let mut letters = class.chars().map(|letter| letter.to_ascii_lowercase()).peekable();
    let mut rest = operator;
    while letters.peek().is_some() {
        let Some(letter) = rest.chars().next() else { return false };
        rest = &rest[letter.len_utf8()..];
        if letter == '_' {
            continue;
        }
        if letters.next() != Some(letter.to_ascii_lowercase()) {
            return false;
        }
    }
    // The remainder is an overload, or the underscore of an in-place operator.
    let rest = rest.trim_start_matches('_');
    let overloads = ["dim", "int", "out", "self", "other", "dtype", "correction", "forward"];
    rest.is_empty()
        || rest.starts_with(|first: char| first.is_ascii_uppercase())
        || overloads.iter().any(|overload| rest.starts_with(overload))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native_frame(function: &str) -> Frame {
        Frame { function: function.into(), ..Frame::default() }
    }

    fn line_frame(number: u32) -> Option<Frame> {
        let file = Some("/home/kim/model.py".to_owned());
        Some(Frame { function: "forward".into(), file, line: Some(number), binary: None })
    }

    fn forward_stack(operator: &str) -> Vec<Frame> {
        vec![
            native_frame("at::_ops::x::call(at::Tensor const&)"),
            native_frame(&format!("{NODE_CREATION_PREFIX}{operator}(c10::DispatchKeySet)")),
        ]
    }

    fn backward_stack(node: &str) -> Vec<Frame> {
        vec![
            native_frame(&format!("{NODE_PREFIX}{node}::apply(std::vector<at::Tensor>&&)")),
            native_frame("clone"),
        ]
    }

    /// Returns the line that is found for `node`; each entry in `stacks` is either an operator with its line or a node.
    fn found_line(stacks: &[(&str, u32)], node: &str) -> Option<u32> {
        let mut search = Search::default();
        for &(name, number) in stacks {
            match number {
                0 if name.contains("Backward") => search.visit(&backward_stack(name), || None),
                0 => search.visit(&forward_stack(name), || None),
                _ => search.visit(&forward_stack(name), || line_frame(number)),
            }
        }
        search.finish().line_of(&backward_stack(node)[0]).and_then(|frame| frame.line)
    }

    #[test]
    fn only_line_that_calls_operator_created_its_nodes() {
        let stacks = [("bmm", 39), ("exp", 40), ("bmm", 39), ("BmmBackward0", 0)];
        assert_eq!(found_line(&stacks, "BmmBackward0"), Some(39));
        assert_eq!(found_line(&stacks, "ExpBackward0"), None, "no such node ran");
    }

    #[test]
    fn node_with_several_or_unknown_candidate_lines_has_no_line() {
        assert_eq!(found_line(&[("bmm", 39), ("bmm", 52), ("BmmBackward0", 0)], "BmmBackward0"), None);
        assert_eq!(found_line(&[("bmm", 39), ("bmm", 0), ("BmmBackward0", 0)], "BmmBackward0"), None);
        assert_eq!(
            found_line(&[("mul_Tensor", 3), ("mul_Scalar", 4), ("MulBackward0", 0)], "MulBackward0"),
            None
        );
    }

    #[test]
    fn node_that_ran_before_its_operator_was_recorded_has_no_line() {
        assert_eq!(
            found_line(&[("BmmBackward0", 0), ("bmm", 39), ("BmmBackward0", 0)], "BmmBackward0"),
            None
        );
    }

    #[test]
    fn operators_create_nodes_that_are_named_after_them() {
        for (operator, node, expected) in [
            ("mul_Tensor", "MulBackward0", true),
            ("_to_copy", "ToCopyBackward0", true),
            ("_softmax", "SoftmaxBackward0", true),
            ("_log_softmax", "SoftmaxBackward0", false),
            ("softmax", "LogSoftmaxBackward0", false),
            ("sum_dim_IntList", "SumBackward1", true),
            ("relu_", "ReluBackward0", true),
            ("nll_loss_forward", "NllLossBackward0", true),
            ("addmm", "AddBackward0", false),
            ("add_Tensor", "AddmmBackward0", false),
            ("index_select", "IndexBackward0", false),
            ("bmm", "BmmBackward0", true),
        ] {
            assert_eq!(creates_node(operator, node), expected, "{operator} {node}");
        }
    }
}
