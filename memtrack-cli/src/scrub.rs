//! `--scrub`: what verbs write has pseudonyms instead of names. Snapshots are scrubbed when they were read, before anything
//! looks at them.

use crate::Streams;
use crate::args::ScrubArgs;
use crate::load::in_pytorch_form;
use memtrack_core::scrub::Scrub;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;
use memtrack_core::snapshot::{Loaded, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use std::path::{Path, PathBuf};

/// What `args` ask for; none where they ask for nothing.
pub(crate) fn asked(args: &ScrubArgs) -> Option<Scrub> {
    let scrub = args.scrub_key.iter().fold(Scrub::new(), |scrub, key| scrub.key(key));
    args.scrub.then(|| args.scrub_keep.iter().fold(scrub, |scrub, glob| scrub.keep(glob)))
}

/// What was read, with pseudonyms if they are asked for; `folders` have binaries for its names.
pub(crate) fn loaded(
    mut loaded: Loaded,
    args: &ScrubArgs,
    folders: &[PathBuf],
    streams: &mut Streams<'_>,
) -> Loaded {
    loaded.snapshot = snapshot(loaded.snapshot, args, folders, streams);
    loaded
}

/// The same for a snapshot.
pub(crate) fn snapshot(
    snapshot: Snapshot,
    args: &ScrubArgs,
    folders: &[PathBuf],
    streams: &mut Streams<'_>,
) -> Snapshot {
    let mut hiding = asked(args);
    let snapshot = hidden(snapshot, hiding.as_mut(), folders);
    mention(args, hiding.as_ref(), streams);
    snapshot
}

/// The same for one of several files, whose pseudonyms are `hiding`'s; as it is where that is none.
pub(crate) fn hidden(snapshot: Snapshot, hiding: Option<&mut Scrub>, folders: &[PathBuf]) -> Snapshot {
    let Some(scrub) = hiding else { return snapshot };
    let symbols = Symbolizer::of(&snapshot);
    let mut symbols = folders.iter().fold(symbols, |symbols, folder| symbols.with_folder(folder));
    scrub.snapshot(snapshot, &mut symbols)
}

/// Says what the pseudonyms of all files are worth, once.
pub(crate) fn mention(args: &ScrubArgs, hiding: Option<&Scrub>, streams: &mut Streams<'_>) {
    mention_key(args, streams);
    if let Some(longer) = hiding.map(Scrub::collisions).filter(|&longer| longer > 0) {
        let _ = writeln!(streams.stderr, "hint: {longer} pseudonyms are longer, to be distinct");
    }
}

/// Says what pseudonyms without a key are worth.
pub(crate) fn mention_key(args: &ScrubArgs, streams: &mut Streams<'_>) {
    if args.scrub && args.scrub_key.is_none() {
        // A hint; when nobody can read it, the names are hidden all the same.
        let _ =
            writeln!(streams.stderr, "hint: without --scrub-key, anyone who guesses a name can confirm it");
    }
}

/// The same for one in PyTorch's form.
pub(crate) fn pytorch(from: PytorchSnapshot, args: &ScrubArgs, streams: &mut Streams<'_>) -> PytorchSnapshot {
    let mut hiding = asked(args);
    let from = hidden_pytorch(from, hiding.as_mut());
    mention(args, hiding.as_ref(), streams);
    from
}

/// As [`hidden`], for one in PyTorch's form.
pub(crate) fn hidden_pytorch(from: PytorchSnapshot, hiding: Option<&mut Scrub>) -> PytorchSnapshot {
    if hiding.is_none() {
        return from;
    }
    in_pytorch_form(hidden(from.into_snapshot(), hiding, &[]))
}

/// What a page calls the file.
pub(crate) fn name(name: String, args: &ScrubArgs) -> String {
    asked(args).map_or(name.clone(), |mut scrub| scrub.file(Path::new(&name)))
}
