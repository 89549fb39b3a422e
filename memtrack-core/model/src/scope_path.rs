//! The position of an event in its scopes: the module path, the phase and the operator, as well as the operator's full
//! name as written by MemoryTracker. The tracker uses this module for live scopes, and every report uses it for the
//! rows of a [`ScopeTable`]. It reads only what both have: the kinds and names of scopes, from the innermost one
//! outwards.

use crate::event::ScopeId;
use crate::snapshot::{ScopeKind, ScopeTable};
use std::fmt;

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Inside a module, but in neither of the other phases.
    Forward,
    /// Inside a backward scope.
    Backward,
    /// Inside an optimizer scope.
    Optimizer,
}

impl Phase {
    /// Returns the phase's name in paths: `forward`, `backward` or `optimizer`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One scope on the path from an inner scope outwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeStep<'a> {
    /// The kind of the scope.
    pub kind: ScopeKind,
    /// The name of the scope.
    pub name: &'a str,
}

/// The position in the program at which an event happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScopePosition<'a> {
    /// The modules, outermost first, without the root's own name.
    pub modules: Vec<&'a str>,
    /// The phase, or `None` outside all scopes.
    pub phase: Option<Phase>,
    /// The innermost operator.
    pub operator: Option<&'a str>,
}

impl<'a> ScopePosition<'a> {
    /// Returns the position given by scopes from the innermost outwards. The innermost backward or optimizer scope
    /// determines the phase. A module or root alone means the forward phase.
    pub fn of(outwards: impl Iterator<Item = ScopeStep<'a>>) -> Self {
        let mut position = Self::default();
        let mut explicit = None;
        let mut in_module = false;
        for step in outwards {
            match step.kind {
                ScopeKind::Operator => position.operator = position.operator.or(Some(step.name)),
                ScopeKind::Module => {
                    position.modules.push(step.name);
                    in_module = true;
                }
                ScopeKind::Root => in_module = true,
                ScopeKind::Backward => explicit = explicit.or(Some(Phase::Backward)),
                ScopeKind::Optimizer => explicit = explicit.or(Some(Phase::Optimizer)),
            }
        }
        position.modules.reverse();
        position.phase = explicit.or(in_module.then_some(Phase::Forward));
        position
    }

    /// Returns the modules joined with dots. The path is empty in the root module itself and outside all modules.
    pub fn module_path(&self) -> String {
        self.modules.join(".")
    }

    /// Returns the text before an operator's name, such as `encoder.attn.forward`. It is `.forward` in the root module
    /// itself and empty outside all scopes.
    pub fn prefix(&self) -> String {
        match self.phase {
            Some(phase) => format!("{}.{phase}", self.module_path()),
            None => String::new(),
        }
    }

    /// Returns MemoryTracker's name for the operator without its count, `{prefix}.{operator}`, or `None` outside
    /// operators.
    pub fn operator_name(&self) -> Option<String> {
        self.operator.map(|operator| format!("{}.{operator}", self.prefix()))
    }

    /// Returns the position as one name, such as `encoder.forward.matmul` or `encoder.forward`, or an empty text outside
    /// all scopes. Unlike [`Self::operator_name`], it does not start with a dot in the root module.
    pub fn full_name(&self) -> String {
        let name = self.operator_name().unwrap_or_else(|| self.prefix());
        name.trim_start_matches('.').to_owned()
    }
}

impl ScopeTable {
    /// Returns `scope` and its enclosing scopes, innermost first. The iterator ends at an id that is not in the
    /// table, and at a parent that does not come before its child (which only a damaged table contains).
    pub fn outwards(&self, scope: ScopeId) -> impl Iterator<Item = ScopeStep<'_>> {
        let row = |id: ScopeId| self.rows.get(id.index()).filter(|_| !id.is_none()).map(|row| (id, row));
        std::iter::successors(row(scope), move |&(id, scope)| {
            row(scope.parent).filter(|&(parent, _)| parent < id)
        })
        .map(|(_, scope)| ScopeStep { kind: scope.kind, name: &scope.name })
    }

    /// Returns the position of `scope`.
    pub fn place(&self, scope: ScopeId) -> ScopePosition<'_> {
        ScopePosition::of(self.outwards(scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Scope;
    use ScopeKind::{Backward, Module, Operator, Optimizer, Root};

    /// Returns the operator name for nested scopes, which are given outermost first.
    fn operator_name_of(scopes: &[(ScopeKind, &'static str)]) -> Option<String> {
        ScopePosition::of(scopes.iter().rev().map(|&(kind, name)| ScopeStep { kind, name })).operator_name()
    }

    #[test]
    fn operator_names_match_memory_tracker() {
        let named = |scopes| operator_name_of(scopes).unwrap();
        assert_eq!(named(&[(Operator, "op")]), ".op");
        assert_eq!(named(&[(Root, "Net"), (Operator, "op")]), ".forward.op");
        assert_eq!(
            named(&[(Root, "Net"), (Module, "encoder"), (Module, "attn"), (Operator, "op")]),
            "encoder.attn.forward.op"
        );
        assert_eq!(named(&[(Backward, "backward"), (Operator, "op")]), ".backward.op");
        assert_eq!(named(&[(Backward, "b"), (Module, "encoder"), (Operator, "op")]), "encoder.backward.op");
        assert_eq!(
            named(&[(Module, "m"), (Backward, "b"), (Optimizer, "o"), (Operator, "op")]),
            "m.optimizer.op"
        );
        assert_eq!(named(&[(Operator, "outer"), (Operator, "inner")]), ".inner");
        assert_eq!(operator_name_of(&[(Module, "m")]), None);
    }

    #[test]
    fn table_row_is_read_like_live_scope() {
        let row = |parent, kind, name: &str| Scope { parent: ScopeId(parent), kind, name: name.into() };
        let mut table = ScopeTable::default();
        table.rows.extend([row(0, Module, "encoder"), row(1, Operator, "matmul")]);
        assert_eq!(table.place(ScopeId(2)).operator_name().as_deref(), Some("encoder.forward.matmul"));
        assert_eq!(table.place(ScopeId(1)).module_path(), "encoder");
        assert_eq!(table.place(ScopeId::NONE), ScopePosition::default());
        assert_eq!(table.place(ScopeId(9)), ScopePosition::default());
    }

    #[test]
    fn damaged_table_does_not_hang() {
        let mut table = ScopeTable::default();
        table.rows.push(Scope { parent: ScopeId(1), kind: Module, name: "self".into() });
        assert_eq!(table.outwards(ScopeId(1)).count(), 1);
    }
}
