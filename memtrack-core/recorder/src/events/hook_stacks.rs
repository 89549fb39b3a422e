//! The stack of an event: captured, hashed, and looked up in the thread's cache, in the table that all threads share, or
//! interned there. Only a new stack does more: it waits for the unwind tables of binaries, and its Python frames get their
//! places.

use super::HookContext;
use super::kits::{self, Kit};
use crate::python;
use crate::settings;
use crate::signals::CancellationBlocked;
use crate::stack::capture::{StackBounds, load_binaries_of, relocate};
use crate::stack::intern;
use memtrack_model::event::StackId;

/// The maximum number of binaries whose unwind tables are read to capture one stack.
const MAX_NEW_BINARIES: u32 = 8;

impl HookContext {
    /// Returns the id of the calling thread's stack; [`StackId::NONE`] unless the stack is `wanted`.
    #[inline(always)]
    pub(crate) fn stack(self, wanted: bool) -> StackId {
        if !wanted {
            return StackId::NONE;
        }
        let local = self.thread.local();
        match &mut local.kit {
            Some(kit) => self.stack_with(kit, &local.bounds),
            None => self.first_stack(),
        }
    }

    /// Returns the return address in the innermost function of the program; `None` if the stack cannot be captured.
    pub(crate) fn innermost_address(self) -> Option<u64> {
        let local = self.thread.local();
        if local.kit.is_none() {
            self.first_stack();
        }
        let kit = local.kit.as_mut()?;
        self.with_room(|| {
            kit.refresh();
            let addresses = kit.capture.take(&self.registers, &local.bounds);
            settings::without_internal_code(addresses).last().copied()
        })
    }

    /// Captures the thread's first stack, or a stack of a thread that has no capture kit.
    #[cold]
    fn first_stack(self) -> StackId {
        let local = self.thread.local();
        if self.thread.is_shared() {
            local.kit = None;
        } else {
            local.kit = kits::acquire();
        }
        match &mut local.kit {
            Some(kit) => self.stack_with(kit, &local.bounds),
            None => {
                kits::with_shared(self.thread.thread_id().index(), |kit| self.stack_with(kit, &local.bounds))
            }
        }
    }

    #[inline(always)]
    fn stack_with(self, kit: &mut Kit, bounds: &StackBounds) -> StackId {
        kit.refresh();
        let addresses = settings::without_internal_code(kit.capture.take(&self.registers, bounds));
        let hash = kit.python.add_to(intern::hash(addresses));
        if let Some(stack) = kit.stacks.get(hash) {
            return stack;
        }
        self.uncached_stack(kit, bounds, hash)
    }

    /// Returns the id of a stack that is not in the thread's cache.
    #[cold]
    fn uncached_stack(self, kit: &mut Kit, bounds: &StackBounds, hash: u64) -> StackId {
        let _no_cancellation = CancellationBlocked::now();
        let known = self.recorder.stacks.find(hash).or_else(|| python::stack_with(hash, kit.generation()));
        match known {
            Some(stack) => {
                kit.stacks.insert(hash, stack);
                stack
            }
            None => self.new_stack(kit, bounds),
        }
    }

    /// Interns a new stack.
    fn new_stack(self, kit: &mut Kit, bounds: &StackBounds) -> StackId {
        let capture = |kit: &mut Kit| {
            settings::without_internal_code(kit.capture.take(&self.registers, bounds)).to_vec()
        };
        let mut addresses = capture(kit);
        // The stack is truncated at the first code whose unwind tables have not been read. After they are read, a new
        // capture continues to the next such code.
        for _ in 0..MAX_NEW_BINARIES {
            if !load_binaries_of(&addresses) {
                break;
            }
            // Otherwise the new walk would end where it meets the truncated one.
            kit.capture.forget();
            addresses = capture(kit);
        }
        let native = intern::hash(&addresses);
        // A binary that was just read may be the Python interpreter.
        let hash = kit.python.add_to(native);
        let has_python = hash != native && kit.python.insert_into(&mut addresses);
        // What Python's allocator takes from the heap passes through the hook of that allocator.
        let has_dropped = settings::drop_internal_code(&mut addresses);
        relocate(&mut addresses);
        let stack = if has_python || has_dropped {
            // Many instructions are on the same lines of Python, and their stacks are the same.
            let stack = self.recorder.stacks.insert(intern::hash(&addresses), &addresses);
            python::store(hash, kit.generation(), stack);
            stack
        } else {
            self.recorder.stacks.insert(hash, &addresses)
        };
        kit.stacks.insert(hash, stack);
        stack
    }
}
