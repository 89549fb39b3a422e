//! The Firefox Profiler's processed profile format, version 55, as documented by the profiler's types, for use in tests.
//! The types in this module have exactly the fields that memtrack writes.

use serde::Deserialize;
use serde_json::Value;

/// A profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Profile {
    pub(super) meta: Meta,
    pub(super) libs: Vec<Value>,
    pub(super) threads: Vec<Thread>,
    pub(super) pages: Vec<Value>,
    pub(super) profiler_overhead: Vec<Value>,
    pub(super) counters: Vec<Counter>,
}

/// Data about the whole profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "some fields are only read to show that they are there")]
pub(super) struct Meta {
    pub(super) categories: Vec<Category>,
    debug: bool,
    extensions: Value,
    interval: f64,
    pub(super) preprocessed_profile_version: u32,
    process_type: u32,
    pub(super) product: String,
    sample_units: Value,
    pub(super) start_time: f64,
    pub(super) symbolicated: bool,
    paused_ranges: Vec<Value>,
    version: u32,
    uses_only_one_stack_type: bool,
    source_code_is_not_on_searchfox: bool,
    pub(super) marker_schema: Vec<Schema>,
    #[serde(default)]
    pub(super) initial_visible_threads: Vec<usize>,
}

/// A category of frames and markers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only read to show that they are there")]
pub(super) struct Category {
    name: String,
    color: String,
    pub(super) subcategories: Vec<String>,
}

/// The way in which a type of marker is displayed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "some fields are only read to show that they are there")]
pub(super) struct Schema {
    pub(super) name: String,
    display: Vec<String>,
    chart_label: Option<String>,
    table_label: Option<String>,
    description: Option<String>,
    fields: Vec<Value>,
}

/// A thread with its tables.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "some fields are only read to show that they are there")]
pub(super) struct Thread {
    pub(super) frame_table: Frames,
    pub(super) func_table: Functions,
    pub(super) markers: Markers,
    pub(super) name: String,
    pub(super) is_main_thread: bool,
    native_symbols: Value,
    paused_ranges: Vec<Value>,
    pub(super) pid: String,
    pub(super) process_name: String,
    process_shutdown_time: Option<f64>,
    process_startup_time: f64,
    process_type: String,
    register_time: f64,
    resource_table: Value,
    pub(super) samples: Samples,
    pub(super) native_allocations: Option<Allocations>,
    pub(super) stack_table: Stacks,
    pub(super) string_array: Vec<String>,
    tid: String,
    unregister_time: Option<f64>,
    show_markers_in_timeline: bool,
}

/// The table of frames. Each frame is a function and a position in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "some fields are only read to show that they are there")]
pub(super) struct Frames {
    pub(super) length: usize,
    address: Vec<i64>,
    inline_depth: Vec<u32>,
    pub(super) category: Vec<usize>,
    pub(super) subcategory: Vec<usize>,
    pub(super) func: Vec<usize>,
    native_symbol: Vec<Option<usize>>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<u64>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
}

/// The table of functions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "some fields are only read to show that they are there")]
pub(super) struct Functions {
    pub(super) length: usize,
    pub(super) name: Vec<usize>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    resource: Vec<i64>,
    file_name: Vec<Option<usize>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
}

/// The table of markers, which are intervals and moments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Markers {
    pub(super) length: usize,
    pub(super) category: Vec<usize>,
    pub(super) data: Vec<Payload>,
    pub(super) end_time: Vec<Option<f64>>,
    pub(super) name: Vec<usize>,
    /// 0 for a moment, 1 for an interval.
    pub(super) phase: Vec<u8>,
    pub(super) start_time: Vec<Option<f64>>,
}

/// The data of a marker in addition to its name. Texts are indices into the string table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, tag = "type")]
pub(super) enum Payload {
    /// An interval during which a scope or range was running.
    #[serde(rename = "memtrack-running")]
    Running {
        /// The kind of scope or range.
        kind: usize,
    },
    /// A moment at which memory ran out or that the program marked.
    #[serde(rename = "memtrack-moment")]
    Moment {
        /// Further details as text.
        detail: usize,
    },
}

/// Samples over time. memtrack writes none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "some fields are only read to show that they are there")]
pub(super) struct Samples {
    pub(super) length: usize,
    pub(super) weight_type: String,
    stack: Vec<Option<usize>>,
    time_deltas: Vec<f64>,
    weight: Vec<i64>,
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: Vec<Option<f64>>,
}

/// Allocations, and frees with negative bytes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Allocations {
    pub(super) time: Vec<f64>,
    pub(super) weight: Vec<i64>,
    pub(super) weight_type: String,
    pub(super) stack: Vec<Option<usize>>,
    pub(super) memory_address: Vec<u64>,
    pub(super) thread_id: Vec<u64>,
    pub(super) length: usize,
}

/// The table of stacks, which is a tree. Each stack is a frame and the caller's stack.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stacks {
    pub(super) length: usize,
    pub(super) prefix: Vec<Option<usize>>,
    pub(super) frame: Vec<usize>,
}

/// A counter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Counter {
    pub(super) category: String,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) main_thread_index: usize,
    pub(super) pid: String,
    pub(super) samples: Counts,
    pub(super) color: String,
}

/// The values of a counter. Each value is the growth and the number of operations since the previous value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Counts {
    pub(super) length: usize,
    pub(super) count: Vec<f64>,
    pub(super) number: Vec<u32>,
    pub(super) time_deltas: Vec<f64>,
}
