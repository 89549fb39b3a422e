//! The part of Perfetto's trace format that memtrack writes, with the names and field numbers of its public definitions
//! (`protos/perfetto/trace/`). `tests/tools/perfetto_trace.py` reads the result with Perfetto's own definitions, and
//! fails if they lack one of the fields.

use prost::Message;

/// A packet in a trace. A file is a sequence of packets.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    pub(crate) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(crate) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "12")]
    pub(crate) interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub(crate) sequence_flags: Option<u32>,
    #[prost(oneof = "Data", tags = "6, 11, 37, 60")]
    pub(crate) data: Option<Data>,
}

/// The content of a packet.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Data {
    #[prost(message, tag = "6")]
    ClockSnapshot(ClockSnapshot),
    #[prost(message, tag = "11")]
    TrackEvent(TrackEvent),
    #[prost(message, tag = "37")]
    ProfilePacket(ProfilePacket),
    #[prost(message, tag = "60")]
    TrackDescriptor(TrackDescriptor),
}

/// The flag in `TracePacket.SequenceFlags` for packets after which earlier interned entries are no longer valid.
pub(crate) const INCREMENTAL_STATE_CLEARED: u32 = 1;
/// The flag in `TracePacket.SequenceFlags` for packets that refer to earlier interned entries.
pub(crate) const NEEDS_INCREMENTAL_STATE: u32 = 2;

/// The readings of several clocks at the same time.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(crate) clocks: Vec<Clock>,
}

/// The reading of one clock.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) timestamp: Option<u64>,
}

/// The `BuiltinClock` that counts nanoseconds since the Unix epoch.
pub(crate) const REALTIME: u32 = 1;
/// The `BuiltinClock` for heap dumps.
pub(crate) const MONOTONIC_COARSE: u32 = 4;
/// The `BuiltinClock` for the timestamps of all packets.
pub(crate) const BOOTTIME: u32 = 6;

/// A track, which is a row in Perfetto's timeline.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(crate) counter: Option<CounterDescriptor>,
    #[prost(int32, optional, tag = "11")]
    pub(crate) child_ordering: Option<i32>,
    #[prost(int32, optional, tag = "12")]
    pub(crate) sibling_order_rank: Option<i32>,
    #[prost(string, optional, tag = "14")]
    pub(crate) description: Option<String>,
}

/// The `TrackDescriptor.ChildTracksOrdering` that orders tracks by `sibling_order_rank`.
pub(crate) const ORDER_EXPLICIT: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(crate) process_name: Option<String>,
    #[prost(string, repeated, tag = "8")]
    pub(crate) process_labels: Vec<String>,
}

/// The unit of a counter track.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CounterDescriptor {
    #[prost(int32, optional, tag = "3")]
    pub(crate) unit: Option<i32>,
}

/// The `CounterDescriptor.Unit` for bytes.
pub(crate) const UNIT_SIZE_BYTES: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub(crate) category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    pub(crate) r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub(crate) name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) track_uuid: Option<u64>,
    #[prost(int64, optional, tag = "30")]
    pub(crate) counter_value: Option<i64>,
}

/// The `TrackEvent.Type` for the start of a slice.
pub(crate) const SLICE_BEGIN: i32 = 1;
/// The `TrackEvent.Type` for the end of a track's innermost slice.
pub(crate) const SLICE_END: i32 = 2;
/// The `TrackEvent.Type` for an event without a duration.
pub(crate) const INSTANT: i32 = 3;
/// The `TrackEvent.Type` for a counter value.
pub(crate) const COUNTER: i32 = 4;

/// A detail of an event.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DebugAnnotation {
    #[prost(string, optional, tag = "10")]
    pub(crate) name: Option<String>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) uint_value: Option<u64>,
}

/// Interned entries, to which later packets in the sequence refer by ID.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(crate) event_categories: Vec<Name>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) event_names: Vec<Name>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) function_names: Vec<InternedString>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) frames: Vec<Frame>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) callstacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "16")]
    pub(crate) build_ids: Vec<InternedString>,
    #[prost(message, repeated, tag = "17")]
    pub(crate) mapping_paths: Vec<InternedString>,
    #[prost(message, repeated, tag = "18")]
    pub(crate) source_paths: Vec<InternedString>,
    #[prost(message, repeated, tag = "19")]
    pub(crate) mappings: Vec<Mapping>,
}

/// `EventName` and `EventCategory`, which have the same fields.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Name {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
}

/// A string that frames and mappings refer to.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InternedString {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) str: Option<Vec<u8>>,
}

/// A frame, given by a function and a position in it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Frame {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) function_name_id: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) mapping_id: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) rel_pc: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) source_path_iid: Option<u64>,
    #[prost(uint32, optional, tag = "6")]
    pub(crate) line_number: Option<u32>,
}

/// A loaded binary, or the file of a script.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mapping {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) build_id: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) start: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) end: Option<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    pub(crate) path_string_ids: Vec<u64>,
}

/// A stack, outermost frame first.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Callstack {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub(crate) frame_ids: Vec<u64>,
}

/// A heap dump, or a part of one.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProfilePacket {
    #[prost(message, repeated, tag = "5")]
    pub(crate) process_dumps: Vec<ProcessHeapSamples>,
    #[prost(bool, optional, tag = "6")]
    pub(crate) continued: Option<bool>,
    #[prost(uint64, optional, tag = "7")]
    pub(crate) index: Option<u64>,
}

/// The allocations and frees on one heap up to a given moment, by stack.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessHeapSamples {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) pid: Option<u64>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<HeapSample>,
    #[prost(uint64, optional, tag = "9")]
    pub(crate) timestamp: Option<u64>,
    #[prost(string, optional, tag = "11")]
    pub(crate) heap_name: Option<String>,
    #[prost(uint64, optional, tag = "12")]
    pub(crate) sampling_interval_bytes: Option<u64>,
}

/// The allocations and frees of one stack since the start, rather than since the last dump.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeapSample {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) callstack_id: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) self_allocated: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) self_freed: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) alloc_count: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) free_count: Option<u64>,
}
