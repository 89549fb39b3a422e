//! Performs a final check on a document before it is returned, to ensure that it has no cycles and that its depth is
//! bounded. The check takes one step per value and does not recurse, no matter how deep or shared the values are. Code
//! that uses the document may therefore recurse.

use super::error::PickleErrorKind;
use super::value::{Document, Value};

/// The number of a container. Tuples, lists and dictionaries are numbered consecutively.
type Node = usize;

/// The state of a container that has not been entered yet.
const NEW: u32 = 0;
/// The state of a container whose contents are being checked.
const OPEN: u32 = u32::MAX;

/// Checks every value that can be reached from the root.
///
/// # Errors
/// Fails with [`PickleErrorKind::Cyclic`] or [`PickleErrorKind::TooDeep`].
pub(super) fn check(document: &Document, depth_limit: u32) -> Result<(), PickleErrorKind> {
    let Some(root) = container_number(document, document.root) else { return Ok(()) };
    let count = document.tuples.len() + document.lists.len() + document.dicts.len();
    // Each entry is NEW, OPEN, or the number of levels in a finished container.
    let mut levels = vec![NEW; count];
    // The open containers, each with the next child to visit and the number of levels found below the container so far.
    let mut path: Vec<(Node, usize, u32)> = vec![(root, 0, 0)];
    levels[root] = OPEN;
    while let Some((current, next, deepest)) = path.last_mut() {
        let Some(value) = child_at(document, *current, *next) else {
            let depth = *deepest + 1;
            levels[*current] = depth;
            path.pop();
            if let Some((_, _, deepest)) = path.last_mut() {
                *deepest = (*deepest).max(depth);
            }
            if path.len() as u64 + u64::from(depth) > depth_limit.into() {
                return Err(PickleErrorKind::TooDeep(depth_limit));
            }
            continue;
        };
        *next += 1;
        let Some(entered) = container_number(document, value) else { continue };
        match levels[entered] {
            OPEN => return Err(PickleErrorKind::Cyclic),
            NEW => {
                levels[entered] = OPEN;
                path.push((entered, 0, 0));
            }
            depth => *deepest = (*deepest).max(depth),
        }
    }
    Ok(())
}

/// Returns a container's number, or `None` for other values.
fn container_number(document: &Document, value: Value) -> Option<Node> {
    match value {
        Value::Tuple(id) => Some(id.0 as usize),
        Value::List(id) => Some(document.tuples.len() + id.0 as usize),
        Value::Dict(id) => Some(document.tuples.len() + document.lists.len() + id.0 as usize),
        _ => None,
    }
}

/// Returns the value at `index` in a container. A dictionary's keys and values alternate.
fn child_at(document: &Document, container: Node, index: usize) -> Option<Value> {
    let (tuples, lists) = (document.tuples.len(), document.lists.len());
    if container < tuples {
        let (start, length) = document.tuples[container];
        let inside = index < length as usize;
        return inside.then(|| document.items[start as usize + index]);
    }
    if container < tuples + lists {
        return document.lists[container - tuples].get(index).copied();
    }
    let entry = document.dicts[container - tuples - lists].entries.get(index / 2)?;
    Some(if index.is_multiple_of(2) { entry.0 } else { entry.1 })
}
