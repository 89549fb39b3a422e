//! Counts the programs that the process started and that are not recorded: each appends a byte to a file in a temporary
//! folder of the command.

use crate::Streams;
use crate::args::RunArgs;
use memtrack_core::__run_protocol::{BEGAN_FILE, REFUSED_FILE, WITHOUT_LIBRARY_FILE};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::{env, fs, process};

/// The folder with the counts, which is removed when the command ends.
pub(crate) struct Census {
    pub(crate) folder: PathBuf,
}

impl Census {
    /// Creates the folder; `None` if that fails: then the number of recorded programs has no limit, and unrecorded programs
    /// are not reported.
    pub(crate) fn begin() -> Option<Self> {
        let folder = (0..100)
            .map(|number| env::temp_dir().join(format!("memtrack-processes-{}-{number}", process::id())));
        let made = |folder: &PathBuf| fs::DirBuilder::new().mode(0o700).create(folder).is_ok();
        let census = Self { folder: std::path::absolute(folder.into_iter().find(made)?).ok()? };
        for name in [BEGAN_FILE, REFUSED_FILE, WITHOUT_LIBRARY_FILE] {
            fs::File::create_new(census.folder.join(name)).ok()?;
        }
        Some(census)
    }

    /// Returns the number of programs of a kind so far.
    fn count(&self, name: &str) -> u64 {
        self.folder.join(name).metadata().map_or(0, |data| data.len())
    }

    /// Reports the programs that were not recorded; `was_recorded` is whether the run has any recording.
    pub(crate) fn report(
        &self,
        streams: &mut Streams<'_>,
        args: &RunArgs,
        was_recorded: bool,
    ) -> io::Result<()> {
        let most = args.max_processes;
        match self.count(BEGAN_FILE).saturating_sub(most) {
            0 => {}
            more => writeln!(
                streams.stderr,
                "memtrack: it started {more} more {} not recorded: --max-processes is {most}",
                if more == 1 { "program, which is" } else { "programs, which are" }
            )?,
        }
        // The driver's library needs glibc, so programs into which nothing can be preloaded have allocated no device
        // memory. Programs without memtrack's environment may have; but if something was recorded, they are mostly tools
        // that a library runs to query the system.
        if args.host {
            let why = "into which no library can be preloaded: statically linked, using a C library other \
                       than glibc, built for another kind of processor, or setuid";
            warn_not_recorded(streams, self.count(REFUSED_FILE), why)?;
        }
        if args.host || !was_recorded {
            let why = "because its environment was replaced by one without memtrack's LD_PRELOAD or MEMTRACK_RUN_OUTPUT";
            warn_not_recorded(streams, self.count(WITHOUT_LIBRARY_FILE), why)?;
        }
        Ok(())
    }
}

fn warn_not_recorded(streams: &mut Streams<'_>, count: u64, why: &str) -> io::Result<()> {
    match count {
        0 => Ok(()),
        1 => writeln!(streams.stderr, "memtrack: it started a program that is not recorded, {why}"),
        count => writeln!(
            streams.stderr,
            "memtrack: {count} times it started a program that is not recorded, {why}"
        ),
    }
}

impl Drop for Census {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
