//! The programs that were started and are not recorded. They leave a byte each in files of a folder of this command's.

use crate::Streams;
use crate::args::RunArgs;
use memtrack_core::__run_protocol::{BEGAN, REFUSED};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::{env, fs, process};

/// The folder, which goes when the command ends.
pub(crate) struct Census {
    pub(crate) folder: PathBuf,
}

impl Census {
    /// `None` if there is no memory for it: then all are recorded, and nothing is reported about the others.
    pub(crate) fn begin() -> Option<Self> {
        let folder = (0..100)
            .map(|number| env::temp_dir().join(format!("memtrack-processes-{}-{number}", process::id())));
        let made = |folder: &PathBuf| fs::DirBuilder::new().mode(0o700).create(folder).is_ok();
        let census = Self { folder: std::path::absolute(folder.into_iter().find(made)?).ok()? };
        for name in [BEGAN, REFUSED] {
            fs::File::create_new(census.folder.join(name)).ok()?;
        }
        Some(census)
    }

    /// How many there are of a kind so far.
    fn count(&self, name: &str) -> u64 {
        self.folder.join(name).metadata().map_or(0, |data| data.len())
    }

    /// Says which programs are not recorded.
    pub(crate) fn tell(&self, streams: &mut Streams<'_>, args: &RunArgs) -> io::Result<()> {
        let most = args.max_processes;
        match self.count(BEGAN).saturating_sub(most) {
            0 => {}
            more => writeln!(
                streams.stderr,
                "memtrack: it started {more} more {} not recorded: --max-processes is {most}",
                if more == 1 { "program, which is" } else { "programs, which are" }
            )?,
        }
        if !args.host {
            // The driver's library needs glibc, so these have taken no memory of a device.
            return Ok(());
        }
        let why = "into which nothing can be preloaded: statically linked, with another C library than glibc, for \
                   another kind of processor, or with rights of its own";
        match self.count(REFUSED) {
            0 => Ok(()),
            1 => writeln!(streams.stderr, "memtrack: it started a program that is not recorded, {why}"),
            count => writeln!(
                streams.stderr,
                "memtrack: {count} times it started a program that is not recorded, {why}"
            ),
        }
    }
}

impl Drop for Census {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
