//! Assigns layers to the values in a graph with cycles. A value's layer is the length of the longest path of references
//! that leads to it, ignoring references that lead back.

/// Returns the layer of each node. `edges` contains pairs of node indices. The order of the nodes determines which
/// edges count as leading back.
pub(super) fn assign_layers(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut out = vec![Vec::new(); nodes];
    for &(from, to) in edges.iter().filter(|(from, to)| from != to) {
        out[from].push(to);
    }
    // This is a depth-first search without recursion. If the nodes are sorted by the end of their visit, last first, then
    // every edge leads forward, except edges that were found to lead to a node whose visit had not ended.
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut state = vec![State::New; nodes];
    let mut finished = Vec::with_capacity(nodes);
    let mut back = std::collections::HashSet::new();
    for start in 0..nodes {
        let mut stack = vec![(start, 0)];
        if state[start] != State::New {
            continue;
        }
        state[start] = State::Open;
        while let Some((node, next)) = stack.last_mut() {
            let node = *node;
            let Some(&to) = out[node].get(*next) else {
                state[node] = State::Done;
                finished.push(node);
                stack.pop();
                continue;
            };
            *next += 1;
            match state[to] {
                State::New => {
                    state[to] = State::Open;
                    stack.push((to, 0));
                }
                State::Open => {
                    back.insert((node, to));
                }
                State::Done => {}
            }
        }
    }
    let mut layers = vec![0; nodes];
    for &node in finished.iter().rev() {
        for &to in out[node].iter().filter(|&&to| !back.contains(&(node, to))) {
            layers[to] = layers[to].max(layers[node] + 1);
        }
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::assign_layers;

    #[test]
    fn node_is_right_of_its_referrers_unless_edge_leads_back() {
        assert_eq!(assign_layers(4, &[(0, 1), (1, 2), (2, 0), (0, 3), (2, 3)]), [0, 1, 2, 3]);
        assert_eq!(assign_layers(2, &[(0, 0), (0, 1), (0, 1)]), [0, 1]);
        assert_eq!(assign_layers(3, &[]), [0, 0, 0]);
    }

    #[test]
    fn long_chain_needs_no_stack() {
        let edges: Vec<_> = (1..200_000).map(|to| (to - 1, to)).collect();
        assert_eq!(assign_layers(200_000, &edges)[199_999], 199_999);
    }
}
