//! Dumps that a service writes by itself: on a signal, and when memory runs low. Without the feature `record`, none is
//! written.

use std::io;
use std::path::Path;

pub use memtrack_model::pressure::{Pressure, WatchedSign};
#[cfg(feature = "record")]
pub use memtrack_recorder::dumps::pressure::PressureWatch;
#[cfg(feature = "record")]
pub use memtrack_recorder::dumps::signal::SignalWatch;
#[cfg(not(feature = "record"))]
pub use off::{PressureWatch, SignalWatch};

/// Writes a dump to `path` whenever the signal SIGUSR2 arrives (`kill -USR2 PID`), until the returned value is dropped. The
/// newest dump is at `path`; the three before it are beside it as `NAME.1.SUFFIX` to `NAME.3.SUFFIX`. The suffix selects
/// the format, as in [`dump_snapshot`](crate::dump_snapshot).
///
/// A thread of memtrack writes the file, so the signal delays no thread of the program, and a message on stderr names the
/// file. Signals that arrive while a dump is written cause one more. While nothing is monitored, the message says so. A
/// forked child has no such thread, and ignores the signal until it calls this function itself after dropping the value.
///
/// A handler that the program has installed is never replaced. When the value is dropped, the signal has its default effect
/// again, which is to end the process.
///
/// # Errors
/// Fails when the program already handles or ignores SIGUSR2 (`AddrInUse`; call [`dump_snapshot`](crate::dump_snapshot)
/// from the program's own thread for signals then), when there is such a watch already, when no dump can have this name, or
/// when the system cannot create a thread.
///
/// ```no_run
/// let _dumps = memtrack_core::dump_on_signal("heap.memtrack")?; // in `main`, which keeps it until the end
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn dump_on_signal(path: impl AsRef<Path>) -> io::Result<SignalWatch> {
    #[cfg(feature = "record")]
    {
        set_dumper();
        memtrack_recorder::dumps::signal::dump_on_signal(path.as_ref())
    }
    #[cfg(not(feature = "record"))]
    Ok(SignalWatch(()))
}

/// Writes a dump to `path` when memory runs low, until the returned value is dropped: when one of the signs of
/// [`Pressure`] appears. It is written once per rise: again only after the value has fallen below nine tenths of its
/// threshold, or after half a minute without an event, and at most once a minute. The files are those of
/// [`dump_on_signal`].
///
/// A thread of memtrack reads the kernel's files once a second, and is woken by the kernel for [`Pressure::Stall`] if the
/// kernel allows that. While nothing is monitored, no dump is written. A forked child has no such thread.
///
/// A dump itself needs memory, about twice what [`host::own_bytes`](crate::host::own_bytes) returns, so choose a threshold
/// that leaves room for it, and prefer `.memtrack`, which needs the least.
///
/// # Errors
/// Fails when no sign is given, a threshold is out of range, no dump can have this name, none of the signs can be watched
/// here (`Unsupported`, with the reasons), or the system cannot create a thread. If some of the signs can be watched, it
/// succeeds, and [`PressureWatch::signs`] has the reasons for the others.
///
/// ```no_run
/// use memtrack_core::{Pressure, dump_at};
///
/// let watch = dump_at([Pressure::Limit(0.85), Pressure::ResidentBytes(4 << 30)], "heap.memtrack")?;
/// for sign in watch.signs() {
///     println!("{sign}"); // 85 % of the limit: not watched: the process is in no control group with a limit …
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn dump_at(
    signs: impl IntoIterator<Item = Pressure>,
    path: impl AsRef<Path>,
) -> io::Result<PressureWatch> {
    #[cfg(feature = "record")]
    {
        set_dumper();
        memtrack_recorder::dumps::pressure::dump_at(signs, path.as_ref(), Default::default())
    }
    #[cfg(not(feature = "record"))]
    Ok(PressureWatch::of(signs))
}

#[cfg(feature = "record")]
fn set_dumper() {
    #[cfg(feature = "formats")]
    memtrack_recorder::recorder::session::set_dumper(crate::dump::DUMPER);
}

/// The handles without a recorder.
#[cfg(not(feature = "record"))]
mod off {
    use memtrack_model::pressure::{Pressure, WatchedSign};

    /// Dumps when memory runs low: none without a recorder.
    #[must_use = "with the feature `record`, the memory is watched only while this value exists"]
    #[derive(Debug)]
    pub struct PressureWatch(Vec<WatchedSign>);

    impl PressureWatch {
        pub(super) fn of(signs: impl IntoIterator<Item = Pressure>) -> Self {
            let why = "memtrack-core was built without the feature `record`";
            Self(signs.into_iter().map(|sign| WatchedSign::new(sign, Err(why.to_owned()))).collect())
        }

        /// Returns the signs that were requested, each with the reason why nothing is watched.
        pub fn signs(&self) -> &[WatchedSign] {
            &self.0
        }
    }

    /// Dumps on SIGUSR2: none without a recorder.
    #[must_use = "with the feature `record`, the signal is handled only while this value exists"]
    #[derive(Debug)]
    pub struct SignalWatch(pub(super) ());
}
