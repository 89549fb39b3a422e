//! Keeps the tables of a snapshot that the recorder made out of the recording when the program drops them: they were not
//! recorded when they were made. The first and the last field of a [`Snapshot`](super::Snapshot) are what drops first and
//! last, and what lies between them is dropped as memtrack's own.

use std::sync::OnceLock;

/// The first field.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct OursBegins(bool);

/// The last field.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct OursEnds(bool);

/// What runs before and after the tables of a marked snapshot are dropped, while the recorder is in the program.
static AROUND: OnceLock<(fn(), fn())> = OnceLock::new();

/// Has `begin` and `end` run around the drop of every snapshot that is marked as memtrack's own. The recorder's first
/// call counts.
#[doc(hidden)]
pub fn dropped_between(begin: fn(), end: fn()) {
    // Only the recorder calls this, always with the same functions.
    let _ = AROUND.set((begin, end));
}

impl super::Snapshot {
    /// Marks the tables as memtrack's own, also while the program drops them.
    #[doc(hidden)]
    #[must_use]
    pub fn marked_as_ours(mut self) -> Self {
        self.ours_begins.0 = true;
        self.ours_ends.0 = true;
        self
    }
}

impl Drop for OursBegins {
    fn drop(&mut self) {
        if let (true, Some((begin, _))) = (self.0, AROUND.get()) {
            begin();
        }
    }
}

impl Drop for OursEnds {
    fn drop(&mut self) {
        if let (true, Some((_, end))) = (self.0, AROUND.get()) {
            end();
        }
    }
}

macro_rules! of_the_program {
    ($($name:ident)*) => {
        $(
            /// A copy is the program's: it was recorded when it was made.
            impl Clone for $name {
                fn clone(&self) -> Self {
                    Self(false)
                }
            }

            /// Whose memory it is makes no difference to what a snapshot says.
            impl PartialEq for $name {
                fn eq(&self, _: &Self) -> bool {
                    true
                }
            }
        )*
    };
}

of_the_program!(OursBegins OursEnds);
