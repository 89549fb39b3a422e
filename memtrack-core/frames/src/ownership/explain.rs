//! Explains why a report names a line, by giving the owner of each frame in a stack and the rule that determined it.

use super::{JudgedFrame, Owner, Rules, short, stack_owner};
use memtrack_model::Frame;
use memtrack_model::units::{printable, shorten_middle};
use serde::Serialize;

/// The owner of each frame in a stack, with the rule that determined it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Explanation {
    /// The text by which reports name the stack.
    pub named: String,
    /// The innermost frame in the user's code; null if there is none.
    pub mine: Option<Frame>,
    /// The framework function that the frame in `mine` called; null if there is none.
    pub calls: Option<Frame>,
    /// The frames of the stack, innermost first, each with its owner.
    pub frames: Vec<ExplainedFrame>,
}

/// A frame, with its owner and the rule that determined it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ExplainedFrame {
    /// The frame.
    #[serde(flatten)]
    pub frame: Frame,
    /// The frame's owner: `mine`, `framework` or `noise`.
    pub owner: Owner,
    /// The rule that determined the owner, as text.
    pub rule: String,
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
            ExplainedFrame { frame: judged.frame.clone(), owner, rule: rule.to_owned() }
        };
        Explanation {
            named: owned.to_string(),
            frames: stack_owner::frame_owners(&judged).into_iter().zip(&judged).map(row).collect(),
            mine: owned.mine,
            calls: owned.called,
        }
    }
}

impl Explanation {
    /// Returns one line of about `width` characters per frame, with `>` before the frame that is shown in reports.
    pub fn lines(&self, width: Option<usize>) -> Vec<String> {
        let shown = self.frames.iter().position(|explained| explained.owner == Owner::Mine);
        let line = |(place, explained): (usize, &ExplainedFrame)| {
            let mark = if shown == Some(place) { '>' } else { ' ' };
            let ExplainedFrame { frame, owner, rule } = explained;
            let line = format!("{mark} {:<9}  {}  ({rule})", owner.name(), short(frame));
            printable(&width.map_or_else(|| line.clone(), |width| shorten_middle(&line, width)))
        };
        self.frames.iter().enumerate().map(line).collect()
    }
}
