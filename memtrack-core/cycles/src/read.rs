//! Reads graph files, which the repository's docs/CYCLES.md describes. `memtrack export-script --cycles` and PyTorch's
//! `create_graph` write a list of nodes with their references. memtrack itself writes files that also contain its
//! findings, which are computed again when the file is read.
//!
//! Reading takes memory in proportion to the size of the file. The input is not trusted, so references to missing
//! nodes, duplicate keys and out-of-range numbers are errors. Each error describes where the problem is.

use crate::format::{EdgeForm, NodeForm, VERSION};
use crate::graph::{Edge, Graph, Memory, Node, Origin, Reachability, UnexplainedHandles};
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::borrow::Cow;
use std::fmt;

/// The reason why a file could not be read as a graph.
#[derive(Debug)]
pub struct ReadError(String);

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReadError {}

/// Returns whether a file that starts with these bytes might be a graph.
pub fn begins_like_graph(head: &[u8]) -> bool {
    matches!(first_non_space(strip_byte_order_mark(head)), Some(b'[' | b'{'))
}

/// Returns whether a file that starts with these bytes (a few thousand) is a graph of references rather than some other
/// JSON.
pub fn is_graph(head: &[u8]) -> bool {
    let has = |key: &str| head.windows(key.len()).any(|window| window == key.as_bytes());
    match first_non_space(strip_byte_order_mark(head)) {
        Some(b'{') => has("\"memtrack_cycles\""),
        Some(b'[') => has("\"label\"") && (has("\"references\"") || has("\"root\"")),
        _ => false,
    }
}

fn first_non_space(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

/// Strips the byte order mark that some editors put at the start of a file.
fn strip_byte_order_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Reads a graph.
///
/// # Errors
/// Fails if the bytes are not JSON or are not a graph. The error describes where the problem is.
pub fn read(bytes: &[u8]) -> Result<Graph, ReadError> {
    let bytes = strip_byte_order_mark(bytes);
    let first = first_non_space(bytes);
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let graph = match first {
        None => return Err(ReadError("the file is empty".into())),
        Some(b'[') => json.deserialize_seq(PythonNodes),
        Some(b'{') => memtrack_graph(&mut json),
        Some(_) => {
            let what = "this is not a graph of references, which is JSON (memtrack export-script --cycles writes \
                 them)";
            return Err(ReadError(what.into()));
        }
    };
    let graph = graph.and_then(|graph| json.end().map(|()| graph));
    let mut graph = graph.map_err(|error| ReadError(format_json_error(&error)))?;
    let nodes = graph.nodes.len();
    if let Some(edge) =
        graph.edges.iter().find(|edge| edge.to as usize >= nodes || edge.from as usize >= nodes)
    {
        let (from, to) = (edge.from, edge.to);
        return Err(ReadError(format!(
            "node {from} refers to node {to}, and the graph has {nodes} nodes (counted from 0)"
        )));
    }
    if let Some(unexplained) = graph.unexplained.iter().find(|unexplained| unexplained.node as usize >= nodes)
    {
        let node = unexplained.node;
        return Err(ReadError(format!(
            "a handle refers to node {node}, and the graph has {nodes} nodes (counted from 0)"
        )));
    }
    graph.sort();
    Ok(graph)
}

/// Formats a `serde_json` error for the user.
fn format_json_error(error: &serde_json::Error) -> String {
    if error.is_eof() {
        return format!("the file ends too early, in line {}", error.line());
    }
    format!("this is not a graph of references: {error}")
}

/// Converts a node or edge count to `u32`, failing if it does not fit.
fn to_u32<E: de::Error>(number: usize) -> Result<u32, E> {
    u32::try_from(number)
        .ok()
        .filter(|&number| number < u32::MAX)
        .ok_or_else(|| E::custom("more than four billion nodes or edges"))
}

/// A node in the format that Python programs write.
#[derive(Deserialize)]
struct PythonNode<'a> {
    #[serde(borrow)]
    label: Cow<'a, str>,
    #[serde(borrow, default)]
    context: Option<Cow<'a, str>>,
    #[serde(default)]
    root: bool,
    #[serde(borrow)]
    references: Vec<(Cow<'a, str>, u64)>,
    /// The size of a root's storage, which PyTorch's files do not contain.
    #[serde(default)]
    bytes: Option<u64>,
    /// A number that distinguishes the storage from others.
    #[serde(default)]
    storage: Option<u64>,
    #[serde(borrow, default)]
    device: Option<Cow<'a, str>>,
}

struct PythonNodes;

impl<'de> Visitor<'de> for PythonNodes {
    type Value = Graph;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut nodes: A) -> Result<Graph, A::Error> {
        let mut graph = Graph::new(Origin::Python);
        while let Some(node) = nodes.next_element::<PythonNode<'de>>()? {
            add_python_node(&mut graph, &node)?;
        }
        Ok(graph)
    }
}

fn add_python_node<E: de::Error>(graph: &mut Graph, node: &PythonNode<'_>) -> Result<(), E> {
    let from = to_u32(graph.nodes.len())?;
    for (path, to) in &node.references {
        let missing = || E::custom(format_args!("node {from} refers to node {to}, which no graph has"));
        let to = u32::try_from(*to).map_err(|_| missing())?;
        let path = graph.texts.intern(path);
        to_u32::<E>(graph.edges.len())?;
        graph.edges.push(Edge { from, to, path });
    }
    if node.root {
        // Without a number, assume that each tensor has its own storage.
        let storage = node.storage.unwrap_or(u64::from(from) | 1 << 63);
        let device = graph.texts.intern(node.device.as_deref().unwrap_or("device"));
        graph.memory.push(Memory { node: from, device, storage, size_bytes: node.bytes });
    }
    let node = Node {
        label: graph.texts.intern(&node.label),
        allocated: node.context.as_deref().map(|text| graph.texts.intern(text)),
        created: None,
        root: node.root,
        held: Reachability::Unreachable,
        weak_outside: 0,
        incomplete: None,
        serial: None,
    };
    graph.nodes.push(node);
    Ok(())
}

/// A graph in the format that memtrack writes. The rest of the file, such as the findings, is derived from these
/// fields.
#[derive(Deserialize)]
struct MemtrackGraph<'a> {
    memtrack_cycles: u64,
    #[serde(borrow)]
    origin: Cow<'a, str>,
    #[serde(default)]
    remarks: Vec<String>,
    #[serde(borrow)]
    nodes: Vec<NodeForm<'a>>,
    #[serde(borrow, default)]
    edges: Vec<EdgeForm<'a>>,
    #[serde(default)]
    unexplained: Vec<MemtrackUnexplained>,
}

#[derive(Deserialize)]
struct MemtrackUnexplained {
    node: u32,
    handles: u64,
    site: String,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    ended_roots: u64,
}

fn memtrack_graph<'de, D: Deserializer<'de>>(json: D) -> Result<Graph, D::Error> {
    let file = MemtrackGraph::deserialize(json)?;
    if file.memtrack_cycles != VERSION {
        let found = file.memtrack_cycles;
        return Err(D::Error::custom(format_args!(
            "its version is {found}, and this memtrack reads version {VERSION}"
        )));
    }
    let mut graph = Graph::new(match &*file.origin {
        "rust" => Origin::Rust,
        "python" => Origin::Python,
        other => {
            return Err(D::Error::custom(format_args!(
                "the origin {other:?} is neither \"rust\" nor \"python\""
            )));
        }
    });
    graph.remarks = file.remarks;
    for node in &file.nodes {
        let place = to_u32(graph.nodes.len())?;
        node.add_to(&mut graph, place);
    }
    for edge in &file.edges {
        to_u32::<D::Error>(graph.edges.len())?;
        let node = |number: u64| {
            let missing =
                || D::Error::custom(format_args!("an edge names node {number}, which no graph has"));
            u32::try_from(number).map_err(|_| missing())
        };
        let (from, to) = (node(edge.from)?, node(edge.to)?);
        graph.edges.push(Edge { from, to, path: graph.texts.intern(&edge.path) });
    }
    let unexplained = |handles: MemtrackUnexplained| {
        let MemtrackUnexplained { node, handles, site, scope, ended_roots } = handles;
        UnexplainedHandles { node, handles, site, scope, ended_roots }
    };
    graph.unexplained = file.unexplained.into_iter().map(unexplained).collect();
    Ok(graph)
}
