"""Parses random settings strings with PyTorch and memtrack: both must reject the same ones, and end with the same settings."""
import random
import sys

from common import arguments, run

KEYS = """backend max_split_size_mb max_non_split_rounding_mb garbage_collection_threshold roundup_power2_divisions
    expandable_segments expandable_segments_reserve expandable_segments_reserve_by_class large_segment_size_mb
    per_process_memory_fraction release_lock_on_cudamalloc release_lock_on_hipmalloc graph_capture_record_stream_reuse
    throw_on_cudamalloc_oom pinned_num_register_threads pinned_use_cuda_host_register pinned_use_hip_host_register
    pinned_free_catch_all pinned_use_background_threads pinned_max_round_threshold_mb pinned_max_cached_size_mb
    pinned_reserve_segment_size_mb""".split()
VALUES = """True False 0 1 2 3 4 8 20 64 100 128 256 0.5 0.9 1.0 1.5 -1 +5 12x 1e3 1e400 nan inf true native x 40G [ ] [1] []
    99999999999999999999 [256:2,512:4] [1:2,>:8] [>:4] [a:0.5,b:2G] [1:2 [1:2,] [3:2] [1:3] [0:2] [1:0] [1:-1] [1:x]""".split()
GOOD = {
    "max_split_size_mb": ["64", "200"],
    "roundup_power2_divisions": ["4", "[256:2,512:4]"],
    "garbage_collection_threshold": ["0.5"],
    "expandable_segments": ["True"],
    # Absurdly large values are clamped differently.
    "large_segment_size_mb": ["5", "20", "40", "x", "[40]"],
}


def text(r):
    if r.random() < 0.25:
        return "".join(r.choice(KEYS + VALUES + [",", ":", "[", "]"]) for _ in range(r.randrange(1, 9)))
    parts = []
    for _ in range(r.choice([1, 1, 2, 2, 3, 4])):
        key = r.choice(KEYS)
        only_good = key == "large_segment_size_mb" or key in GOOD and r.random() < 0.6
        value = r.choice(GOOD[key] if only_good else VALUES)
        parts.append(key + r.choice([":"] * 8 + ["", "::", " : ", ","]) + value)
    return r.choice([",", ",", ",", ";", "", " ,"]).join(parts)


def main():
    options = arguments(__doc__, 1500)
    r = random.Random(f"settings {options.seed}")
    operations = [{"op": "config", "devices": 1, "total_bytes": 8 << 30, "settings": ""}]
    for _ in range(options.count):
        operations.append({"op": "settings", "value": text(r)})
        operations.append({"op": "snapshot", "file": "state.pickle"})
        if r.random() < 0.3:
            # The error for this value contains the size of large segments, which no snapshot contains.
            operations.append({"op": "settings", "value": "max_split_size_mb:1"})
    results = run(options.venv, f"settings-{options.seed}", operations)
    if results is None:
        sys.exit(1)
    different = abs(len(results[0]) - len(results[1]))
    for operation, pytorch_result, memtrack_result in zip(operations, *results):
        keys = ("error", "allocator_settings")
        if any(pytorch_result.get(key) != memtrack_result.get(key) for key in keys):
            different += 1
            print(operation, *({key: side.get(key) for key in keys} for side in (pytorch_result, memtrack_result)), sep="\n    ")
    print(f"{different} of {len(operations)} differ")
    sys.exit(different != 0)


main()
