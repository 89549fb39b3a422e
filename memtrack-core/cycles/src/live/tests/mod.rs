//! Tests that scan small programs. Each test has its own thread, and therefore its own registry of `Rc`s. However, all
//! scans see the shared values, so tests run one at a time ([`begin_test`]).

mod edge_cases;
mod found;
mod handles;
mod registry;
mod threads;

use super::{RegisterOptions, Report, Scan, disable, enable, register};
use crate::Graph;
use crate::graph::{Node, Reachability};
use memtrack_model::event::DeviceId;
use memtrack_model::references::{DeviceMemory, References, Visitor};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Starts a test in which nothing is registered yet, and during which no other test scans.
fn begin_test() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    disable();
    super::roots::clear();
    enable(RegisterOptions::new());
    guard
}

fn scan() -> Report {
    Scan::new().find().expect("no other scan runs")
}

fn scan_everything() -> Report {
    Scan::new().everything(true).find().expect("no other scan runs")
}

/// Returns 1 KiB of device memory.
fn buffer(address: u64) -> DeviceMemory {
    DeviceMemory { device: DeviceId(0), address, size_bytes: 1024 }
}

/// A value that only one thread uses, with a name, references that can be changed, and optional device memory.
struct Layer {
    name: &'static str,
    next: RefCell<Vec<Rc<Layer>>>,
    memory: Option<DeviceMemory>,
}

impl Layer {
    #[track_caller]
    fn new(name: &'static str, memory: Option<u64>) -> Rc<Self> {
        let layer = Rc::new(Self { name, next: RefCell::default(), memory: memory.map(buffer) });
        register(&layer);
        layer
    }

    fn refer(&self, to: &Rc<Self>) {
        self.next.borrow_mut().push(Rc::clone(to));
    }
}

impl References for Layer {
    fn references(&self, to: &mut Visitor<'_>) {
        to.show("name", &self.name);
        to.field("next", &self.next);
        if let Some(memory) = self.memory {
            to.memory(memory);
        }
    }
}

/// Returns each node's displayed name and what holds it, sorted by name.
fn node_names(graph: &Graph) -> Vec<(String, Reachability)> {
    let name = |node: &Node| {
        let label = graph.text(node.label);
        label.split('"').nth(1).unwrap_or(label).to_owned()
    };
    let mut names: Vec<_> = graph.nodes.iter().map(|node| (name(node), node.held)).collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    names
}

/// Returns the names of unreachable values.
fn unreachable_names(graph: &Graph) -> Vec<String> {
    node_names(graph)
        .into_iter()
        .filter(|(_, held)| *held == Reachability::Unreachable)
        .map(|(name, _)| name)
        .collect()
}

/// Returns each edge as `from.path -> to`, using the names of the nodes.
fn edges(graph: &Graph) -> Vec<String> {
    let name = |node: u32| graph.label(node).split('"').nth(1).unwrap_or("?").to_owned();
    let mut edges: Vec<String> = graph
        .edges
        .iter()
        .map(|edge| format!("{}{} -> {}", name(edge.from), graph.text(edge.path), name(edge.to)))
        .collect();
    edges.sort();
    edges
}
