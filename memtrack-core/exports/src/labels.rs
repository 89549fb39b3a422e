//! The operator, module and phase of a block, for exports in which a block has labels.

use memtrack_blocks::origin::Origin;
use memtrack_frames::attribution::{Attributor, Source};
use memtrack_model::Snapshot;
use memtrack_model::event::{ScopeId, StackId};
use memtrack_symbols::Symbolizer;

/// What was running when a block was allocated. Unknown parts are `None`.
#[derive(Default)]
pub(crate) struct Labels {
    pub(crate) operator: Option<String>,
    /// The module, if the program has scopes for its modules.
    pub(crate) module: Option<String>,
    pub(crate) phase: Option<&'static str>,
}

impl Labels {
    /// Returns the labels of a block that was allocated in this scope.
    pub(crate) fn of(
        attributor: &mut Attributor<'_>,
        snapshot: &Snapshot,
        scope: ScopeId,
        origin: Origin,
        symbols: &mut Symbolizer,
    ) -> Self {
        let stack = if let Origin::Allocated(stack) = origin { stack } else { StackId::NONE };
        let (operator, source) = attributor.operator(scope, stack, symbols);
        let has_module = !snapshot.scopes.place(scope).modules.is_empty();
        Self {
            operator: (source != Source::Unattributed).then_some(operator),
            module: has_module.then(|| attributor.module(scope, stack, symbols)),
            phase: attributor.phase(scope, stack, symbols).map(|phase| phase.name()),
        }
    }
}
