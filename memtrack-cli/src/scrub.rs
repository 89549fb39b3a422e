//! `--scrub`: outputs have pseudonyms instead of names. Snapshots are scrubbed after reading, before anything else uses
//! them.

use crate::Streams;
use crate::args::ScrubArgs;
use crate::load::in_pytorch_form;
use memtrack_core::scrub::Scrub;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;
use memtrack_core::snapshot::{Loaded, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use std::path::{Path, PathBuf};

/// Returns what `args` request; none where they request nothing.
pub(crate) fn requested(args: &ScrubArgs) -> Option<Scrub> {
    let scrub = args.scrub_key.iter().fold(Scrub::new(), |scrub, key| scrub.key(key));
    args.scrub.then(|| args.scrub_keep.iter().fold(scrub, |scrub, glob| scrub.keep(glob)))
}

/// Scrubs the loaded file, if requested; `folders` have binaries for its names.
pub(crate) fn loaded(
    mut loaded: Loaded,
    args: &ScrubArgs,
    folders: &[PathBuf],
    streams: &mut Streams<'_>,
) -> Loaded {
    loaded.snapshot = snapshot(loaded.snapshot, args, folders, streams);
    loaded
}

/// Does the same for a snapshot.
pub(crate) fn snapshot(
    snapshot: Snapshot,
    args: &ScrubArgs,
    folders: &[PathBuf],
    streams: &mut Streams<'_>,
) -> Snapshot {
    let mut hiding = requested(args);
    let snapshot = hidden(snapshot, hiding.as_mut(), folders);
    mention(args, hiding.as_ref(), streams);
    snapshot
}

/// Does the same for one of several files, with `hiding`'s pseudonyms; unchanged where that is none.
pub(crate) fn hidden(snapshot: Snapshot, hiding: Option<&mut Scrub>, folders: &[PathBuf]) -> Snapshot {
    let Some(scrub) = hiding else { return snapshot };
    let symbols = Symbolizer::of(&snapshot);
    let mut symbols = folders.iter().fold(symbols, |symbols, folder| symbols.with_folder(folder));
    scrub.snapshot(snapshot, &mut symbols)
}

/// Reports once how secure the pseudonyms of all files are.
pub(crate) fn mention(args: &ScrubArgs, hiding: Option<&Scrub>, streams: &mut Streams<'_>) {
    mention_key(args, streams);
    if let Some(longer) = hiding.map(Scrub::collisions).filter(|&longer| longer > 0) {
        let _ = writeln!(streams.stderr, "hint: {longer} pseudonyms are longer, to be distinct");
    }
}

/// Reports how secure pseudonyms without a key are.
pub(crate) fn mention_key(args: &ScrubArgs, streams: &mut Streams<'_>) {
    if args.scrub && args.scrub_key.is_none() {
        // A hint; if it cannot be printed, the names are hidden all the same.
        let _ =
            writeln!(streams.stderr, "hint: without --scrub-key, anyone who guesses a name can confirm it");
    }
}

/// Does the same for one in PyTorch's form.
pub(crate) fn pytorch(from: PytorchSnapshot, args: &ScrubArgs, streams: &mut Streams<'_>) -> PytorchSnapshot {
    let mut hiding = requested(args);
    let from = hidden_pytorch(from, hiding.as_mut());
    mention(args, hiding.as_ref(), streams);
    from
}

/// Does the same as [`hidden`] for one in PyTorch's form.
pub(crate) fn hidden_pytorch(from: PytorchSnapshot, hiding: Option<&mut Scrub>) -> PytorchSnapshot {
    if hiding.is_none() {
        return from;
    }
    in_pytorch_form(hidden(from.into_snapshot(), hiding, &[]))
}

/// Returns the name of the file on a page.
pub(crate) fn name(name: String, args: &ScrubArgs) -> String {
    requested(args).map_or(name.clone(), |mut scrub| scrub.file(Path::new(&name)))
}
