"""Runs a random program of tensors on memtrack's pluggable library, loaded by PyTorch, and on PyTorch's own allocator: the
statistics and segments must be equal. The order in which blocks of several streams become free, and so the sums of
`inactive_split`, are not compared: they depend on PyTorch's numbers of streams, which a pluggable allocator does not get."""
import ctypes
import json
import os
import pickle
import random
import sys

from common import OUT, ROOT, arguments, pytorch

TOTAL = 8 << 30


def install(torch):
    """Installs the allocator as the library's documentation describes."""
    path = os.path.join(ROOT, "target", "release", "libmemtrack_allocator.so")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "memtrack_malloc", "memtrack_free")
    library, hooks = ctypes.CDLL(path), allocator._allocator
    address = lambda name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    hooks.set_init_fn(address("memtrack_init"))
    hooks.set_reset_fn(address("memtrack_reset"))
    hooks.set_memory_fraction_fn(address("memtrack_memory_fraction"))
    hooks.set_base_alloc_fn(address("memtrack_base_alloc"))
    hooks.set_record_stream_fn(address("memtrack_record_stream"))
    hooks.set_begin_allocate_to_pool(address("memtrack_begin_allocate_to_pool"))
    hooks.set_end_allocate_to_pool_fn(address("memtrack_end_allocate_to_pool"))
    hooks.set_release_pool(address("memtrack_release_pool"))
    torch.cuda.memory.change_current_allocator(allocator)
    return library


def program(torch, r):
    live, streams = [], [torch.cuda.Stream() for _ in range(2)]
    for _ in range(3000):
        dice = r.random()
        if live and dice < 0.45:
            live.pop(r.randrange(len(live)))
        elif live and dice < 0.5:
            r.choice(live).record_stream(r.choice(streams))
        elif dice < 0.505:
            torch.cuda.empty_cache()
        elif dice < 0.507:
            torch.cuda.set_per_process_memory_fraction(r.choice([0.9, 1.0]))
        else:
            with torch.cuda.stream(r.choice(streams + [torch.cuda.default_stream()])):
                live.append(torch.empty(int(2 ** r.uniform(0, 25)), dtype=torch.uint8, device="cuda"))
    return live


def child(which, seed):
    import torch

    cuda = ctypes.CDLL(None)
    cuda.sim_configure(1, ctypes.c_size_t(TOTAL))
    snapshot = os.path.join(OUT, which + ".pickle")
    library = install(torch) if which == "memtrack" else None
    torch.cuda.init()
    if library:
        assert cuda.sim_use_driver() == 0
        library.memtrack_record_memory_history.argtypes = [ctypes.c_int64]
        assert library.memtrack_record_memory_history(-1) == 0
    else:
        torch.cuda.memory._record_memory_history()
    live = program(torch, random.Random(seed))
    if library:
        stats = library.memtrack_memory_stats
        stats.restype, stats.argtypes = ctypes.c_size_t, [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
        buffer = ctypes.create_string_buffer(stats(0, None, 0))
        stats(0, buffer, len(buffer))
        print(buffer.value.decode())
        assert library.memtrack_dump_snapshot(snapshot.encode()) == 0
    else:
        print(json.dumps(torch.cuda.memory_stats()))
        torch.cuda.memory._dump_snapshot(snapshot)
    del live


def segments(snapshot):
    """Returns the segments of a snapshot without addresses and streams."""
    names = ("total_size", "allocated_size", "active_size", "requested_size", "segment_type", "is_expandable")
    block = lambda block: (block["size"], block["requested_size"], block["state"])
    found = ((*(s[name] for name in names), *map(block, s["blocks"])) for s in snapshot["segments"])
    return sorted(found, key=repr)


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--child":
        return child(*sys.argv[2:])
    options = arguments(__doc__, 1)
    os.environ["MEMTRACK_MOCK_TOTAL"] = str(TOTAL)
    for seed in range(options.seed, options.seed + options.count):
        stats, snapshots = [], []
        for which, driver in (("memtrack", "driver"), ("native", "lib")):
            done = pytorch(options.venv, os.path.abspath(__file__), "--child", which, str(seed), driver=driver)
            if done.returncode != 0:
                sys.exit(f"{which}: {done.stderr}")
            stats.append(json.loads(done.stdout))
            with open(os.path.join(OUT, which + ".pickle"), "rb") as file:
                snapshots.append(pickle.load(file))
        for key in stats[1].keys() | stats[0].keys():
            by_order = key.startswith("inactive_split") and not key.endswith("current")
            if stats[0].get(key) != stats[1].get(key) and not by_order:
                sys.exit(f"seed {seed}: {key}: {stats[0].get(key)} instead of {stats[1].get(key)}")
        if segments(snapshots[0]) != segments(snapshots[1]):
            sys.exit(f"seed {seed}: segments differ: {OUT}/memtrack.pickle, native.pickle")
        print(f"seed {seed}: {len(stats[1])} statistics and {len(snapshots[1]['segments'])} segments equal")


main()
