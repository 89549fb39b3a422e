//! Keeps the tables of a snapshot that the recorder made out of the recording when the program drops them: they were not
//! recorded when they were made. The first and the last field of a [`Snapshot`](super::Snapshot) are what drops first and
//! last, and what lies between them is dropped as memtrack's own.

/// The first field: what runs before the others are dropped.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct OursBegins(Option<fn()>);

/// The last field: what runs after the others were dropped.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct OursEnds(Option<fn()>);

impl super::Snapshot {
    /// Marks the tables as the recorder's own, also while the program drops them: `begin` runs before that, `end` after.
    #[doc(hidden)]
    #[must_use]
    pub fn dropped_between(mut self, begin: fn(), end: fn()) -> Self {
        self.ours_begins.0 = Some(begin);
        self.ours_ends.0 = Some(end);
        self
    }
}

impl Drop for OursBegins {
    fn drop(&mut self) {
        if let Some(begin) = self.0 {
            begin();
        }
    }
}

impl Drop for OursEnds {
    fn drop(&mut self) {
        if let Some(end) = self.0 {
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
                    Self(None)
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
