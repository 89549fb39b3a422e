//! Generates snapshots of the ranks of a training job. Each rank's allocations are known, so that tests know which rank differs
//! and by how much. `memtrack-make-ranks` writes them for scripts.

use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::stack::symbols::Symbolizer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// The start of every job, in microseconds since the Unix epoch.
const START_US: u64 = 1_760_000_000_000_000;

/// A job whose ranks all do the same work, except that one may leak.
#[derive(Clone, Debug)]
pub struct Job {
    /// The number of ranks.
    pub ranks: u64,
    /// The number of steps. Each rank marks every step with an annotation, as PyTorch's profiler does.
    pub steps: u64,
    /// The rank that leaks [`Self::leak_bytes`] in each step, at line 88 of `train.py`.
    pub leaking: Option<u64>,
    /// The bytes that [`Self::leaking`] leaks in each step.
    pub leak_bytes: u64,
    /// The folder of the source files.
    pub code: String,
    /// The job's name, if its files contain one.
    pub name: Option<String>,
}

impl Default for Job {
    /// Returns a job of eight ranks with six steps; rank 5 leaks 8 MiB in each step.
    fn default() -> Self {
        Self {
            ranks: 8,
            steps: 6,
            leaking: Some(5),
            leak_bytes: 8 * MIB,
            code: "/job/src".into(),
            name: None,
        }
    }
}

/// The bytes of every rank's parameters, which are always live.
pub const PARAMETERS: u64 = 64 * MIB;
/// The bytes of every rank's activations at the peak of each step.
pub const ACTIVATIONS: u64 = 96 * MIB;
/// The number of layers, each of which has an equal share of the parameters and of the activations.
pub const LAYERS: u64 = 4;

impl Job {
    /// Returns the snapshot of a rank as PyTorch's JSON.
    pub fn json(&self, rank: u64) -> Value {
        let mut run = Run::new(self);
        let init = [("__init__", "model.py", 12), ("main", "train.py", 20)];
        for _ in 0..LAYERS {
            run.alloc(PARAMETERS / LAYERS, &init);
        }
        for step in 0..self.steps {
            run.annotate(&format!("ProfilerStep#{step}"), "START");
            let forward =
                [("forward", "model.py", 31), ("train_step", "train.py", 60), ("main", "train.py", 25)];
            let activations: Vec<u64> =
                (0..LAYERS).map(|_| run.alloc(ACTIVATIONS / LAYERS, &forward)).collect();
            if self.leaking == Some(rank) {
                run.alloc(self.leak_bytes, &[("log_step", "train.py", 88), ("main", "train.py", 26)]);
            }
            let backward = [("backward", "train.py", 64), ("main", "train.py", 25)];
            for activation in activations.into_iter().rev() {
                run.free(activation, &backward);
            }
            run.annotate(&format!("ProfilerStep#{step}"), "END");
        }
        run.finish()
    }

    /// Returns the bytes at a rank's peak.
    pub fn peak_bytes(&self, rank: u64) -> u64 {
        let leak = if self.leaking == Some(rank) { self.leak_bytes * self.steps } else { 0 };
        PARAMETERS + ACTIVATIONS + leak
    }

    /// Returns the snapshot of a rank.
    ///
    /// # Panics
    /// When memtrack cannot read the generated JSON.
    pub fn snapshot(&self, rank: u64) -> Snapshot {
        let text = serde_json::to_vec(&self.json(rank)).expect("it is JSON");
        Snapshot::open_stream(&text[..], LoadOptions::default()).expect("it is a snapshot").snapshot
    }

    /// Writes the ranks to `FOLDER/rankN.SUFFIX`, and returns the paths.
    ///
    /// # Panics
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path, suffix: &str) -> Vec<PathBuf> {
        fs::create_dir_all(folder).expect("a folder");
        let write = |rank| {
            let path = folder.join(format!("rank{rank}.{suffix}"));
            let snapshot = self.snapshot(rank);
            let mut names = Symbolizer::of(&snapshot);
            snapshot.save_as(&path, &mut names).expect("it can be written");
            path
        };
        (0..self.ranks).map(write).collect()
    }
}

/// A rank's snapshot under construction. Every block has a separate segment; the segment of a freed block is reused by the next
/// block of the same size.
struct Run<'a> {
    job: &'a Job,
    time_us: u64,
    events: Vec<Value>,
    annotations: Vec<Value>,
    /// By address, the size of each segment and, while its block is live, the block's frames.
    segments: BTreeMap<u64, (u64, Option<Value>)>,
}

impl<'a> Run<'a> {
    fn new(job: &'a Job) -> Self {
        Self {
            job,
            time_us: START_US,
            events: Vec::new(),
            annotations: Vec::new(),
            segments: BTreeMap::new(),
        }
    }

    fn frames(&self, stack: &[(&str, &str, u32)]) -> Value {
        let frame = |&(name, file, line): &(&str, &str, u32)| json!({"name": name, "filename": format!("{}/{file}", self.job.code), "line": line});
        stack.iter().map(frame).collect()
    }

    fn event(&mut self, action: &str, address: u64, size: u64, frames: &Value) {
        self.time_us += 500;
        self.events.push(json!({
            "action": action, "addr": address, "size": size, "stream": 0, "time_us": self.time_us,
            "compile_context": "N/A", "user_metadata": "", "frames": frames,
        }));
    }

    fn alloc(&mut self, size: u64, stack: &[(&str, &str, u32)]) -> u64 {
        let frames = self.frames(stack);
        let free = self.segments.iter().find(|(_, (bytes, live))| *bytes == size && live.is_none());
        let address = match free.map(|(&address, _)| address) {
            Some(address) => address,
            None => {
                let address =
                    self.segments.last_key_value().map_or(0x7f00_0000_0000, |(at, (size, _))| at + size);
                self.event("segment_alloc", address, size, &frames);
                address
            }
        };
        self.event("alloc", address, size, &frames);
        self.segments.insert(address, (size, Some(frames)));
        address
    }

    fn free(&mut self, address: u64, stack: &[(&str, &str, u32)]) {
        let frames = self.frames(stack);
        let size = self.segments[&address].0;
        self.event("free_requested", address, size, &frames);
        self.event("free_completed", address, size, &frames);
        self.segments.insert(address, (size, None));
    }

    fn annotate(&mut self, name: &str, stage: &str) {
        self.time_us += 1;
        self.annotations.push(json!({"name": name, "stage": stage, "device": 0, "time_us": self.time_us}));
    }

    fn finish(self) -> Value {
        let segment = |(&address, (size, live)): (&u64, &(u64, Option<Value>))| {
            let used = if live.is_some() { *size } else { 0 };
            let block = match live {
                Some(frames) => json!({
                    "address": address, "size": size, "requested_size": size, "state": "active_allocated",
                    "frames": frames,
                }),
                None => json!({
                    "address": address, "size": size, "requested_size": 0, "state": "inactive", "frames": [],
                }),
            };
            json!({
                "device": 0, "address": address, "total_size": size, "allocated_size": used, "active_size": used,
                "requested_size": used, "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0],
                "is_expandable": false, "frames": [], "blocks": [block],
            })
        };
        let segments: Vec<Value> = self.segments.iter().map(segment).collect();
        let mut root = json!({
            "segments": segments, "device_traces": [self.events], "allocator_settings": {},
            "external_annotations": self.annotations,
        });
        if let Some(name) = &self.job.name {
            root["job"] = json!(name);
        }
        root
    }
}
