//! What a report about one file starts from: the snapshot in order of time, the requested devices and moments, and the symbols.

use crate::Streams;
use crate::args::{
    At, DeviceArgs, DeviceSelector, FileArgs, InputArgs, RulesArgs, SymbolsArgs, selector_name,
};
use crate::error::CliError;
use crate::load::{load_file, load_with};
use crate::ownership::{Unmatched, read_rules};
use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::ownership::Rules;
use memtrack_core::analysis::units::printable;
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::recording::ReadReport;
use memtrack_core::snapshot::{Loaded, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use std::path::Path;

/// A snapshot, and what is requested of it.
pub(crate) struct Context {
    /// The snapshot, with events in order of time.
    pub(crate) snapshot: Snapshot,
    /// The requested device, or all devices; if a moment is requested, only those that have it.
    pub(crate) devices: Vec<DeviceId>,
    /// The requested moment on each of the devices; empty if none is requested.
    pub(crate) moments: Vec<Moment>,
    /// The names of the functions in stacks.
    pub(crate) symbols: Symbolizer,
}

impl Context {
    /// Reads the rules about the user's code, and loads a file, of which `prepare` returns the snapshot to report on. Warns about
    /// an incomplete file, events that are not in order, and globs that match no frame.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if the file has no such device or moment.
    pub(crate) fn load(
        file: &FileArgs,
        rules: &RulesArgs,
        device: DeviceArgs,
        at: Option<At>,
        streams: &mut Streams<'_>,
        prepare: impl FnOnce(Loaded, &Rules, &mut Streams<'_>) -> Snapshot,
    ) -> Result<(Self, Rules), CliError> {
        let read = read_rules(rules)?;
        let snapshot = prepare(load_file(file, streams)?, &read, streams);
        let mut context = Self::of(snapshot, device.device, at, streams)?;
        let mut unmatched = Unmatched::new(rules);
        unmatched.scan(&context.snapshot, &mut context.symbols);
        unmatched.mention(streams);
        Ok((context, read))
    }

    /// Loads one of several files, and returns it with the report of a recording's reader.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has no such device.
    pub(crate) fn read(
        path: &Path,
        input: &InputArgs,
        symbols: &SymbolsArgs,
        device: Option<DeviceSelector>,
        streams: &mut Streams<'_>,
    ) -> Result<(Self, Option<ReadReport>), CliError> {
        let Loaded { snapshot, report, .. } = load_with(path, input, symbols, streams)?;
        Ok((Self::of(snapshot, device, None, streams)?, report))
    }

    /// Sorts the events of a snapshot, warns if they were not in order, and selects the devices and moments.
    ///
    /// # Errors
    /// Returns a usage error if the file has no such device or moment.
    pub(crate) fn of(
        mut snapshot: Snapshot,
        device: Option<DeviceSelector>,
        at: Option<At>,
        streams: &mut Streams<'_>,
    ) -> Result<Self, CliError> {
        mention_reordered(snapshot.order_by_time(), streams);
        let mut devices = select_devices(&snapshot, device)?;
        let mut moments = Vec::new();
        if let Some(at) = at {
            let has = |device: DeviceId| find_moment(&snapshot, device, at).is_ok();
            if devices.iter().any(|&device| has(device)) {
                devices.retain(|&device| has(device));
            }
            let found = devices.iter().map(|&device| find_moment(&snapshot, device, at));
            moments = found.collect::<Result<_, _>>()?;
        }
        let symbols = Symbolizer::of(&snapshot);
        Ok(Self { snapshot, devices, moments, symbols })
    }
}

/// Warns on standard error about the devices whose events had to be sorted by time.
fn mention_reordered(devices: Vec<DeviceId>, streams: &mut Streams<'_>) {
    for device in devices {
        streams.note(format_args!("memtrack: warning: the events of {device} are not in order of time (was the history's length changed?); \
             they are read, and numbered, in order of time"));
    }
}

/// Returns the requested device, or all devices in the snapshot if none is requested.
///
/// # Errors
/// Returns a usage error if the snapshot has no such device.
pub(crate) fn select_devices(
    snapshot: &Snapshot,
    requested: Option<DeviceSelector>,
) -> Result<Vec<DeviceId>, CliError> {
    let available = snapshot.device_ids();
    let Some(requested) = requested else { return Ok(available) };
    let is_requested = |&device: &DeviceId| match requested {
        DeviceSelector::Ordinal(ordinal) => snapshot.ordinal(device) == ordinal,
        DeviceSelector::Kind(kind) => snapshot.device_kind(device) == kind,
    };
    available.iter().copied().find(is_requested).map(|device| vec![device]).ok_or_else(|| {
        let number = |device: &DeviceId| {
            let number = snapshot.ordinal(*device);
            match selector_name(snapshot.device_kind(*device)) {
                Some(name) => format!("{number} ({name})"),
                None => number.to_string(),
            }
        };
        let available: Vec<_> = available.iter().map(number).collect();
        let available = if available.is_empty() { "none".to_owned() } else { available.join(", ") };
        CliError::Usage(format!("the file has no {requested}; it has: {available}"))
    })
}

/// Returns the requested moment on one device.
///
/// # Errors
/// Returns a usage error if the device had no such moment.
fn find_moment(snapshot: &Snapshot, device: DeviceId, at: At) -> Result<Moment, CliError> {
    let name = snapshot.device_name(device);
    match at {
        At::Peak => Ok(Moment::Peak),
        At::End => Ok(Moment::End),
        At::Oom => Moment::last_oom(snapshot, device)
            .ok_or_else(|| CliError::Usage(format!("{name} never ran out of memory in this file"))),
        At::Event(number) => Moment::event(snapshot, device, number).ok_or_else(|| {
            let count = Moment::events(snapshot, device);
            CliError::Usage(format!("{name} has no event {number}; it has {count}, counted from 0"))
        }),
    }
}

/// Reports the missing binaries without which frames cannot be named.
pub(crate) fn mention_missing(symbols: &Symbolizer, streams: &mut Streams<'_>) {
    // Modules without a file, such as the vDSO, cannot be found anywhere.
    for module in symbols.missing().filter(|module| module.path.starts_with('/')) {
        let id = if module.build_id.is_empty() { "none" } else { &module.build_id };
        streams.note(format_args!(
            "memtrack: no names from {} (build id {id}): moved or rebuilt; point --symbols to a folder that has it",
            printable(&module.path)
        ));
    }
}
