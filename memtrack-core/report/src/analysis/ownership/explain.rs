//! Why a report names the line it names: of each frame of a stack, whose it is and by which rule.

use super::{Judged, Owned, Owner, Rules, owned, short};
use crate::analysis::top::json::frame as frame_json;
use memtrack_model::Frame;
use memtrack_model::units::{printable, shorten_middle};
use serde_json::{Value, json};

/// A stack whose frames are judged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explained {
    /// Of each frame, innermost first: whose it is, by which rule, and the frame.
    pub frames: Vec<(Owner, String, Frame)>,
    /// What that makes of the stack.
    pub owned: Owned,
}

impl Rules {
    /// Explains what [`Rules::owner`] says of a stack, innermost frame first.
    pub fn explain<'a>(&self, stack: impl IntoIterator<Item = &'a Frame>) -> Explained {
        let judged: Vec<Judged> = stack.into_iter().map(|frame| Judged::new(frame, self)).collect();
        let judged: Vec<&Judged> = judged.iter().collect();
        let owned = owned::of(&judged);
        let row = |(owner, judged): (Owner, &&Judged)| {
            let rule = match (owner, judged.verdict.owner) {
                (Owner::Framework, Owner::Mine) => {
                    "a native function without a source file, in a program of Python"
                }
                (Owner::Noise, Owner::Mine | Owner::Framework) => "inside of the program's own allocator",
                _ => &*judged.verdict.rule,
            };
            (owner, rule.to_owned(), judged.frame.clone())
        };
        Explained { frames: owned::owners(&judged).into_iter().zip(&judged).map(row).collect(), owned }
    }
}

impl Explained {
    /// One line per frame of about `width` characters, with `>` before the frame that is named.
    pub fn lines(&self, width: Option<usize>) -> Vec<String> {
        let named = self.frames.iter().position(|(owner, ..)| *owner == Owner::Mine);
        let line = |(place, (owner, rule, frame)): (usize, &(Owner, String, Frame))| {
            let mark = if named == Some(place) { '>' } else { ' ' };
            let line = format!("{mark} {:<9}  {}  ({rule})", owner.name(), short(frame));
            printable(&width.map_or_else(|| line.clone(), |width| shorten_middle(&line, width)))
        };
        self.frames.iter().enumerate().map(line).collect()
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        let row = |(owner, rule, frame): &(Owner, String, Frame)| {
            let mut value = frame_json(frame);
            value["owner"] = owner.name().into();
            value["rule"] = rule.as_str().into();
            value
        };
        json!({ "owner": self.owned.to_string(), "frames": self.frames.iter().map(row).collect::<Vec<_>>() })
    }
}
