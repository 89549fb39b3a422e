//! A compact notation for the graphs used in tests.

use crate::graph::{Edge, Graph, Memory, Node, Origin, Reachability};

/// Parses a graph from lines. `A .next B` is a reference (values are created when they are first named, so values named
/// earlier are older). `A = 10` gives `A` ten bytes of device memory, `A = 10 @3` gives it ten bytes in storage 3, and
/// `A = ?` gives it a storage of unknown size. `A held 2` adds two pointers from outside, `A used` marks a value as
/// reachable, and `A weak 1` adds a weak pointer from outside.
pub(crate) fn parse_graph(origin: Origin, lines: &str) -> Graph {
    let mut graph = Graph::new(origin);
    let mut names = Vec::<String>::new();
    let mut node = |graph: &mut Graph, name: &str| -> u32 {
        if let Some(at) = names.iter().position(|known| known == name) {
            return at as u32;
        }
        names.push(name.to_owned());
        // `Hook#2` is another value of type `Hook`.
        let label = graph.texts.intern(name.split('#').next().unwrap_or(name));
        graph.nodes.push(Node {
            label,
            allocated: None,
            created: None,
            root: false,
            held: Reachability::Unreachable,
            weak_outside: 0,
            incomplete: None,
            serial: Some(names.len() as u64),
        });
        names.len() as u32 - 1
    };
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let from = node(&mut graph, words[0]);
        let of = from as usize;
        match words[1..] {
            ["=", size, ref storage @ ..] => {
                let own = u64::from(from) + 1000;
                let storage =
                    storage.first().map_or(own, |number| number.trim_start_matches('@').parse().unwrap());
                let device = graph.texts.intern("cuda:0");
                graph.memory.push(Memory { node: from, device, storage, size_bytes: size.parse().ok() });
                graph.nodes[of].root = true;
            }
            ["held", count] => graph.nodes[of].held = Reachability::Outside(count.parse().unwrap()),
            ["used"] => graph.nodes[of].held = Reachability::Reachable,
            ["weak", count] => graph.nodes[of].weak_outside = count.parse().unwrap(),
            [path, to] => {
                let to = node(&mut graph, to);
                let path = graph.texts.intern(path);
                graph.edges.push(Edge { from, to, path });
            }
            _ => panic!("{line}"),
        }
    }
    graph.sort();
    graph
}
