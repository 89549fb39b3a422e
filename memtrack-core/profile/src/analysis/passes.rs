//! The passes that assign categories to versions of tensors, in PyTorch's order.
//!
//! **Why a work list in `find_gradient_dependents`?** PyTorch walks all nodes repeatedly until nothing changes.
//! With the work list, the analysis takes linear time: 170 ns per event for 16,000 events, and 290 ns per
//! event for 1.3 million.

use super::category_map::CategoryMap;
use super::flow::{Flow, Node};
use super::identities::{AllocationId, Identities, NONE};
use super::tree::{Grouped, Tree};
use crate::category::Category;
use crate::optrace::Role;
use memtrack_model::optrace::{Arg, Op, OpKind, OperatorTrace, RecordId, RecordKind};

/// A version of a lifetime.
type Version = (AllocationId, u32);

/// The input to the passes.
pub(super) struct Passes<'a> {
    pub(super) trace: &'a OperatorTrace,
    pub(super) tree: &'a Tree,
    pub(super) identities: &'a Identities,
    pub(super) flow: &'a Flow,
}

impl<'a> Passes<'a> {
    /// Runs all passes.
    pub(super) fn run(&self) -> CategoryMap<'a> {
        let mut store = CategoryMap::new(self.identities, &self.flow.newest);
        let roles = self.find_roles();
        label_gradients_and_temporaries(self.flow, &roles, &mut store);
        label_registered(&roles, Role::Parameter, Category::Parameter, &mut store);
        label_registered(&roles, Role::Buffer, Category::Buffer, &mut store);
        self.label_inputs(&mut store);
        self.label_parameters_from_flow(&mut store);
        label_activations(self.flow, &mut store);
        label_registered(&roles, Role::State, Category::OptimizerState, &mut store);
        label_autograd_detail(self.flow, &mut store);
        store
    }

    /// Returns the roles that records assign, in the order of the tree walk.
    fn find_roles(&self) -> Vec<(Role, AllocationId)> {
        let mut roles = Vec::new();
        for &number in &self.tree.walk {
            match &self.trace.records[number as usize].what {
                RecordKind::Op(op) => {
                    roles.extend(self.accumulated_gradient(number, op).map(|key| (Role::Gradient, key)));
                }
                _ => self.identities.for_each_key(self.trace, number, |_, role, key| {
                    if key != NONE {
                        roles.push((role, key));
                    }
                }),
            }
        }
        roles
    }

    /// Returns the gradient that an AccumulateGrad node adds to a parameter, which is the first argument of
    /// the first operator in the node.
    fn accumulated_gradient(&self, number: RecordId, op: &Op) -> Option<AllocationId> {
        let strings = &self.trace.strings;
        if op.kind != OpKind::Backward || strings.bytes(op.name) != b"torch::autograd::AccumulateGrad" {
            return None;
        }
        let child = self.tree.first_child(number)?;
        let RecordKind::Op(first) = &self.trace.records[child as usize].what else { return None };
        let name = strings.bytes(first.name);
        let has_tensor = matches!(first.args.first(), Some(Arg::Tensor(..)));
        let accumulates = (name == b"aten::detach" || name == b"aten::add_") && has_tensor;
        accumulates.then(|| self.identities.keys_of(child)[0]).filter(|&key| key != NONE)
    }

    /// Returns, for each logical tensor, whether it depends on a gradient or a parameter.
    fn find_gradient_dependents(&self, store: &CategoryMap<'_>) -> Vec<bool> {
        let Self { identities, flow, .. } = self;
        let count = identities.lifetimes.len();
        let tensor = |key: AllocationId| identities.tensor(key) as usize;
        let nodes = || (0..).zip(&flow.nodes);
        let readers = Grouped::of(count, || {
            nodes().flat_map(|(number, node)| flow.inputs(node).map(move |(key, _)| (tensor(key), number)))
        });
        let mut depends = vec![false; count];
        let mut is_reached = vec![false; flow.nodes.len()];
        let mut found: Vec<usize> = Vec::new();
        let mut reach = |node: &Node, number: usize, depends: &mut Vec<bool>, found: &mut Vec<usize>| {
            if std::mem::replace(&mut is_reached[number], true) {
                return;
            }
            for (key, _) in flow.outputs(node) {
                if !std::mem::replace(&mut depends[tensor(key)], true) {
                    found.push(tensor(key));
                }
            }
        };
        for (number, node) in flow.nodes.iter().enumerate() {
            for of in flow.inputs(node) {
                if matches!(store.get(of), Some(Category::Gradient | Category::Parameter)) {
                    if !std::mem::replace(&mut depends[tensor(of.0)], true) {
                        found.push(tensor(of.0));
                    }
                    reach(node, number, &mut depends, &mut found);
                }
            }
        }
        while let Some(tensor) = found.pop() {
            for &number in readers.get(tensor) {
                reach(&flow.nodes[number as usize], number as usize, &mut depends, &mut found);
            }
        }
        depends
    }

    /// Labels tensors as inputs if they contribute to gradients but do not depend on gradients or parameters.
    fn label_inputs(&self, store: &mut CategoryMap<'_>) {
        let flow = self.flow;
        let depends = self.find_gradient_dependents(store);
        let mut contributes = vec![false; store.slot_count()];
        for node in flow.nodes.iter().rev() {
            let touched = || flow.inputs(node).chain(flow.outputs(node));
            let is_wanted = touched().any(|of| {
                matches!(store.get(of), Some(Category::Gradient | Category::Parameter))
                    || contributes[store.slot(of)]
            });
            if is_wanted {
                touched().for_each(|of| contributes[store.slot(of)] = true);
            }
        }
        for node in flow.nodes.iter().filter(|node| node.is_backward) {
            flow.outputs(node).for_each(|of| contributes[store.slot(of)] = false);
        }
        for of in self.versions(store) {
            if contributes[store.slot(of)] && !depends[self.identities.tensor(of.0) as usize] {
                store.set_version_if_none(of, Category::Input);
            }
        }
    }

    /// Returns all versions of all lifetimes that have a key.
    fn versions(&self, store: &CategoryMap<'_>) -> Vec<Version> {
        let keys = (1..self.identities.lifetimes.len() as AllocationId)
            .filter(|&key| self.identities.lifetimes[key as usize].has_key());
        keys.flat_map(|key| (0..store.version_count(key)).map(move |version| (key, version))).collect()
    }

    /// Returns, for each slot of the store, whether its version appears in the graph or in the store.
    pub(super) fn find_present(&self, store: &CategoryMap<'_>) -> Vec<bool> {
        let mut present = vec![false; store.slot_count()];
        for node in &self.flow.nodes {
            for edge in self.flow.edges(node) {
                if edge.is_intermediate() {
                    present[store.slot((edge.key, 0))] = true;
                }
                let versions = [edge.input, edge.output()];
                for version in versions.into_iter().flatten() {
                    present[store.slot((edge.key, version))] = true;
                }
            }
        }
        for key in 0..self.identities.lifetimes.len() as AllocationId {
            if store.has_tensor_category[key as usize] {
                present[store.slot((key, 0))] = true;
            }
        }
        present
    }

    /// Labels parameters that are not registered by any module or optimizer. These are tensors that the
    /// forward pass combines with inputs, that are not computed from inputs, and that contribute to a
    /// gradient.
    fn label_parameters_from_flow(&self, store: &mut CategoryMap<'_>) {
        let flow = self.flow;
        let present = self.find_present(store);
        let versions = self.versions(store);
        let mut forward = vec![false; store.slot_count()];
        for &of in &versions {
            forward[store.slot(of)] = present[store.slot(of)] && store.get(of) == Some(Category::Input);
        }
        let mut candidates = vec![false; store.slot_count()];
        let is_gradient = |store: &CategoryMap<'_>, of: Version| store.get(of) == Some(Category::Gradient);
        for node in flow.nodes.iter().filter(|node| !node.is_backward) {
            let has_gradient = flow.inputs(node).chain(flow.outputs(node)).any(|of| is_gradient(store, of));
            if has_gradient || !flow.inputs(node).any(|of| forward[store.slot(of)]) {
                continue;
            }
            flow.outputs(node).for_each(|of| forward[store.slot(of)] = true);
            for of in flow.inputs(node) {
                if !forward[store.slot(of)] {
                    candidates[store.slot(of)] = true;
                }
            }
        }
        let mut used = vec![false; store.slot_count()];
        for node in flow.nodes.iter().rev() {
            if flow.outputs(node).any(|of| is_gradient(store, of) || used[store.slot(of)]) {
                flow.inputs(node).for_each(|of| used[store.slot(of)] = true);
            }
        }
        let depends = self.find_gradient_dependents(store);
        let mut found = vec![false; self.identities.lifetimes.len()];
        for &of in &versions {
            let (slot, tensor) = (store.slot(of), self.identities.tensor(of.0) as usize);
            found[tensor] |= candidates[slot] && used[slot] && depends[tensor];
        }
        for &of in &versions {
            if present[store.slot(of)] && found[self.identities.tensor(of.0) as usize] {
                store.set_tensor(of.0, Category::Parameter);
            }
        }
    }
}

/// Labels the gradients that records identify. Also labels memory as temporary if a single operator both
/// allocates and frees it.
fn label_gradients_and_temporaries(flow: &Flow, roles: &[(Role, AllocationId)], store: &mut CategoryMap<'_>) {
    label_registered(roles, Role::Gradient, Category::Gradient, store);
    for node in &flow.nodes {
        let intermediate = flow.edges(node).iter().filter(|edge| edge.is_intermediate());
        intermediate.for_each(|edge| store.set_key(edge.key, Category::Temporary));
    }
}

fn label_registered(
    roles: &[(Role, AllocationId)],
    what: Role,
    category: Category,
    store: &mut CategoryMap<'_>,
) {
    let keys = roles.iter().filter(|(roles, _)| *roles == what);
    keys.for_each(|&(_, key)| store.set_tensor(key, category));
}

/// Labels as activations all tensors that the forward pass computes from inputs and parameters.
fn label_activations(flow: &Flow, store: &mut CategoryMap<'_>) {
    for node in flow.nodes.iter().filter(|node| !node.is_backward) {
        let mut has_source = false;
        let mut is_forward = true;
        for of in flow.inputs(node) {
            match store.get(of) {
                Some(Category::Input | Category::Activation) => has_source = true,
                Some(Category::Parameter | Category::Temporary | Category::Buffer) => {}
                _ => is_forward = false,
            }
        }
        if has_source && is_forward {
            flow.outputs(node).for_each(|of| store.set_version_if_none(of, Category::Activation));
        }
    }
}

/// Labels as autograd detail all results of the backward pass that are not gradients.
fn label_autograd_detail(flow: &Flow, store: &mut CategoryMap<'_>) {
    for node in flow.nodes.iter().filter(|node| node.is_backward) {
        for (key, version) in flow.outputs(node) {
            let before = version.checked_sub(1).map(|before| store.get((key, before)));
            if matches!(before, None | Some(None | Some(Category::AutogradDetail))) {
                store.set_version_if_none((key, version), Category::AutogradDetail);
            }
        }
    }
}
