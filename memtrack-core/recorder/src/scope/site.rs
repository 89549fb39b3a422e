//! A place in the source where a scope begins. `#[track_memory]` generates a static [`Site`] per function. A site finds
//! its scope in a small per-thread cache instead of hashing a name.

use super::guard::Guard;
#[cfg(feature = "record")]
use super::{
    current::current_node,
    nodes::{ScopeNode, id_of, is_same},
};
#[cfg(feature = "record")]
use crate::switch;
use memtrack_model::snapshot::ScopeKind;
use std::any::type_name;
#[cfg(feature = "record")]
use std::{cell::Cell, ptr};

/// An annotated function, with the kind and name of its scope.
#[derive(Debug)]
pub struct Site {
    kind: ScopeKind,
    name: &'static str,
}

/// The name of a scope: its site and, if the scope is named after a method's type, that type's name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    site: &'static Site,
    type_name: Option<&'static str>,
}

#[cfg(feature = "record")]
#[derive(Clone, Copy)]
struct Entry {
    parent: Option<&'static ScopeNode>,
    label: Label,
    node: &'static ScopeNode,
}

/// The number of cache entries per thread (2.5 KiB). A training step of a small model has about thirty scopes, which
/// should not evict each other.
#[cfg(feature = "record")]
const CACHE_ENTRIES: usize = 64;

#[cfg(feature = "record")]
thread_local! {
    static CACHE: [Cell<Option<Entry>>; CACHE_ENTRIES] = const { [const { Cell::new(None) }; CACHE_ENTRIES] };
}

impl Site {
    /// Creates a site. For methods whose scope is named after their type, `name` is only the fallback.
    pub const fn new(kind: ScopeKind, name: &'static str) -> Self {
        Self { kind, name }
    }

    /// Enters the scope. If scopes are turned off, this costs one relaxed load and a branch.
    #[inline(always)]
    pub fn enter(&'static self) -> Guard {
        #[cfg(feature = "record")]
        if switch::is_on(switch::SCOPES) {
            return enter_now(self.label());
        }
        Guard::inert()
    }

    /// Enters the scope under the name of `T`. If scopes are turned off, this costs one relaxed load and a branch.
    #[inline(always)]
    pub fn enter_as<T: ?Sized>(&'static self) -> Guard {
        #[cfg(feature = "record")]
        if switch::is_on(switch::SCOPES) {
            return enter_now(self.label_as::<T>());
        }
        Guard::inert()
    }

    /// Returns the label with the site's own name.
    pub(super) const fn label(&'static self) -> Label {
        Label { site: self, type_name: None }
    }

    /// Returns the label with the name of `T`.
    pub(super) fn label_as<T: ?Sized>(&'static self) -> Label {
        Label { site: self, type_name: Some(type_name::<T>()) }
    }
}

#[cfg(feature = "record")]
#[inline(never)]
fn enter_now(label: Label) -> Guard {
    Guard::enter_node(label.node_under(current_node()))
}

#[cfg(feature = "record")]
impl Label {
    /// Returns the scope with this label inside `parent`. Costs a few nanoseconds if this thread entered it recently.
    pub(super) fn node_under(self, parent: Option<&'static ScopeNode>) -> &'static ScopeNode {
        CACHE.with(|cache| {
            let slot = &cache[self.slot_of(parent)];
            match slot.get() {
                Some(entry) if is_same(entry.parent, parent) && entry.label.is_same(self) => entry.node,
                _ => {
                    let node = ScopeNode::child(parent, self.site.kind, self.name());
                    if !node.may_fold() && parent.is_none_or(|parent| !parent.may_fold()) {
                        slot.set(Some(Entry { parent, label: self, node }));
                    }
                    node
                }
            }
        })
    }

    fn name(self) -> &'static str {
        match self.type_name {
            Some(name) => short_type_name(name).unwrap_or(self.site.name),
            None => self.site.name,
        }
    }

    /// Compares labels by address. If there are two copies of a type's name, that only costs a cache miss.
    fn is_same(self, other: Self) -> bool {
        ptr::eq(self.site, other.site)
            && match (self.type_name, other.type_name) {
                (Some(one), Some(other)) => ptr::eq(one, other),
                (None, None) => true,
                _ => false,
            }
    }

    fn slot_of(self, parent: Option<&'static ScopeNode>) -> usize {
        let site = ptr::from_ref(self.site).addr() / align_of::<Site>();
        let name = self.type_name.map_or(0, |name| name.as_ptr().addr());
        let mixed = (site ^ name.rotate_left(20) ^ id_of(parent).index().rotate_left(40)) as u64;
        (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - CACHE_ENTRIES.trailing_zeros())) as usize
    }
}

/// Returns the last path segment of a type's name without references, `dyn` and generics, such as `Linear` for
/// `&mut net::Linear<f32>`. Returns `None` for types that have no such segment (tuples, slices, closures).
#[cfg(feature = "record")]
fn short_type_name(full: &str) -> Option<&str> {
    let mut path = full;
    while let Some(rest) = ["&", "mut ", "dyn "].iter().find_map(|prefix| path.strip_prefix(prefix)) {
        path = rest;
    }
    let path = path.split(['<', ' ']).next().unwrap_or(path);
    let segment = path.rsplit("::").next().unwrap_or(path);
    let is_identifier = |name: &str| {
        name.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    Some(segment).filter(|name| is_identifier(name))
}

#[cfg(all(test, feature = "record"))]
mod tests {
    use super::short_type_name;

    #[test]
    fn a_type_is_named_by_its_last_segment() {
        assert_eq!(short_type_name("net::Linear<candle::F32>"), Some("Linear"));
        assert_eq!(short_type_name("&mut net::Linear"), Some("Linear"));
        assert_eq!(short_type_name("dyn net::Layer + core::marker::Send"), Some("Layer"));
        assert_eq!(short_type_name("f32"), Some("f32"));
        assert_eq!(short_type_name("(f32, net::Linear)"), None);
        assert_eq!(short_type_name("net::main::{{closure}}"), None);
    }
}
