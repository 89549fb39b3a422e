//! Determines from an operator trace what each piece of memory is used for over time.
//!
//! The steps are those of PyTorch's own analysis (`torch.profiler._memory_profiler`, which PyTorch has since
//! deprecated): identities, sizes, the data-flow graph, seven passes over the graph, and the timeline.
//! [`Mode::Compat`] returns exactly the results of PyTorch 2.15, including its errors.

mod category_map;
mod flow;
mod identities;
mod passes;
mod sizes;
mod stated;
mod timeline;
mod tree;

pub use crate::optrace::Role;
pub use timeline::{Action, Change};

use crate::category::Category;
use crate::optrace::Mode;
use crate::recorded::{Attribution, PRODUCER};
use crate::repairs::Repairs;
use memtrack_model::Phase;
use memtrack_model::optrace::{DeviceIndex, OperatorTrace, RecordId, RecordKind, TracePhase};
use std::fmt;
use std::ops::Range;
use timeline::Versions;
pub(crate) use tree::record_phases;

/// The reason why a trace cannot be analysed. Displays as one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnalysisError {
    /// The trace has neither allocations nor frees.
    NoAllocations,
    /// Two operators produce the same version of a tensor, which PyTorch rejects.
    DuplicateOutputs,
    /// A tensor's versions are not consecutive, which PyTorch rejects.
    Versions,
    /// An operator frees the same memory twice, which PyTorch rejects.
    DoubleDelete,
    /// The size of a tensor that existed before the trace is unknown.
    NoSize,
}

impl fmt::Display for AnalysisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::NoAllocations => {
                return f.write_str(
                    "the trace has no allocations; record it with profile_memory=True, or with memtrack's allocator",
                );
            }
            Self::DuplicateOutputs => "duplicate outputs",
            Self::Versions => "version mismatch",
            Self::DoubleDelete => "double delete",
            Self::NoSize => "a tensor without a known size",
        };
        write!(f, "PyTorch's analysis refuses this trace ({what}); without --compat it is repaired")
    }
}

impl std::error::Error for AnalysisError {}

/// A piece of memory in which tensors were seen, from its allocation to its free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The address of the memory.
    pub address: u64,
    /// The device on which the memory was allocated.
    pub device: DeviceIndex,
    /// The number of the logical tensor. PyTorch counts them from 0.
    pub tensor: u32,
    /// The size in bytes, or `None` if the trace does not contain it.
    pub bytes: Option<u64>,
    /// The index in `Profile::by_version` of version 0's category, and the number of versions.
    versions: (u32, u32),
}

/// The result of the analysis, which gives the categories of a trace's memory over time.
#[derive(Clone, Debug)]
pub struct Profile<'a> {
    trace: &'a OperatorTrace,
    repairs: Repairs,
    /// The storage of each lifetime of an address, or `None` for lifetimes without a tensor.
    storages: Vec<Option<Storage>>,
    /// The category of each version of each storage, grouped by storage.
    by_version: Vec<Option<Category>>,
    /// For each entry of `by_version`, whether PyTorch's list of categories contains the version.
    present: Vec<bool>,
    changes: Vec<Change>,
    identities: identities::Identities,
    /// The phase of each record.
    phases: Vec<TracePhase>,
    /// For each record, the category that the program states for the memory that the record allocated. Filled only
    /// for traces from memtrack's SDK.
    statements: Vec<Option<Category>>,
    mode: Mode,
    /// The names and errors of the allocations, if the trace was converted from a recording.
    attribution: Option<&'a Attribution>,
}

/// A version of a storage and its category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelledVersion {
    /// The storage, as an index into [`Profile::storages`]; this is also PyTorch's allocation id.
    pub storage: u32,
    /// The version of the storage's contents, from 0.
    pub version: u32,
    /// The category, or `None` if it is unknown.
    pub category: Option<Category>,
}

/// Analyses a trace.
///
/// # Errors
///
/// Fails if the trace has no allocations. In [`Mode::Compat`], also fails if PyTorch's analysis would fail.
pub fn analyse(trace: &OperatorTrace, mode: Mode) -> Result<Profile<'_>, AnalysisError> {
    if !trace.records.iter().any(|record| matches!(record.what, RecordKind::Memory(_))) {
        return Err(AnalysisError::NoAllocations);
    }
    let mut repairs = Repairs::default();
    let tree = tree::Tree::of(trace);
    let registers_tensors = tree::find_first_registrations(trace);
    let identities = identities::identify(trace, &tree, &registers_tensors, mode, &mut repairs);
    let sizes = sizes::lifetime_sizes(trace, &identities, mode);
    let flow = flow::build_flow(trace, &tree, &identities, mode, &mut repairs)?;
    let passes = passes::Passes { trace, tree: &tree, identities: &identities, flow: &flow };
    let store = passes.run();
    let present = passes.find_present(&store);
    let mut by_version = vec![None; store.slot_count()];
    let mut storages = vec![None; identities.lifetimes.len()];
    for (key, lifetime) in (0..).zip(&identities.lifetimes) {
        let Some(address) = lifetime.address.filter(|_| lifetime.has_key()) else { continue };
        let count = store.version_count(key);
        for version in 0..count {
            by_version[store.slot((key, version))] = store.get((key, version));
        }
        storages[key as usize] = Some(Storage {
            address,
            device: lifetime.device,
            tensor: lifetime.tensor,
            bytes: sizes[key as usize],
            versions: (store.slot((key, 0)) as u32, count),
        });
    }
    let versions = Versions { present: &present, starts: &store.starts };
    let changes = timeline::build_timeline(trace, &tree, &identities, &flow, &sizes, versions, mode)?;
    let mut profile = Profile {
        trace,
        repairs,
        storages,
        by_version,
        present,
        changes,
        identities,
        phases: record_phases(trace),
        statements: Vec::new(),
        mode,
        attribution: None,
    };
    if mode == Mode::Tolerant && trace.header.producer.0 == PRODUCER {
        profile.apply_statements();
    } else if mode == Mode::Tolerant {
        profile.label_optimizer_temporaries();
    }
    Ok(profile)
}

impl<'a> Profile<'a> {
    /// Attaches the attribution of the recording's allocations, so that a sampled block counts for all blocks
    /// that it represents. Tensors in blocks that were not sampled are removed, because the recording
    /// contains neither their allocations nor their frees, and because the sampled blocks already represent
    /// them.
    #[must_use]
    pub fn with_attribution(mut self, attribution: &'a Attribution) -> Self {
        let mut is_recorded = vec![false; self.storages.len()];
        for change in &self.changes {
            let is_free = |record: RecordId| matches!(&self.trace.records[record as usize].what, RecordKind::Memory(memory) if memory.is_free);
            let is_event = match change.action {
                Action::Create => true,
                Action::Destroy => change.record.is_some_and(is_free),
                Action::Preexisting | Action::IncrementVersion => false,
            };
            if let Some(storage) = change.storage.filter(|_| is_event) {
                is_recorded[storage as usize] = true;
            }
        }
        self.changes.retain(|change| {
            let is_sample = change.storage.is_none_or(|storage| is_recorded[storage as usize]);
            is_sample || !attribution.is_estimate(change.device)
        });
        for change in &mut self.changes {
            let sample = change.allocated_by.or(change.record).and_then(|record| attribution.sample(record));
            if let Some(sample) = sample {
                change.bytes = sample.bytes;
            }
        }
        self.attribution = Some(attribution);
        self
    }

    /// Returns the attribution of the recording's allocations, or `None` if the trace was not converted from
    /// a recording.
    pub const fn attribution(&self) -> Option<&'a Attribution> {
        self.attribution
    }

    /// Returns the size of a block in bytes, and the number of blocks that it stands for, which is more than 1 if `record`
    /// is of a sampled block. `bytes` is the size of a block that was not sampled.
    #[cfg(feature = "all")]
    pub(crate) fn weigh(&self, record: Option<RecordId>, bytes: u64) -> (f64, f64) {
        let sample = self.attribution.and_then(|attribution| attribution.sample(record?));
        sample.map_or((bytes as f64, 1.0), |sample| (sample.size_bytes as f64, sample.blocks))
    }

    /// Returns the trace.
    pub const fn trace(&self) -> &'a OperatorTrace {
        self.trace
    }

    /// Returns the devices that have memory in the trace.
    pub fn devices(&self) -> Vec<DeviceIndex> {
        let mut devices: Vec<DeviceIndex> = self.changes.iter().map(|change| change.device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Returns a device's name in the trace, such as `cpu` or `cuda:0`.
    pub fn device_name(&self, device: DeviceIndex) -> &'a str {
        self.trace.devices.get(device.0 as usize).map_or("", |name| name)
    }

    /// Returns whether the profile was computed in [`Mode::Compat`], which gives exactly PyTorch's results.
    pub fn is_compat(&self) -> bool {
        self.mode == Mode::Compat
    }

    /// Returns the name of the operator that a record describes, or an empty string if it is not an operator.
    pub fn operator_name(&self, record: RecordId) -> String {
        match self.trace.records.get(record as usize).map(|record| &record.what) {
            Some(RecordKind::Op(op)) => self.trace.strings.get(op.name).into_owned(),
            _ => String::new(),
        }
    }

    /// Returns the repairs made by the analysis.
    pub const fn repairs(&self) -> &Repairs {
        &self.repairs
    }

    /// Returns all memory changes in chronological order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the changes to a device's memory in chronological order.
    pub fn changes_on(&self, device: DeviceIndex) -> impl DoubleEndedIterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.device == device)
    }

    /// Returns the time of the trace's first record in ns.
    pub fn begin_ns(&self) -> i64 {
        self.trace.records.first().map_or(0, |record| record.time_ns)
    }

    /// Returns the pieces of memory, indexed by PyTorch's allocation id. Entry 0 and pieces in which no
    /// tensor was seen are `None`.
    pub fn storages(&self) -> &[Option<Storage>] {
        &self.storages
    }

    /// Returns the roles and the storages of the tensors that a record refers to. For an operator, these are the
    /// arguments followed by the results; for a module or an optimizer, the registered parameters, gradients,
    /// states and buffers. Only a module's or an optimizer's first record registers tensors. The storage is
    /// `None` if the analysis does not track it.
    pub fn references(&self, record: RecordId) -> Vec<(Role, Option<u32>)> {
        let mut references = Vec::new();
        if (record as usize) < self.trace.records.len() {
            self.identities.for_each_key(self.trace, record, |_, role, key| {
                references.push((role, Some(key).filter(|&key| key != identities::NONE)));
            });
        }
        references
    }

    /// Returns the category of a version of a storage, or `None` if it is unknown.
    pub fn category(&self, storage: u32, version: u32) -> Option<Category> {
        let storage = self.storages.get(storage as usize).copied().flatten()?;
        let (start, count) = storage.versions;
        if version < count { self.by_version[(start + version) as usize] } else { None }
    }

    /// Returns the category of a change's memory after the change, or [`Category::Unknown`] if none was
    /// found. The category before a write is the category of version [`Change::version`].
    pub fn category_of(&self, change: &Change) -> Category {
        let version = change.version + u32::from(change.action == Action::IncrementVersion);
        self.category_at(change, version)
    }

    /// Returns the category of a given version of a change's memory.
    pub(crate) fn category_at(&self, change: &Change, version: u32) -> Category {
        let found = match change.storage {
            Some(storage) => self.category(storage, version),
            None => self.category_without_tensor(change),
        };
        found.unwrap_or(Category::Unknown)
    }

    /// Returns the category of a change's memory if no tensor was seen in it.
    fn category_without_tensor(&self, change: &Change) -> Option<Category> {
        let record = change.allocated_by? as usize;
        if !self.statements.is_empty() {
            return self.statements[record];
        }
        let in_optimizer = self.phases[record] == TracePhase::Of(Phase::Optimizer);
        (in_optimizer && !self.is_compat()).then_some(Category::OptimizerTemporary)
    }

    /// Returns all versions that PyTorch lists along with their categories, sorted by logical tensor,
    /// allocation and version.
    pub fn labelled(&self) -> Vec<LabelledVersion> {
        let mut storages: Vec<(u32, &Storage)> =
            (0..).zip(&self.storages).filter_map(|(id, storage)| Some((id, storage.as_ref()?))).collect();
        storages.sort_by_key(|(id, storage)| (storage.tensor, *id));
        let versions = storages.into_iter().flat_map(|(id, storage)| {
            let (start, count) = storage.versions;
            (0..count).filter(move |version| self.present[(start + version) as usize]).map(move |version| {
                LabelledVersion {
                    storage: id,
                    version,
                    category: self.by_version[(start + version) as usize],
                }
            })
        });
        versions.collect()
    }

    /// Returns the entries of `by_version` for the storage that a change allocates, and whether its tensor is
    /// registered.
    fn allocated_versions(&self, change: &Change, registered: &[bool]) -> Option<(Range<usize>, bool)> {
        let storage = change.storage.filter(|_| change.action == Action::Create)?;
        let Storage { versions: (start, count), tensor, .. } = self.storages[storage as usize]?;
        Some((start as usize..(start + count) as usize, registered[tensor as usize]))
    }

    /// Applies the program's statements wherever they take precedence over data flow.
    fn apply_statements(&mut self) {
        self.statements = stated::find_statements(self.trace, &self.phases, &self.changes);
        let registered = self.registered_tensors();
        for change in &self.changes {
            let stated = change.allocated_by.and_then(|record| self.statements[record as usize]);
            let allocated = self.allocated_versions(change, &registered);
            let (Some(stated), Some((versions, is_registered))) = (stated, allocated) else { continue };
            for category in &mut self.by_version[versions] {
                *category = stated::decide(*category, is_registered, stated);
            }
        }
    }

    /// Returns, for each logical tensor, whether a module, an optimizer or a gradient record registers it.
    fn registered_tensors(&self) -> Vec<bool> {
        let mut registered = vec![false; self.storages.len()];
        for (number, record) in (0..).zip(&self.trace.records) {
            if matches!(
                record.what,
                RecordKind::Module(_) | RecordKind::Optimizer(_) | RecordKind::Grad { .. }
            ) {
                for &key in self.identities.keys_of(number).iter().filter(|&&key| key != identities::NONE) {
                    registered[self.identities.tensor(key) as usize] = true;
                }
            }
        }
        registered
    }

    /// Labels memory allocated during an optimizer step as [`Category::OptimizerTemporary`], except for
    /// registered tensors, gradients and temporaries. PyTorch's rules can only guess from the data flow here;
    /// for example, they classify Adam's denominators as parameters.
    fn label_optimizer_temporaries(&mut self) {
        let registered = self.registered_tensors();
        for change in &self.changes {
            let phase = change.record.map(|record| self.phases[record as usize]);
            if phase != Some(TracePhase::Of(Phase::Optimizer)) {
                continue;
            }
            let Some((versions, false)) = self.allocated_versions(change, &registered) else { continue };
            for category in &mut self.by_version[versions] {
                if !matches!(category, Some(Category::Temporary | Category::Gradient)) {
                    *category = Some(Category::OptimizerTemporary);
                }
            }
        }
    }
}
