//! A PyTorch snapshot small enough to check every number by hand.

/// One device with 3 MiB in two segments. The trace begins late, so two blocks are older than it: one of 1000 bytes,
/// whose free is event 0, and one of 1 048 000 bytes, whose free is requested in event 8 and pending at the end. The peak
/// is after event 4: those 1 048 000 bytes, 500 of `keep` and 1 000 000 of `work`; memory runs out right after that.
pub const SMALL: &str = r#"{
 "segments": [
  {"device": 0, "address": 4096, "total_size": 2097152, "allocated_size": 512, "active_size": 1049088,
   "stream": 0, "segment_type": "small", "segment_pool_id": [0, 0], "is_expandable": false, "frames": [], "blocks": [
    {"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated",
     "frames": [{"name": "keep", "filename": "/app/model.py", "line": 7}]},
    {"address": 4608, "size": 1024, "requested_size": 1000, "state": "inactive", "frames": []},
    {"address": 5632, "size": 1048576, "requested_size": 1048000, "state": "active_pending_free", "frames": []},
    {"address": 1054208, "size": 1047040, "requested_size": 0, "state": "inactive", "frames": []}]},
  {"device": 0, "address": 8388608, "total_size": 1048576, "allocated_size": 0, "active_size": 0,
   "stream": 3, "segment_type": "large", "segment_pool_id": [0, 1], "is_expandable": false, "frames": [], "blocks": [
    {"address": 8388608, "size": 1048576, "requested_size": 1000000, "state": "inactive", "frames": []}]}],
 "device_traces": [[
  {"action": "free_requested", "addr": 4608, "size": 1000, "stream": 0, "time_us": 1000000, "frames": []},
  {"action": "free_completed", "addr": 4608, "size": 1000, "stream": 0, "time_us": 1000001, "frames": []},
  {"action": "alloc", "addr": 4096, "size": 500, "stream": 0, "time_us": 1000100,
   "frames": [{"name": "keep", "filename": "/app/model.py", "line": 7}]},
  {"action": "segment_alloc", "addr": 8388608, "size": 1048576, "stream": 3, "time_us": 1500000, "frames": []},
  {"action": "alloc", "addr": 8388608, "size": 1000000, "stream": 3, "time_us": 1500000,
   "frames": [{"name": "work", "filename": "/app/ops.py", "line": 3},
              {"name": "keep", "filename": "/app/model.py", "line": 9}]},
  {"action": "oom", "device_free": 7, "size": 5368709120, "stream": 0, "time_us": 1600000, "frames": []},
  {"action": "free_requested", "addr": 8388608, "size": 1000000, "stream": 3, "time_us": 1700000, "frames": []},
  {"action": "free_completed", "addr": 8388608, "size": 1000000, "stream": 3, "time_us": 1700000, "frames": []},
  {"action": "free_requested", "addr": 5632, "size": 1048000, "stream": 0, "time_us": 1800000, "frames": []}
 ]]}"#;
