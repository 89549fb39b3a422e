//! Scopes from the spans of [`tracing`](https://docs.rs/tracing). candle's models and many services already have spans,
//! and one line turns them into scopes for memory.
//!
//! ```
//! use tracing_subscriber::prelude::*;
//!
//! tracing_subscriber::registry().with(memtrack_core::tracing::ScopeLayer::new()).init();
//! # memtrack_core::start_monitor();
//! tracing::info_span!("encoder").in_scope(|| {
//!     tracing::info_span!("attn").in_scope(|| {
//!         // memory allocated here belongs to `encoder.attn`
//! #       assert_eq!(memtrack_core::scope::current().place().module_path(), "encoder.attn");
//!     });
//! });
//! ```
//!
//! Spans that a global filter disables do not become scopes. Note that the spans in candle's models have the level
//! `TRACE`. An `EnvFilter` that is attached only to another layer (`with_filter`) does not affect this layer.

use memtrack_model::snapshot::ScopeKind;
use memtrack_recorder::scope::{self, Guard};
use std::cell::RefCell;
use tracing_core::span::Id;
use tracing_core::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

type KindOf = fn(&Metadata<'_>) -> Option<ScopeKind>;

/// A layer that enters a scope on the same thread whenever a span is entered. A future's span is entered for each poll,
/// and so is its scope.
#[derive(Clone, Copy, Debug)]
pub struct ScopeLayer {
    kind_of: KindOf,
}

impl Default for ScopeLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl ScopeLayer {
    /// Creates a layer that turns every span into a module.
    pub fn new() -> Self {
        Self::with_kinds(|_| Some(ScopeKind::Module))
    }

    /// Creates a layer that turns each span into the kind of scope that `kind_of` returns. Spans for which it returns
    /// `None` do not become scopes.
    pub fn with_kinds(kind_of: KindOf) -> Self {
        Self { kind_of }
    }
}

/// A span that a thread has entered.
struct EnteredSpan {
    span: Id,
    /// Whether the span has been exited while spans inside it are still open. tracing allows spans to be exited in any
    /// order.
    exited: bool,
    /// The scope's guard, which is dropped once the span and all spans inside it have been exited.
    _guard: Guard,
}

thread_local! {
    static ENTERED: RefCell<Vec<EnteredSpan>> = const { RefCell::new(Vec::new()) };
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ScopeLayer {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(metadata) = context.metadata(id) else { return };
        let Some(kind) = (self.kind_of)(metadata) else { return };
        let guard = match kind {
            ScopeKind::Operator => scope::operator(metadata.name()),
            ScopeKind::Module => scope::module(metadata.name()),
            ScopeKind::Root => scope::root(metadata.name()),
            ScopeKind::Backward => scope::backward_named(metadata.name()),
            ScopeKind::Optimizer => scope::optimizer_named(metadata.name()),
        };
        // A thread that is ending no longer has the list, in which case the scope ends immediately.
        let _ = ENTERED.try_with(|entered| {
            entered.borrow_mut().push(EnteredSpan { span: id.clone(), exited: false, _guard: guard });
        });
    }

    fn on_exit(&self, id: &Id, _context: Context<'_, S>) {
        let _ = ENTERED.try_with(|entered| {
            if let Some(newest) =
                entered.borrow_mut().iter_mut().rfind(|entered| entered.span == *id && !entered.exited)
            {
                newest.exited = true;
            }
            // The list must not be borrowed while a scope ends, because an observer of scopes may enter spans.
            let pop = || entered.borrow_mut().pop_if(|newest| newest.exited);
            while let Some(ended) = pop() {
                drop(ended);
            }
        });
    }
}

#[cfg(all(test, feature = "record"))]
mod tests {
    use super::*;
    use crate::with_scopes::with_scopes;
    use tracing_subscriber::prelude::*;

    fn path() -> String {
        scope::current().place().module_path()
    }

    #[test]
    fn spans_become_scopes_in_any_exit_order() {
        let subscriber = tracing_subscriber::registry().with(ScopeLayer::new());
        let test = || {
            let block = tracing::trace_span!("block");
            let outer = block.enter();
            {
                let _inner = tracing::trace_span!("attn").entered();
                assert_eq!(path(), "block.attn");
            }
            assert_eq!(path(), "block");
            let mlp = tracing::trace_span!("mlp");
            let inner = mlp.enter();
            drop(outer);
            assert_eq!(path(), "block.mlp");
            drop(inner);
            assert_eq!(path(), "");
        };
        with_scopes(|| tracing::subscriber::with_default(subscriber, test));
    }

    #[test]
    fn caller_determines_kinds_of_spans() {
        let layer = ScopeLayer::with_kinds(|span| (span.name() == "op").then_some(ScopeKind::Operator));
        let subscriber = tracing_subscriber::registry().with(layer);
        let test = || {
            let _request = tracing::trace_span!("request").entered();
            assert_eq!(path(), "");
            let _op = tracing::trace_span!("op").entered();
            assert!(scope::current().place().operator_name().is_some_and(|name| name.ends_with("op")));
        };
        with_scopes(|| tracing::subscriber::with_default(subscriber, test));
    }
}
