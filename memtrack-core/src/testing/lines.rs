//! Stacks as text: the line in the user's code for each stack, and the functions between that line and the test.

use memtrack_model::event::StackId;
use memtrack_recorder::accounts::Amount;

#[cfg(feature = "report")]
pub(super) use with_symbols::StackNames;
#[cfg(not(feature = "report"))]
pub(super) use without_symbols::StackNames;

/// The maximum number of functions printed per stack.
#[cfg(feature = "report")]
const MAX_FRAMES: usize = 6;

/// A line of code and its allocations.
pub(super) struct AllocatingLine {
    pub(super) name: String,
    pub(super) amount: Amount,
    /// The stack of the line's largest allocations, innermost function first.
    pub(super) stack: Vec<String>,
}

/// Groups the allocations of stacks by line and sorts the lines by bytes or by the number of blocks, largest first.
pub(super) fn group_by_line(
    amounts: &[(StackId, Amount)],
    by_count: bool,
    names: &mut StackNames,
) -> Vec<AllocatingLine> {
    let rank = |amount: Amount| if by_count { amount.blocks } else { amount.bytes };
    let mut amounts = amounts.to_vec();
    // If amounts are equal, the stack that occurred first comes first.
    amounts.sort_by_key(|&(stack, amount)| (std::cmp::Reverse(rank(amount)), stack.0));
    let mut lines: Vec<(AllocatingLine, StackId)> = Vec::new();
    let mut indices = std::collections::HashMap::new();
    for (stack, amount) in amounts {
        let (line, name) = names.line(stack);
        let index = *indices.entry(line).or_insert_with(|| {
            lines.push((AllocatingLine { name, amount: Amount::default(), stack: Vec::new() }, stack));
            lines.len() - 1
        });
        let line = &mut lines[index].0;
        line.amount.bytes += amount.bytes;
        line.amount.blocks += amount.blocks;
    }
    // The sums per line may be in a different order than the stacks. The sort is stable.
    lines.sort_by_key(|(line, _)| std::cmp::Reverse(rank(line.amount)));
    let with_stack =
        |(line, stack): (AllocatingLine, StackId)| AllocatingLine { stack: names.stack(stack), ..line };
    lines.into_iter().map(with_stack).collect()
}

#[cfg(feature = "report")]
mod with_symbols {
    use super::MAX_FRAMES;
    use memtrack_frames::ownership::{Owner, Rules, short};
    use memtrack_frames::trim::is_allocator_entry;
    use memtrack_model::Frame;
    use memtrack_model::event::StackId;
    use memtrack_recorder::accounts;
    use memtrack_symbols::Symbolizer;
    use memtrack_symbols::names::plain_path;
    use std::collections::HashMap;
    use std::rc::Rc;

    /// Functions that create a value once. The value then lives until the program or the thread ends.
    const ONE_TIME_INITIALIZERS: [&str; 10] = [
        "std::sync::lazy_lock::",
        "std::sync::once_lock::",
        "std::sync::once::",
        "std::sync::poison::once::",
        "std::sys::sync::once::",
        "std::sys::thread_local::",
        "std::thread::current::",
        "once_cell::",
        "lazy_static::",
        "parking_lot_core::parking_lot::",
    ];
    /// The one-time initializers of cells that can be fields as well as statics. If several blocks with the same stack
    /// remain, the cells must be fields, so the blocks count as leaks.
    const CELL_INITIALIZERS: [&str; 2] = ["std::sync::once_lock::", "once_cell::"];
    /// Types in `once_cell` that are hardly ever fields.
    const LAZY_TYPES: [&str; 2] = ["once_cell::sync::Lazy", "once_cell::unsync::Lazy"];

    /// A lookup of the functions and lines in stacks.
    pub(in crate::testing) struct StackNames {
        symbols: Symbolizer,
        rules: Rules,
        stacks: HashMap<StackId, Rc<[Frame]>>,
    }

    impl StackNames {
        pub(in crate::testing) fn new() -> Self {
            Self {
                symbols: Symbolizer::new(&accounts::modules()),
                rules: Rules::new(),
                stacks: HashMap::new(),
            }
        }

        fn frames(&mut self, stack: StackId) -> Rc<[Frame]> {
            let symbols = &mut self.symbols;
            let frames = || symbols.stack(&accounts::addresses(stack)).into();
            Rc::clone(self.stacks.entry(stack).or_insert_with(frames))
        }

        /// Returns the line in the user's code for a stack as two texts: a key for grouping, and the line with the called
        /// function for display.
        pub(in crate::testing) fn line(&mut self, stack: StackId) -> (String, String) {
            if stack.is_none() {
                let text = "no stack was kept: there are too many different ones".to_owned();
                return (text.clone(), text);
            }
            let frames = self.frames(stack);
            let owned = self.rules.owner(frames.iter());
            let trimmed = |text: String| text.trim_end().to_owned();
            (trimmed(owned.line()), trimmed(owned.to_string()))
        }

        /// Returns the user's functions between the allocation and the test, innermost first. If there are none,
        /// returns all functions that are not noise.
        pub(in crate::testing) fn stack(&mut self, stack: StackId) -> Vec<String> {
            let frames = self.frames(stack);
            // Omit the frames of the program's allocator, including those of memtrack.
            let entry = frames.iter().rposition(|frame| is_allocator_entry(&frame.function));
            let inside = frames[entry.map_or(0, |entry| entry + 1)..].iter();
            let inside = inside
                .take_while(|frame| !path_without_generics(frame).starts_with("memtrack_core::testing::"));
            // An inlined closure may have no name.
            let named = inside.filter(|frame| !path_without_generics(frame).is_empty());
            let with_owners: Vec<_> = named.map(|frame| (frame, self.rules.judge(frame).owner)).collect();
            let has_user_code = with_owners.iter().any(|(_, owner)| *owner == Owner::Mine);
            let is_shown = |owner| if has_user_code { owner == Owner::Mine } else { owner != Owner::Noise };
            let shown: Vec<String> = with_owners
                .iter()
                .filter(|(_, owner)| is_shown(*owner))
                .map(|(frame, _)| short(frame))
                .collect();
            let more = shown.len().saturating_sub(MAX_FRAMES);
            let tail = (more > 0).then(|| format!("… {more} more"));
            shown.into_iter().take(MAX_FRAMES).chain(tail).collect()
        }

        /// Returns whether a stack's `blocks` that are still live are expected rather than leaked, either because they
        /// were created once or because the stack matches one of these globs.
        pub(in crate::testing) fn is_expected(
            &mut self,
            stack: StackId,
            blocks: u64,
            globs: &[String],
        ) -> bool {
            let frames = self.frames(stack);
            let ignored = globs.iter().map(|glob| (Rules::new().mine(glob.as_str()), format!("mine {glob}")));
            let ignored: Vec<_> = ignored.collect();
            if frames
                .iter()
                .any(|frame| ignored.iter().any(|(rules, rule)| rules.judge(frame).rule == *rule.as_str()))
            {
                return true;
            }
            let paths: Vec<String> = frames.iter().map(path_without_generics).collect();
            let has = |prefixes: &[&str]| {
                paths.iter().any(|path| prefixes.iter().any(|prefix| path.starts_with(prefix)))
            };
            has(&ONE_TIME_INITIALIZERS) && (blocks == 1 || !has(&CELL_INITIALIZERS) || has(&LAZY_TYPES))
        }
    }

    /// Returns the path of a frame's function without generics.
    fn path_without_generics(frame: &Frame) -> String {
        plain_path(&frame.function)
    }
}

#[cfg(not(feature = "report"))]
mod without_symbols {
    use memtrack_model::event::StackId;
    use memtrack_recorder::accounts;

    /// A substitute in builds without the feature `report`, which formats stacks as addresses.
    pub(in crate::testing) struct StackNames;

    impl StackNames {
        pub(in crate::testing) fn new() -> Self {
            Self
        }

        pub(in crate::testing) fn line(&mut self, stack: StackId) -> (String, String) {
            let line =
                format!("stack {}, whose functions are named with memtrack-core's feature `report`", stack.0);
            (line.clone(), line)
        }

        pub(in crate::testing) fn stack(&mut self, stack: StackId) -> Vec<String> {
            accounts::addresses(stack).iter().map(|address| format!("{address:#x}")).collect()
        }

        /// Returns false, because the functions in a stack are unknown.
        pub(in crate::testing) fn is_expected(&mut self, _: StackId, _: u64, _: &[String]) -> bool {
            false
        }
    }
}
