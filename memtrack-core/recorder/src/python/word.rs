//! The form in which a recorded stack contains Python frames until the command has moved them to their places.

/// The maximum number of Python frames in a stack. If a stack is deeper, its innermost frames are kept.
pub const MAX_PYTHON_FRAMES: usize = 128;

/// A Python frame as a word of a recorded stack. No instruction has such an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameWord {
    /// The number of the frame's location; 0 if the frame has no name, because it is not running yet or has no code.
    pub location: u32,
    /// Whether C called this frame: the frame is the outermost one of its call of the evaluator.
    pub is_entry: bool,
}

impl FrameWord {
    const TAG: u64 = 0xa7 << 56;
    const IS_ENTRY: u64 = 1 << 40;

    /// Returns the word.
    pub const fn to_word(self) -> u64 {
        Self::TAG | if self.is_entry { Self::IS_ENTRY } else { 0 } | self.location as u64
    }

    /// Returns the frame in a word, or `None` for the address of an instruction.
    pub const fn from_word(word: u64) -> Option<Self> {
        if word & !(Self::IS_ENTRY | u32::MAX as u64) != Self::TAG {
            return None;
        }
        Some(Self { location: word as u32, is_entry: word & Self::IS_ENTRY != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_distinguished_from_addresses() {
        for frame in [
            FrameWord { location: 1, is_entry: false },
            FrameWord { location: u32::MAX, is_entry: true },
            FrameWord { location: 0, is_entry: true },
        ] {
            assert_eq!(FrameWord::from_word(frame.to_word()), Some(frame));
        }
        for address in [0, 0x7fff_ffff_f000, 1 << 62, u64::MAX, 0xffff_ffff_ff60_0000, (0xa7 << 56) | 1 << 45]
        {
            assert_eq!(FrameWord::from_word(address), None, "{address:x}");
        }
    }
}
