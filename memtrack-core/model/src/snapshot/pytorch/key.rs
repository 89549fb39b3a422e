//! The keys that PyTorch writes. A [`Key`] determines the column of a value and the kind of that column. Other keys are
//! kept unchanged, in the records' shapes and side tables.

use crate::event::Action;
use crate::snapshot::StringId;

/// The content of a column in [`super::Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An unsigned 64-bit integer.
    Unsigned,
    /// A signed 64-bit integer.
    Signed,
    /// `True` or `False`.
    Flag,
    /// A string.
    Text,
    /// A list of frames, as a stack.
    Stack,
    /// A pair of integers that identifies a pool, as the number of the pool.
    Pool,
    /// The rows of a segment's blocks.
    Rows,
    /// No column. Each value is kept as an [`ExactValue`](super::ExactValue).
    Other,
}

macro_rules! keys {
    ($($name:ident = $text:literal : $kind:ident, $doc:literal;)*) => {
        /// A key that memtrack knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Key {
            $(#[doc = $doc] $name,)*
        }

        impl Key {
            /// All keys, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the key as it is written.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the kind of the key's column.
            pub const fn kind(self) -> Kind {
                match self { $(Self::$name => Kind::$kind,)* }
            }
        }
    };
}

keys! {
    Segments = "segments": Other, "The segments of all devices.";
    DeviceTraces = "device_traces": Other, "The events, a list per device.";
    AllocatorSettings = "allocator_settings": Other, "The allocator's configuration.";
    ExternalAnnotations = "external_annotations": Other, "Annotated ranges of the profiler.";
    HostSegments = "host_segments": Other, "Pinned host memory.";
    HostTraces = "host_traces": Other, "Events of pinned host memory.";
    Device = "device": Signed, "A device ordinal; −1 is the host.";
    Address = "address": Unsigned, "Where a segment or block begins.";
    TotalSize = "total_size": Unsigned, "Bytes of a segment.";
    AllocatedSize = "allocated_size": Unsigned, "Bytes of a segment's allocated blocks.";
    ActiveSize = "active_size": Unsigned, "Bytes of a segment's allocated blocks, and of blocks whose free is pending.";
    RequestedSize = "requested_size": Unsigned, "Bytes that the client requested.";
    Stream = "stream": Unsigned, "A raw stream handle.";
    SegmentType = "segment_type": Text, "`small` or `large`.";
    SegmentPoolId = "segment_pool_id": Pool, "The pool that owns a segment.";
    IsExpandable = "is_expandable": Flag, "Whether the segment can grow.";
    Frames = "frames": Stack, "A stack, innermost first.";
    Blocks = "blocks": Rows, "The blocks of a segment, in address order.";
    Size = "size": Unsigned, "Bytes of a block or event.";
    State = "state": Text, "The state of a block.";
    History = "history": Other, "The allocations that a block served (PyTorch up to 2.0).";
    ForwardFrames = "forward_frames": Other, "Text lines of the forward stack of a backward allocation.";
    Category = "category": Text, "The purpose of the memory according to a profile.";
    Action = "action": Text, "The kind of an event.";
    Addr = "addr": Unsigned, "The address of an event.";
    DeviceFree = "device_free": Unsigned, "Free bytes of the device when memory ran out.";
    TimeUs = "time_us": Unsigned, "Microseconds since the Unix epoch.";
    CompileContext = "compile_context": Text, "The compiled region that was running.";
    UserMetadata = "user_metadata": Text, "A string set by the user.";
    PoolId = "pool_id": Pool, "The pool of an event.";
    InternalMetadata = "internal_metadata": Text, "A tag set by the allocator.";
    Name = "name": Text, "The function of a frame, or the label of an annotation.";
    Filename = "filename": Text, "The file of a frame.";
    Line = "line": Unsigned, "The line of a frame, or an offset in a binary.";
    Stage = "stage": Text, "`START` or `END` of an annotation.";
    FxNodeOp = "fx_node_op": Text, "The operation of an FX node.";
    FxNodeName = "fx_node_name": Text, "The name of an FX node.";
    FxNodeTarget = "fx_node_target": Text, "The target of an FX node.";
    FxOriginalTrace = "fx_original_trace": Text, "The stack trace from which an FX node was traced.";
}

impl Key {
    /// Returns the key with this id in a table that starts with the [`vocabulary`].
    #[inline]
    pub fn of(id: StringId) -> Option<Self> {
        // Id 0 is the empty string.
        Self::ALL.get(id.index().wrapping_sub(1)).copied()
    }

    /// Returns the key's id in a table that starts with the [`vocabulary`].
    pub const fn id(self) -> StringId {
        StringId(self as u32 + 1)
    }
}

/// Returns the strings that every table of the PyTorch reader starts with, from id 1 on. All keys come first, so that
/// an id determines the [`Key`] without comparing bytes. They are followed by PyTorch's actions.
pub fn vocabulary() -> impl Iterator<Item = &'static str> {
    let keys = Key::ALL.iter().map(|key| key.name());
    keys.chain(Action::ALL.iter().filter(|&&action| action != Action::Other).map(|action| action.name()))
}

/// Returns the action with this id in a table that starts with the [`vocabulary`].
#[inline]
pub fn action_of(id: StringId) -> Option<Action> {
    let number = id.index().checked_sub(Key::ALL.len() + 1)?;
    u8::try_from(number).ok().and_then(Action::from_number).filter(|&action| action != Action::Other)
}

/// Returns the id of an action's name in a table that starts with the [`vocabulary`].
pub const fn id_of(action: Action) -> StringId {
    StringId((Key::ALL.len() + 1) as u32 + action as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_identify_keys_and_actions() {
        assert!(Key::ALL.len() <= 64, "shapes keep the keys in a 64-bit mask");
        for &key in Key::ALL {
            assert_eq!(Key::of(key.id()), Some(key));
            assert_eq!(action_of(key.id()), None);
        }
        for action in Action::ALL.into_iter().filter(|&action| action != Action::Other) {
            assert_eq!(action_of(id_of(action)), Some(action));
            assert_eq!(Key::of(id_of(action)), None);
        }
        assert_eq!((Key::of(StringId::EMPTY), action_of(StringId(9_999))), (None, None));
    }
}
