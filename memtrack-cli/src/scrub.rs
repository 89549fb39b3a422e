//! `--scrub`: replaces names in outputs with pseudonyms. Snapshots are scrubbed after they are read, before anything
//! else uses them.

use crate::Streams;
use crate::args::ScrubArgs;
use crate::load::convert_to_pytorch;
use memtrack_core::scrub::Scrub;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;
use memtrack_core::stack::symbols::Symbolizer;
use std::path::Path;

/// Returns the pseudonym generator that `args` request, if any.
pub(crate) fn from_args(args: &ScrubArgs) -> Option<Scrub> {
    let scrub = args.scrub_key.iter().fold(Scrub::new(), |scrub, key| scrub.key(key));
    args.scrub.then(|| args.scrub_keep.iter().fold(scrub, |scrub, glob| scrub.keep(glob)))
}

/// Returns the pseudonym generator that `args` request, if any, for a report about the intervals called `per`: it keeps their name,
/// by which they are found.
pub(crate) fn from_args_keeping(args: &ScrubArgs, per: Option<&str>) -> Option<Scrub> {
    from_args(args).map(|scrub| per.into_iter().fold(scrub, Scrub::keep))
}

/// Scrubs a snapshot, if requested, and reports how secure the pseudonyms are.
pub(crate) fn scrub_snapshot(snapshot: Snapshot, args: &ScrubArgs, streams: &mut Streams<'_>) -> Snapshot {
    let mut pseudonyms = from_args(args);
    let snapshot = scrub_snapshot_with(snapshot, pseudonyms.as_mut());
    mention_security(args, pseudonyms.as_ref(), streams);
    snapshot
}

/// Scrubs one of several snapshots that share pseudonyms, or returns it unchanged if `pseudonyms` is `None`.
pub(crate) fn scrub_snapshot_with(snapshot: Snapshot, pseudonyms: Option<&mut Scrub>) -> Snapshot {
    let Some(scrub) = pseudonyms else { return snapshot };
    let mut symbols = Symbolizer::of(&snapshot);
    scrub.snapshot(snapshot, &mut symbols)
}

/// Reports how secure the pseudonyms are. If there are several files, this is called once, after the last.
pub(crate) fn mention_security(args: &ScrubArgs, pseudonyms: Option<&Scrub>, streams: &mut Streams<'_>) {
    mention_key(args, streams);
    if let Some(longer) = pseudonyms.map(Scrub::collisions).filter(|&longer| longer > 0) {
        streams.note(format_args!("hint: {longer} pseudonyms are longer, to be distinct"));
    }
}

/// Warns that names can be confirmed by guessing if the pseudonyms have no key.
pub(crate) fn mention_key(args: &ScrubArgs, streams: &mut Streams<'_>) {
    if args.scrub && args.scrub_key.is_none() {
        streams.note(format_args!("hint: without --scrub-key, anyone who guesses a name can confirm it"));
    }
}

/// Scrubs a snapshot in PyTorch's form, if requested, and reports how secure the pseudonyms are.
pub(crate) fn scrub_pytorch(
    from: PytorchSnapshot,
    args: &ScrubArgs,
    streams: &mut Streams<'_>,
) -> PytorchSnapshot {
    let mut pseudonyms = from_args(args);
    let from = scrub_pytorch_with(from, pseudonyms.as_mut());
    mention_security(args, pseudonyms.as_ref(), streams);
    from
}

/// Scrubs one of several snapshots in PyTorch's form, like [`scrub_snapshot_with`].
pub(crate) fn scrub_pytorch_with(from: PytorchSnapshot, pseudonyms: Option<&mut Scrub>) -> PytorchSnapshot {
    if pseudonyms.is_none() {
        return from;
    }
    convert_to_pytorch(scrub_snapshot_with(from.into_snapshot(), pseudonyms))
}

/// Returns the name that a page shows for a file, which is a pseudonym if requested.
pub(crate) fn scrub_name(name: String, args: &ScrubArgs) -> String {
    from_args(args).map_or(name.clone(), |mut scrub| scrub.file(Path::new(&name)))
}

/// Returns the path of a file as it is printed, with its private parts replaced if names are.
pub(crate) fn shown_path(path: &Path, pseudonyms: Option<&mut Scrub>) -> String {
    match pseudonyms {
        Some(scrub) => scrub.file(path),
        None => path.to_string_lossy().into_owned(),
    }
}
