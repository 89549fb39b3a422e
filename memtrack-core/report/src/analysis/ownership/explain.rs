//! Explains why a report names a line, by giving the owner of each frame in a stack and the rule that determined it.

use super::{JudgedFrame, Owner, Rules, StackOwner, short, stack_owner};
use memtrack_model::Frame;
use memtrack_model::answer::FrameAnswer;
use memtrack_model::units::{printable, shorten_middle};
use serde::Serialize;

/// The owner of each frame in a stack, with the rule that determined it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The owner, the rule and the frame itself, for each frame, innermost first.
    pub frames: Vec<(Owner, String, Frame)>,
    /// The line and the called function by which reports describe the stack.
    pub owned: StackOwner,
}

impl Rules {
    /// Explains the result of [`Rules::owner`] for a stack, innermost frame first.
    pub fn explain<'a>(&self, stack: impl IntoIterator<Item = &'a Frame>) -> Explanation {
        let judged: Vec<JudgedFrame> = stack.into_iter().map(|frame| JudgedFrame::new(frame, self)).collect();
        let judged: Vec<&JudgedFrame> = judged.iter().collect();
        let owned = stack_owner::find_owner(&judged);
        let in_torch = judged.iter().any(|judged| judged.is_torch);
        let row = |(owner, judged): (Owner, &&JudgedFrame)| {
            let rule = match (owner, judged.verdict.owner) {
                (Owner::Framework, Owner::Mine) => {
                    "a native function without a source file, in a stack whose Python, PyTorch or own \
                     frames have them"
                }
                (Owner::Mine, Owner::Framework) => "the program of `python -c`",
                (Owner::Noise, Owner::Mine) if in_torch && judged.verdict.guessed => {
                    "a C name without a source file, in a PyTorch stack"
                }
                (Owner::Noise, Owner::Mine | Owner::Framework) => "inside the program's own allocator",
                _ => &*judged.verdict.rule,
            };
            (owner, rule.to_owned(), judged.frame.clone())
        };
        Explanation {
            frames: stack_owner::frame_owners(&judged).into_iter().zip(&judged).map(row).collect(),
            owned,
        }
    }
}

impl Explanation {
    /// Returns one line of about `width` characters per frame, with `>` before the frame that is shown in reports.
    pub fn lines(&self, width: Option<usize>) -> Vec<String> {
        let named = self.frames.iter().position(|(owner, ..)| *owner == Owner::Mine);
        let line = |(place, (owner, rule, frame)): (usize, &(Owner, String, Frame))| {
            let mark = if named == Some(place) { '>' } else { ' ' };
            let line = format!("{mark} {:<9}  {}  ({rule})", owner.name(), short(frame));
            printable(&width.map_or_else(|| line.clone(), |width| shorten_middle(&line, width)))
        };
        self.frames.iter().enumerate().map(line).collect()
    }

    /// Returns the explanation for JSON.
    pub fn answer(&self) -> ExplainedAnswer {
        let row = |(owner, rule, frame): &(Owner, String, Frame)| JudgedAnswer {
            frame: FrameAnswer::from(frame),
            owner: owner.name(),
            rule: rule.clone(),
        };
        ExplainedAnswer {
            named: self.owned.to_string(),
            mine: self.owned.mine.as_ref().map(FrameAnswer::from),
            calls: self.owned.called.as_ref().map(FrameAnswer::from),
            frames: self.frames.iter().map(row).collect(),
        }
    }
}

/// The owner of each frame in a stack, with the rule that determined it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ExplainedAnswer {
    /// The text by which reports name the stack.
    pub named: String,
    /// The innermost frame in the user's code; null if there is none.
    pub mine: Option<FrameAnswer>,
    /// The framework function that the frame in `mine` called; null if there is none.
    pub calls: Option<FrameAnswer>,
    /// The frames of the stack, innermost first, each with its owner.
    pub frames: Vec<JudgedAnswer>,
}

/// A frame, with its owner and the rule that determined it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct JudgedAnswer {
    /// The frame.
    #[serde(flatten)]
    pub frame: FrameAnswer,
    /// The frame's owner: `mine`, `framework` or `noise`.
    pub owner: &'static str,
    /// The rule that determined the owner, as text.
    pub rule: String,
}
