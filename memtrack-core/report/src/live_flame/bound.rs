//! Limits the size of a tree. The smallest functions are removed first. All functions removed from the same caller are
//! replaced by one rectangle with their total bytes, so that all totals stay the same.

use super::removed_label;
use super::tree::{Node, RectangleKind, Tree};
use std::cmp::Reverse;

/// Returns the tree with at most `rectangles` rectangles, including those that stand for removed functions.
pub(crate) fn bound_tree(tree: &Tree, rectangles: usize) -> Tree {
    let nodes = &tree.nodes;
    let mut order: Vec<usize> = (1..nodes.len()).collect();
    // A function has at least as many bytes as the functions that it calls, so it comes before them.
    order.sort_by_key(|&node| (Reverse(nodes[node].bytes), nodes[node].depth, node));
    // For each function, the number of removed functions that it called. Together, these need one rectangle.
    let mut removed_calls: Vec<usize> = nodes.iter().map(|node| node.children.len()).collect();
    let mut size = usize::from(removed_calls[Tree::ROOT] > 0);
    let mut fits = 0;
    for (place, &node) in order.iter().enumerate() {
        let parent = nodes[node].parent;
        removed_calls[parent] -= 1;
        size += 1 + usize::from(removed_calls[node] > 0);
        size -= usize::from(removed_calls[parent] == 0);
        if size <= rectangles {
            fits = place + 1;
        }
    }
    let mut is_kept = vec![false; nodes.len()];
    is_kept[Tree::ROOT] = true;
    order[..fits].iter().for_each(|&node| is_kept[node] = true);

    let mut bounded = Tree::default();
    // The indices of the kept functions in the new tree.
    let mut places = vec![Tree::ROOT; nodes.len()];
    for &node in [Tree::ROOT].iter().chain(&order[..fits]) {
        if node != Tree::ROOT {
            let parent = places[nodes[node].parent];
            places[node] = bounded.get_or_add_child(parent, &nodes[node].label, nodes[node].colour);
        }
        bounded.add_both(places[node], nodes[node].before[0], nodes[node].own);
        let removed: Vec<usize> =
            nodes[node].children.iter().copied().filter(|&child| !is_kept[child]).collect();
        if !removed.is_empty() {
            let sum = |bytes: fn(&Node) -> u64| {
                removed.iter().fold(0u64, |sum, &child| sum.saturating_add(bytes(&nodes[child])))
            };
            let bytes = sum(|node| node.bytes);
            let rest = bounded.get_or_add_child(
                places[node],
                &removed_label(removed.len(), bytes),
                RectangleKind::Rest,
            );
            bounded.add_both(rest, sum(|node| node.before[1]), bytes);
        }
    }
    bounded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a tree of functions with random callers and bytes.
    fn random_tree(seed: u64, size: usize) -> Tree {
        let mut state = seed;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut tree = Tree::default();
        let mut places = vec![Tree::ROOT];
        for number in 0..size {
            let parent = places[random(places.len())];
            places.push(tree.get_or_add_child(parent, &format!("f{number}"), RectangleKind::Mine));
            tree.add(places[number + 1], random(1000) as u64);
        }
        tree
    }

    #[test]
    fn bounded_tree_has_at_most_requested_rectangles_and_keeps_all_bytes() {
        for seed in 0..40 {
            let tree = random_tree(seed, 300);
            for limit in [1, 2, 10, 50, 299, 300, 1000] {
                let bounded = bound_tree(&tree, limit);
                assert!(bounded.nodes.len() - 1 <= limit, "{seed} {limit}: {}", bounded.nodes.len());
                assert_eq!(bounded.nodes[0].bytes, tree.nodes[0].bytes);
                for node in bounded.nodes.iter().filter(|node| node.label.starts_with('f')) {
                    let before = tree.nodes.iter().find(|one| one.label == node.label).unwrap();
                    assert_eq!((node.bytes, node.own), (before.bytes, before.own), "{}", node.label);
                }
            }
            assert_eq!(bound_tree(&tree, 300).format_lines(), tree.format_lines());
        }
    }

    #[test]
    fn smallest_functions_are_removed_first() {
        let mut tree = Tree::default();
        for (name, bytes) in [("a", 500), ("b", 30), ("c", 200), ("d", 4)] {
            let node = tree.get_or_add_child(Tree::ROOT, name, RectangleKind::Mine);
            tree.add(node, bytes << 10);
        }
        assert_eq!(
            bound_tree(&tree, 3).format_lines(),
            ["a 512000", "c 204800", "… 2 more (34.0 KiB) 34816"],
        );
        assert_eq!(bound_tree(&tree, 4).format_lines().len(), 4);
    }
}
