//! Names of a trace's operators and modules as shown in reports. For traces of Rust programs, these are the
//! names that `memtrack top` prints; for traces of PyTorch, they are PyTorch's names.

use crate::analysis::Profile;
use crate::places::{ModuleId, Places};
use crate::recorded::{PRODUCER, ROOT_PREFIX};
use foldhash::HashMap;
use memtrack_frames::attribution::{OUTSIDE_MODULES, module_at, operator_at};
use memtrack_model::optrace::{OpKind, OperatorTrace, RecordId, RecordKind};
use memtrack_model::snapshot::ScopeKind;
use memtrack_model::{ScopePosition, ScopeStep};

/// Provides the names of a profile's operators and modules.
pub(crate) struct Names<'a> {
    profile: &'a Profile<'a>,
    places: &'a Places,
    is_from_sdk: bool,
    /// The names of the operator and the module for memory without an attribution, keyed by the parent of the record that
    /// allocated the memory.
    by_parent: HashMap<Option<RecordId>, (String, String)>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(profile: &'a Profile<'a>, places: &'a Places) -> Self {
        Self { profile, places, is_from_sdk: is_from_sdk(profile), by_parent: HashMap::default() }
    }

    /// Returns whether memtrack's SDK recorded the trace, in which case all names come from scopes.
    pub(crate) const fn has_scope_names(&self) -> bool {
        self.is_from_sdk
    }

    /// Returns the name of the operator that was running when the record `allocated_by` allocated memory.
    pub(crate) fn operator(&mut self, allocated_by: Option<RecordId>) -> String {
        let Some(record) = allocated_by else { return "(before the trace)".to_owned() };
        if !self.is_from_sdk {
            let operator = self.places.get(record).operator;
            return operator.map_or_else(
                || "(outside of operators)".to_owned(),
                |record| self.profile.operator_name(record),
            );
        }
        let known = self.profile.attribution().and_then(|attribution| attribution.operator(record));
        known.map_or_else(|| self.names_in_parent(record).0.clone(), str::to_owned)
    }

    /// Returns the name of the module that was running when the record `allocated_by` allocated memory. Only
    /// valid for traces from memtrack's SDK.
    pub(crate) fn module(&mut self, allocated_by: Option<RecordId>) -> String {
        let Some(record) = allocated_by else { return "(before the trace)".to_owned() };
        let known = self.profile.attribution().and_then(|attribution| attribution.module(record));
        known.map_or_else(|| self.names_in_parent(record).1.clone(), str::to_owned)
    }

    /// Returns the module that was running when the record `allocated_by` allocated memory.
    pub(crate) fn enclosing_module(&self, allocated_by: RecordId) -> Option<ModuleId> {
        self.places.get(allocated_by).module
    }

    /// Returns a module's full name.
    pub(crate) fn module_name(&self, module: Option<ModuleId>) -> String {
        module.map_or_else(|| "(outside of modules)".to_owned(), |module| self.places.full_name(module))
    }

    /// Returns the name of an operator call, along with the name of the enclosing module unless the
    /// operator's name already contains it.
    pub(crate) fn call_name(&self, record: RecordId) -> (String, Option<String>) {
        let own = self.profile.operator_name(record);
        if !self.is_from_sdk {
            return (own, self.places.get(record).module.map(|module| self.places.full_name(module)));
        }
        let scopes = record_scopes(self.profile.trace(), Some(record));
        let position = position_of(&scopes);
        if position.operator.is_some() { (operator_at(&position, (None, None)).0, None) } else { (own, None) }
    }

    fn names_in_parent(&mut self, record: RecordId) -> &(String, String) {
        let trace = self.profile.trace();
        let parent = trace.records[record as usize].parent;
        self.by_parent.entry(parent).or_insert_with(|| {
            let scopes = record_scopes(trace, parent);
            let position = position_of(&scopes);
            let module = module_at(&position).unwrap_or_else(|| OUTSIDE_MODULES.to_owned());
            (operator_at(&position, (None, None)).0, module)
        })
    }
}

/// Returns whether a profile's trace was recorded by memtrack's SDK.
pub(crate) fn is_from_sdk(profile: &Profile<'_>) -> bool {
    profile.trace().header.producer.0 == PRODUCER && !profile.is_compat()
}

/// Returns the scopes that correspond to a record and its enclosing records, innermost first.
fn record_scopes(trace: &OperatorTrace, record: Option<RecordId>) -> Vec<(ScopeKind, String)> {
    let ancestors = std::iter::successors(record, |&record| trace.records[record as usize].parent);
    let scope = |record: RecordId| {
        let entry = &trace.records[record as usize];
        let (kind, name) = match &entry.what {
            RecordKind::Op(op) => {
                let kind = match op.kind {
                    OpKind::Op => ScopeKind::Operator,
                    OpKind::Backward => ScopeKind::Backward,
                    OpKind::User | OpKind::Other => ScopeKind::Optimizer,
                };
                (kind, op.name)
            }
            RecordKind::Module(module) => {
                let is_root = trace.strings.get(module.identity).starts_with(ROOT_PREFIX);
                (if is_root { ScopeKind::Root } else { ScopeKind::Module }, module.class)
            }
            _ => return None,
        };
        Some((kind, trace.strings.get(name).into_owned()))
    };
    ancestors.filter_map(scope).collect()
}

fn position_of(scopes: &[(ScopeKind, String)]) -> ScopePosition<'_> {
    ScopePosition::of(scopes.iter().map(|(kind, name)| ScopeStep { kind: *kind, name }))
}
