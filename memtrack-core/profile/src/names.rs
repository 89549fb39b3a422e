//! The names of a trace's operators and modules in reports. For the trace of a Rust program, reports use the
//! names that `memtrack top` prints; for a trace of PyTorch, PyTorch's names.

use crate::analysis::Profile;
use crate::places::{ModuleId, Places};
use crate::recorded::{PRODUCER, ROOT};
use foldhash::fast::RandomState;
use memtrack_model::optrace::{OpKind, OperatorTrace, RecordId, What};
use memtrack_model::snapshot::ScopeKind;
use memtrack_model::{ScopePosition, ScopeStep};
use memtrack_report::analysis::attribution::{OUTSIDE_MODULES, module_at, operator_at};
use std::collections::HashMap;

/// Provides the names of a profile's operators and modules.
pub(crate) struct Names<'a> {
    profile: &'a Profile<'a>,
    places: &'a Places,
    is_of_sdk: bool,
    /// By enclosing record, the names of the operator and module, for memory that has no attribution.
    inside: HashMap<Option<RecordId>, (String, String), RandomState>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(profile: &'a Profile<'a>, places: &'a Places) -> Self {
        Self { profile, places, is_of_sdk: is_of_sdk(profile), inside: HashMap::default() }
    }

    /// Returns whether memtrack's SDK recorded the trace, so that scopes provide all names.
    pub(crate) const fn are_scopes(&self) -> bool {
        self.is_of_sdk
    }

    /// Returns the name of the operator that made the allocation `obtained`.
    pub(crate) fn operator(&mut self, obtained: Option<RecordId>) -> String {
        let Some(record) = obtained else { return "(before the trace)".to_owned() };
        if !self.is_of_sdk {
            let operator = self.places.get(record).operator;
            return operator.map_or_else(
                || "(outside of operators)".to_owned(),
                |record| self.profile.operator_name(record),
            );
        }
        let known = self.profile.attribution().and_then(|attribution| attribution.operator(record));
        known.map_or_else(|| self.inside(record).0.clone(), str::to_owned)
    }

    /// Returns the name of the module that made the allocation `obtained`, in a trace of memtrack's SDK.
    pub(crate) fn module(&mut self, obtained: Option<RecordId>) -> String {
        let Some(record) = obtained else { return "(before the trace)".to_owned() };
        let known = self.profile.attribution().and_then(|attribution| attribution.module(record));
        known.map_or_else(|| self.inside(record).1.clone(), str::to_owned)
    }

    /// Returns the module in which the record `obtained` allocated memory.
    pub(crate) fn module_of(&self, obtained: RecordId) -> Option<ModuleId> {
        self.places.get(obtained).module
    }

    /// Returns the full name of a module.
    pub(crate) fn module_name(&self, module: Option<ModuleId>) -> String {
        module.map_or_else(|| "(outside of modules)".to_owned(), |module| self.places.full_name(module))
    }

    /// Returns the name of an operator's call, and the name of the enclosing module if the operator's name
    /// does not contain it.
    pub(crate) fn call(&self, record: RecordId) -> (String, Option<String>) {
        let own = self.profile.operator_name(record);
        if !self.is_of_sdk {
            return (own, self.places.get(record).module.map(|module| self.places.full_name(module)));
        }
        let scopes = scopes(self.profile.trace(), Some(record));
        let place = place(&scopes);
        if place.operator.is_some() { (operator_at(&place, (None, None)).0, None) } else { (own, None) }
    }

    fn inside(&mut self, record: RecordId) -> &(String, String) {
        let trace = self.profile.trace();
        let around = trace.records[record as usize].parent;
        self.inside.entry(around).or_insert_with(|| {
            let scopes = scopes(trace, around);
            let place = place(&scopes);
            let module = module_at(&place).unwrap_or_else(|| OUTSIDE_MODULES.to_owned());
            (operator_at(&place, (None, None)).0, module)
        })
    }
}

/// Returns whether memtrack's SDK recorded a profile's trace.
pub(crate) fn is_of_sdk(profile: &Profile<'_>) -> bool {
    profile.trace().header.producer.0 == PRODUCER && !profile.is_compat()
}

/// Returns the scopes that correspond to a record and the records that enclose it, innermost first.
fn scopes(trace: &OperatorTrace, record: Option<RecordId>) -> Vec<(ScopeKind, String)> {
    let outwards = std::iter::successors(record, |&record| trace.records[record as usize].parent);
    let scope = |record: RecordId| {
        let of = &trace.records[record as usize];
        let (kind, name) = match &of.what {
            What::Op(op) => {
                let kind = match op.kind {
                    OpKind::Op => ScopeKind::Operator,
                    OpKind::Backward => ScopeKind::Backward,
                    OpKind::User | OpKind::Other => ScopeKind::Optimizer,
                };
                (kind, op.name)
            }
            What::Module(module) => {
                let is_root = trace.strings.get(module.identity).starts_with(ROOT);
                (if is_root { ScopeKind::Root } else { ScopeKind::Module }, module.class)
            }
            _ => return None,
        };
        Some((kind, trace.strings.get(name).into_owned()))
    };
    outwards.filter_map(scope).collect()
}

fn place(scopes: &[(ScopeKind, String)]) -> ScopePosition<'_> {
    ScopePosition::of(scopes.iter().map(|(kind, name)| ScopeStep { kind: *kind, name }))
}
