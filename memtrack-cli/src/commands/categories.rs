//! `memtrack categories`: what memory is for.

use super::optrace;
use crate::Streams;
use crate::args::CategoriesArgs;
use crate::error::{CliError, Exit};
use memtrack_core::profile::analysis::Profile;

/// Analyses the trace and prints its categories.
pub(crate) fn run(args: &CategoriesArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let read = optrace::load(&args.trace, streams)?;
    let (profile, _) = optrace::analysed(&args.trace, &read, streams)?;
    if args.tensors {
        return tensors(args, &profile, streams);
    }
    Ok(Exit::Fine)
}

/// Prints every version of every tensor.
fn tensors(
    args: &CategoriesArgs,
    profile: &Profile<'_>,
    streams: &mut Streams<'_>,
) -> Result<Exit, CliError> {
    let device = args.trace.device.as_ref().map(|_| optrace::device(&args.trace, profile)).transpose()?;
    let mut first = true;
    if args.format.json {
        streams.stdout.write_all(b"[")?;
    }
    for labelled in profile.labelled() {
        let Some(storage) = profile.storages()[labelled.storage as usize] else { continue };
        if device.is_some_and(|device| device != storage.device) {
            continue;
        }
        let category = labelled.category.map(|category| category.name());
        if args.format.json {
            let separator = if std::mem::take(&mut first) { "" } else { ",\n " };
            let row = serde_json::json!({
                "id": storage.tensor,
                "ptr": storage.address,
                "alloc": labelled.storage,
                "device": profile.device_name(storage.device),
                "version": labelled.version,
                "category": category,
            });
            write!(streams.stdout, "{separator}{row}")?;
        } else {
            if std::mem::take(&mut first) {
                writeln!(
                    streams.stdout,
                    "{:>8} {:>10} {:>18}  {:>7}  category",
                    "tensor", "allocation", "address", "version"
                )?;
            }
            writeln!(
                streams.stdout,
                "{:>8} {:>10} {:#18x}  {:>7}  {}",
                storage.tensor,
                labelled.storage,
                storage.address,
                labelled.version,
                category.unwrap_or("UNKNOWN"),
            )?;
        }
    }
    if args.format.json {
        streams.stdout.write_all(b"]\n")?;
    }
    Ok(Exit::Fine)
}
