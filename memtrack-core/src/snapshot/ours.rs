//! Keeps the tables of a snapshot that the recorder made out of the recording when the program drops them: they were not
//! recorded when they were made. The first and the last field of a [`Snapshot`](super::Snapshot) are what drops first and
//! last, and what lies between them is dropped as memtrack's own.

/// The first field.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct OursBegins(bool);

/// The last field.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct OursEnds(bool);

impl super::Snapshot {
    /// Says that the tables are memtrack's own, also while the program drops them.
    #[cfg(feature = "record")]
    pub(crate) fn marked_as_ours(mut self) -> Self {
        self.ours_begins.0 = true;
        self.ours_ends.0 = true;
        self
    }
}

impl Drop for OursBegins {
    fn drop(&mut self) {
        #[cfg(feature = "record")]
        if self.0 {
            crate::reentry::begin();
        }
        #[cfg(not(feature = "record"))]
        debug_assert!(!self.0, "nothing is recorded");
    }
}

impl Drop for OursEnds {
    fn drop(&mut self) {
        #[cfg(feature = "record")]
        if self.0 {
            crate::reentry::end();
        }
        #[cfg(not(feature = "record"))]
        debug_assert!(!self.0, "nothing is recorded");
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
